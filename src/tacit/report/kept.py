"""What each task ended with: its last step, counted over tasks and said for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tacit.report.box import heading
from tacit.report.page import Markup, paragraph, table, text
from tacit.report.words import count, label, share

FREE = (
    "This last step cost no privacy: each task used its own rows and what was already published, "
    "and told nobody what it chose."
)
FREE_TOO = (
    "This last step gave nothing more away: each task used its own rows and what it had been sent, "
    "and told nobody what it chose."
)
"""On the exchange, which spends no privacy."""
CHOSE = "Each task chose the best of these on its own training and validation rows."
TUNED = "Each task went on training the model that the method left it, on its own rows."

WAYS = {
    "vanilla": "freely",
    "mean": "near its weights",
    "kl": "near its predictions",
    "ewc": "near its important weights",
}
"""What fine-tuning stayed near, by objective."""
STARTS = {"alone": "trained alone", "billboard": "billboard", "own": "own model"}
"""What training started from."""
TERMS = {
    "billboard": "Billboard: what anybody can read off the published sums.",
    "own": "Own model: the one that the method left with the task.",
}
BLOCKS = 24
"""Characters of the longest bar in the terminal."""


def ended_with(result: Mapping[str, Any]) -> Mapping[str, str]:
    """Task by task, in words; empty where the method's own models were kept."""
    return _models(result).get("per_task") or {}


def mode(result: Mapping[str, Any]) -> str:
    """The last step that was asked for."""
    return _models(result).get("mode") or "none"


def _models(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return result["metrics"].get("personal_models") or {}


def kinds(result: Mapping[str, Any]) -> list[tuple[str, int]]:
    """How many tasks ended with each kind of model, whatever the strength, in a fixed order."""
    known = _models(result).get("kinds")
    if known is None:  # a result from before kinds were kept: each strength for itself
        return list((_models(result).get("counts") or {}).items())
    return [(kind(one), one["tasks"]) for one in sorted(known, key=_order)]


def kind(ended: Mapping[str, Any]) -> str:
    """What one kind is called; whatever is unknown here has the name that it came with."""
    objective, start = ended["objective"], STARTS.get(ended["start"]) or str(ended["start"])
    if ended["start"] == "alone":
        return start
    how = f", fine-tuned {WAYS.get(objective, objective)}" if ended["trained"] else " as it is"
    return start + how


def _order(ended: Mapping[str, Any]) -> tuple[int, bool, int]:
    starts, ways = list(STARTS), list(WAYS)
    places = [
        known.index(one) if one in known else len(known)
        for known, one in ((starts, ended["start"]), (ways, ended["objective"]))
    ]
    return places[0], ended["trained"], places[1]


def section(result: Mapping[str, Any]) -> str:
    """A bar for each kind of model, with the sentence that says why this was free."""
    found = kinds(result)
    if not found:
        return ""
    total = sum(number for _, number in found)
    most = max(number for _, number in found)
    rows = [
        [words, count(number), share(number, total), _bar(number / most)] for words, number in found
    ]
    said = paragraph(f"{CHOSE if mode(result) == 'best' else TUNED} {_free(result)}")
    head = heading("What the tasks ended with", result)
    bars = table(["", "tasks", "share", ""], rows, kind="bars")
    return head + said + bars + paragraph(_terms(result), "note")


def _free(result: Mapping[str, Any]) -> str:
    return FREE if result["guarantee"].get("channel") != "exchange" else FREE_TOO


def _bar(part: float) -> Markup:
    return Markup(f'<i class="bar" style="width: {100 * part:.0f}%"></i>')


def _terms(result: Mapping[str, Any]) -> str:
    starts = {one["start"] for one in _models(result).get("kinds") or ()}
    said = [sentence for start, sentence in TERMS.items() if start in starts]
    return " ".join([*said, "Strengths and single tasks are under All tasks."])


def cell(result: Mapping[str, Any], task: str) -> Markup:
    """What one task ended with, for its line of a table."""
    return Markup(f'<span class="said">{text(ended_with(result).get(task, ""))}</span>')


def bars(result: Mapping[str, Any]) -> Group | None:
    """The same for the terminal; None without a last step."""
    found = kinds(result)
    if not found:
        return None
    most = max(number for _, number in found)
    inner = Table(box=None, pad_edge=False, header_style="dim")
    inner.add_column(f"ended with ({label(result)})")
    inner.add_column("tasks", justify="right")
    inner.add_column("")
    for words, number in found:
        filled = max(1, round(BLOCKS * number / most))
        inner.add_row(Text(words), count(number), Text("■" * filled, style="blue"))
    return Group(inner, Text(_free(result), style="dim"))
