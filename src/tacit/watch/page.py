"""A view as a page that looks like the report, and that renews itself with scripts or without."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import datetime

from tacit.privacy.guarantee import epsilon_up
from tacit.report import verdict
from tacit.report.box import guarantee_box
from tacit.report.page import POLICY, Markup, definitions, document, note, paragraph, table, text
from tacit.report.silo import LINES, log_table
from tacit.report.words import SEEDED, plural, sentence
from tacit.watch.folders import View

SECONDS = 3
"""Between two looks."""
SCRIPT = (
    "setInterval(async () => { const all = id => document.getElementById(id); try {"
    " const got = await fetch(location.href); if (!got.ok) throw got;"
    " const page = new DOMParser().parseFromString(await got.text(), 'text/html');"
    " for (const id of ['now', 'live']) { const next = page.getElementById(id);"
    " if (next.innerHTML !== all(id).innerHTML) all(id).replaceWith(next); }"
    " document.title = page.title; all('stale').hidden = true;"
    " } catch { all('stale').hidden = false; } }, "
    f"{1000 * SECONDS});"
)
"""Replaces only what is new, so that whoever reads or selects something is not disturbed."""
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
LIVE_POLICY = f"{POLICY}; script-src 'sha256-{_HASH}'; connect-src 'self'"
"""This script alone may run, whatever stands in a name or a log."""
HEAD = (
    f'<script>{SCRIPT}</script><noscript><meta http-equiv="refresh" content="{SECONDS}"></noscript>'
)
STALE = "This page is no longer renewed: `tacit watch` has ended, or cannot be reached."
PRIVATE_LOG = (
    "For the people here: this log says in which rounds something left, and how much. It is as "
    "private as the rows, and no ε covers handing it on."
)
NOT_YET = "What is promised, and to whom, is said once the run is over."
IN_REPORT = "What is promised, and to whom, is in the report."


def live_page(view: Callable[[], View], *, report: bool, paused: bool) -> str:
    """The page as it is now; `report` says that there is one to go on to."""
    seen = view()
    content = f'<h1>{text(seen.title)}</h1>{_above(paused)}<div id="live">'
    content += "".join(
        [
            verdict.section(seen.verdict),
            _state(seen),
            paragraph(f"Stopped early: {seen.stopped}", "stopped") if seen.stopped else "",
            paragraph(Markup('<a href="report.html">The whole report</a>')) if report else "",
            _promise(seen),
            _left(seen),
            _silos(seen),
            _log(seen),
        ]
    )
    footer = f"Made by tacit watch from the files of this {seen.kind}, which it only reads."
    title = f"{_far(seen)} · {seen.title}"
    if paused:
        return document(title, content + "</div>", footer)
    return document(title, content + "</div>", footer, LIVE_POLICY, HEAD)


def failed_page(why: str, *, paused: bool) -> str:
    """Nothing can be shown now; the next look may find more."""
    told = note("This cannot be shown now", "red", paragraph(sentence(why)))
    content = f'<h1>tacit watch</h1>{_above(paused)}<div id="live">{told}</div>'
    parts = () if paused else (LIVE_POLICY, HEAD)
    return document("tacit watch", content, "Made by tacit watch.", *parts)


def _above(paused: bool) -> str:
    """When this was, and the way to stop it: outside of what is renewed, so links keep focus."""
    stop = '<a href="./">Renew again</a>' if paused else '<a href="./?paused">Stop renewing</a>'
    now = f'<span id="now">{datetime.now():%Y-%m-%d %H:%M:%S}</span>'
    stale = f'<p id="stale" class="stopped" role="alert" hidden>{text(STALE)}</p>'
    return paragraph(Markup(f"As of {now} · {stop}"), "sub") + stale


def _far(view: View) -> str:
    if view.over:
        return f"Over after {plural(view.round, 'round')}"
    return f"Round {view.round} of {view.rounds}" if view.round else "Not begun"


def _state(view: View) -> str:
    """How far it is, and ε so far where there is no guarantee yet."""
    bar = (
        f'<progress style="width: 100%; accent-color: var(--gain)" aria-label="rounds" '
        f'value="{view.round}" max="{max(view.rounds, 1)}"></progress>'
    )
    if view.guarantee is not None:
        return note(_far(view), "grey", bar)
    booked = f"{plural(view.releases, 'release')} booked, each before it was made"
    if view.spent is None:
        said = paragraph(f"{sentence(view.no_epsilon)}.") + paragraph(f"{booked}.", "note")
        return note(_far(view), "grey", bar + said)
    so_far, budget = view.spent.epsilon, view.spent.budget
    shown = "∞" if so_far is None else epsilon_up(so_far)
    of = "spent so far" if budget is None else f"spent so far, of {budget:g}"
    strikes = " void" if view.spent.marks else ""  # nobody is to copy the number on its own
    figures = (
        f'<div class="figures{strikes}"><div><b>ε = {shown}</b><span>{text(of)}</span></div></div>'
    )
    where = IN_REPORT if view.over else NOT_YET
    said = paragraph(f"{sentence(view.spent.meaning)}; {booked}. {where}", "note")
    seeded = paragraph(Markup(f"<b>{text(SEEDED.headline)}</b>.")) if view.seeded else ""
    return note(_far(view), "amber" if view.spent.marks else "grey", bar + figures + seeded + said)


def _promise(view: View) -> str:
    return "" if view.guarantee is None else guarantee_box(view.guarantee, adapted=view.adapted)


def _left(view: View) -> str:
    if not view.left:
        return ""
    return "<h2>What left</h2>" + definitions((term, said, "") for term, said in view.left)


def _silos(view: View) -> str:
    if not view.silos:
        return ""
    excluded = any(why for *_, why in view.silos)
    head = ["silo", "last answer", "did not answer", *(["excluded"] if excluded else [])]
    rows = [row if excluded else row[:-1] for row in view.silos]
    return "<h2>Who answered</h2>" + table(head, rows)


def _log(view: View) -> str:
    if not view.log:
        return ""
    private = paragraph(PRIVATE_LOG, "uncovered") if view.kind == "silo" else ""
    latest = log_table(view.log[: -LINES - 1 : -1])
    return "<h2>What happened, the latest first</h2>" + private + latest
