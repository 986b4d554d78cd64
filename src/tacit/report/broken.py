"""What went wrong in a run: in a red box, so that nobody reads its scores without knowing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.page import Markup, note, paragraph, text
from tacit.report.words import label, plural
from tacit.words import listed

ASTRAY = "diverged"
"""The word by which a run says that it stopped because numbers grew without bound."""


def section(result: Mapping[str, Any]) -> str:
    """Nothing where nothing went wrong; a run that stopped early for another reason says so."""
    stopped, metrics = result.get("stopped"), result["metrics"]
    astray, dropped = metrics.get("diverged") or [], metrics.get("dropped_contributions") or 0
    said = []
    if astray:
        who = f"{plural(len(astray), 'task')} ({listed(map(str, astray))})"
        said.append(f"The training of {who} diverged: such a task ends with its best model alone.")
    if dropped:
        did = "was" if dropped == 1 else "were"
        what = f"{plural(dropped, 'contribution')} with numbers that are not finite"
        said.append(f"{what} {did} left out.")
    if stopped and ASTRAY in stopped:
        said.append(f"It stopped early: {stopped}.")
    early = Markup(f"<b>Stopped early:</b> {text(stopped)}")
    calm = paragraph(early, "stopped") if stopped and ASTRAY not in stopped else ""
    if not said:
        return calm
    remedy = "A smaller step (lr), or method auto, whose steps cannot diverge, helps."
    marked = Markup(f'Something diverged <span class="tag">{text(label(result))}</span>')
    return note(marked, "red", paragraph(" ".join([*said, remedy]))) + calm
