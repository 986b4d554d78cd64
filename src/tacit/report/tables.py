"""Results for the terminal, and several results as a page with a plot."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from tacit.privacy.guarantee import NOT_COVERED
from tacit.report import kept
from tacit.report.box import uncovered
from tacit.report.comparison import Group, groups
from tacit.report.page import PLAIN, Markup, document, drawing, paragraph, save, table, text
from tacit.report.scores import (
    EXPLAINED,
    Comparison,
    Score,
    about_scores,
    against_alone,
    entries,
    overall_score,
    task_score,
)
from tacit.report.tradeoff import tradeoff
from tacit.report.verdict import told
from tacit.report.words import (
    CHOOSING,
    EXCHANGED,
    NOTHING,
    count,
    delta_text,
    headline,
    label,
    plural,
    share,
    state,
)

STYLE = {"green": "green", "amber": "bold yellow", "red": "bold red", "grey": ""}
# Names and settings go in as Text: square brackets in a file's name are not rich's markup.


def run_table(result: Mapping[str, Any]) -> Table:
    """One run: the guarantee with its marks, then the scores beside training alone."""
    guarantee, federation = result["guarantee"], result["federation"]
    kind = state(guarantee)
    title = f"{federation['source']}: {result['config'].get('method', '?')}, "
    title = Text(title + plural(federation["tasks"], "task"), style="bold")
    outer = Table(title=title, box=box.ROUNDED, show_header=False, show_lines=True)
    outer.border_style = STYLE[kind.colour]
    outer.add_column(overflow="fold")
    if said := told(result):
        outer.add_row(Text(" ".join(said), style=STYLE[result["verdict"]["colour"]]))
    outer.add_row(
        Text.assemble(
            (headline(guarantee), STYLE[kind.colour]), "\n", guarantee.get("in_words", "")
        )
    )
    outer.add_row(_scores(result))
    last = kept.bars(result)
    if last is not None:
        outer.add_row(last)
    notes = Text(" ".join([f"Scores: {label(result)}.", *about_scores(result)]), style="dim")
    if guarantee.get("tuning") and kind.key != EXCHANGED.key:  # it says what ε covers
        notes.append(f"\nChoice: {guarantee['tuning']}.")
    if result.get("stopped"):
        notes = Text.assemble((f"Stopped early: {result['stopped']}\n", "yellow"), notes)
    outer.add_row(notes)
    return outer


def _scores(result: Mapping[str, Any]) -> Table:
    main, kind, tasks = overall_score(result), task_score(result), against_alone(result)
    inner = Table(box=None, pad_edge=False, header_style="dim")
    inner.add_column("")
    inner.add_column(_titled(main), justify="right")
    inner.add_column(f"worst tenth: {_titled(kind)}", justify="right")
    if tasks is not None:
        inner.add_column("tasks better than alone", justify="right")
        inner.add_column("tasks worse", justify="right")
    rows = entries(result, "personal")
    digits = main.decimals(overall.get(main.name) for _, overall, _ in rows)
    worst = kind.decimals(overall.get("worst_tenth") for _, overall, _ in rows)
    for name, overall, compared in rows:
        cells = [main.text(overall.get(main.name), digits)]
        cells.append(kind.text(overall.get("worst_tenth"), worst))
        if tasks is not None:
            cells += _won(compared)
        inner.add_row(Text(name), *cells, style="bold" if name == "personal" else None)
    return inner


def _won(tasks: Comparison | None) -> list[str]:
    if tasks is None:
        return [NOTHING, NOTHING]
    return [share(number, len(tasks)) for number in (tasks.gaining, tasks.losing)]


def compare_table(results: Mapping[str, Mapping[str, Any]]) -> Stack:
    """Several results: a table for every data set, a row for runs that differ in their seed only.

    What is the same in all rows stands above them, so that 80 columns are enough.
    """
    made = groups(results)
    shown: list[Table | Text] = []
    for (source, _), members in groupby(made, key=lambda group: group.data):
        same = list(members)
        kind, best = same[0].score, _best(same)
        title = Text(f"{source}: {_titled(kind)}", style="bold")
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
        for name in ("run", "method"):
            table.add_column(name, overflow="fold", min_width=8)
        table.add_column("ε", justify="right", no_wrap=True)
        table.add_column("privacy", overflow="fold")
        for name in ("score", "worst tenth", "worse than alone"):
            table.add_column(name, justify="right")
        for group, (main, worst) in zip(same, _cells(same), strict=True):
            badge = Text(group.state.badge, style=STYLE[group.state.colour])
            score = Text(main, style="bold" if group is best else "")
            named = Text(group.label), Text(group.series)
            table.add_row(*named, group.epsilon_text, badge, score, worst, _losing(group))
        shown.append(table)
    said = f"Scores are {NOT_COVERED}; mean ± standard deviation over seeds."
    return Stack(*shown, Text(f"{said} {CHOOSING} {_terms(made)}".strip(), style="dim"))


def write_comparison(
    results: Mapping[str, Mapping[str, Any]], path_html: str | os.PathLike[str]
) -> Path:
    """A page with one plot (score against ε) and one table for every data set compared."""
    made = groups(results)
    runs = sum(len(group.names) for group in made)
    content = [
        "<h1>Runs compared</h1>",
        paragraph(f"{plural(runs, 'run')}, {plural(len(made), 'setting')}", "sub"),
    ]
    for place, (data, members) in enumerate(groupby(made, key=lambda group: group.data)):
        content.append(_section(place, data[0], list(members)))
    footer = f"Written by tacit from the result.json of every run. {PLAIN}"
    return save(document("Runs compared · tacit", "\n".join(content), footer), path_html)


def _section(place: int, source: str, members: list[Group]) -> str:
    kind, worst = members[0].score, members[0].task_score
    score = Markup(f"{text(kind.words)}<small>{kind.better}</small>")
    tenth = Markup(f"worst tenth<small>{text(worst.words)}</small>")
    promise = "privacy", "runs", "ε", "δ", "neighbours"
    head: list[object] = ["method", *promise, score, tenth, "worse than alone"]
    best = _best(members)
    rows = []
    for group, scores in zip(members, _cells(members), strict=True):
        badge = Markup(f'<span class="{group.state.colour}-text">{text(group.state.badge)}</span>')
        runs, promise = count(len(group.names)), (_delta(group), _neighbours(group))
        row = [group.series, badge, runs, group.epsilon_text, *promise, *scores, _losing(group)]
        rows.append(row)
    several = any(len(group.names) > 1 for group in members)
    bars = " Bars: one standard deviation over seeds, either side." if several else ""
    caption = f"{kind.words[:1].upper()}{kind.words[1:]} ({kind.better}) against ε.{bars}"
    said = [
        "Shaded: the best score." if best else "",
        "± is the standard deviation over runs that differ in their seed only." if several else "",
        EXPLAINED.get(kind.name, ""),
        CHOOSING,
        _terms(members),
    ]
    note = paragraph(" ".join(filter(None, said)), "note") if any(said) else ""
    title = f"<h2>{text(source)}</h2>" + uncovered(members[0].first) + _warning(members)
    drawn = drawing(tradeoff(members), f"tradeoff{place}", caption)
    listed = table(head, rows, kind="left", mine=members.index(best) if best else None)
    return title + drawn + listed + note + _names(members)


def _warning(members: list[Group]) -> str:
    seeded = sum(len(group.names) for group in members if group.state.key == "seeded")
    if not seeded:
        return ""
    words = (
        f"{plural(seeded, 'run')} here {'draws' if seeded == 1 else 'draw'} the noise from a seed: "
        "reproducible, not private. The ε shown is what the same settings would promise with "
        "secret noise."
    )
    return paragraph(words, "stopped")


def _names(members: list[Group]) -> str:
    rows = [[group.series, group.epsilon_text, ", ".join(group.names)] for group in members]
    inner = table(["method", "ε", "runs"], rows, kind="left")
    return f"<details><summary>Which runs these are</summary>{inner}</details>"


def _cells(members: list[Group]) -> list[tuple[str, str]]:
    kind, worst = members[0].score, members[0].task_score
    digits = kind.decimals(group.main.mean for group in members)
    tenth = worst.decimals(group.worst_tenth.mean for group in members)
    return [(g.main.text(kind, digits), g.worst_tenth.text(worst, tenth)) for g in members]


def _best(members: list[Group]) -> Group | None:
    scored = [group for group in members if math.isfinite(group.main.mean)]
    if len(scored) < 2:
        return None
    choose = max if members[0].score.higher else min
    return choose(scored, key=lambda group: group.main.mean)


def _delta(group: Group) -> str:
    delta = group.first["guarantee"].get("delta")
    return NOTHING if delta is None else delta_text(delta)


def _neighbours(group: Group) -> str:
    """What ε is about: a task added or removed, or its data replaced."""
    return group.first["guarantee"].get("neighbours") or NOTHING


def _terms(members: list[Group]) -> str:
    """The neighbours, the sampling and the accountant behind every ε shown."""
    promises = [group.first["guarantee"] for group in members]
    terms = {
        f"{p['neighbours']}, {p['sampling']}, {p['accountant']} accountant"
        for p in promises
        if p.get("accountant")
    }
    return f"Every ε: {'; or '.join(sorted(terms))}." if terms else ""


def _titled(kind: Score) -> str:
    return f"{kind.words} {'↑' if kind.higher else '↓'}"


def _losing(group: Group) -> str:
    return NOTHING if group.losing is None else f"{100 * group.losing:.0f} %"
