"""One silo's page, for the people there: what left it, what that cost, and what it got for it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.privacy.guarantee import epsilon_up
from tacit.report import verdict
from tacit.report.box import signed_box
from tacit.report.kept import kind as kind_of
from tacit.report.page import (
    PLAIN,
    Markup,
    document,
    drawing,
    paragraph,
    save,
    table,
    text,
)
from tacit.report.scores import BASELINES, Score, number, score
from tacit.report.shared import caterpillar, effects_rows
from tacit.report.svg import GAIN, INK, LOSS, MUTED, WIDE, axes, beside, figure
from tacit.report.words import delta_text, epsilon_text, plural, sentence

PAGE = "report.html"
LINES = 12
"""Entries of the log that are shown."""
OWN = (
    "Rows counted, and scores on them, for the people here: whoever hands them on tells something "
    "about those rows that no ε covers."
)
APART = (
    "Own effects come from this silo's rows and never left it: whoever hands them on tells "
    "something about those rows that no ε covers."
)
ENDED = {
    ("alone", True): "what the others contributed did not help here, so it is the model that this "
    "silo trains by itself",
    ("billboard", False): "it is what was published to everybody",
    ("billboard", True): "it went on from what was published to everybody",
    ("own", False): "it is what the rounds left here",
    ("own", True): "it went on from what the rounds left here",
}
"""What a personal model was made from, by where training started and whether there was any."""
Log = Sequence[tuple[str, str]]
"""When something happened, and what, in words."""


def write_page(report: Mapping[str, Any], log: Log, folder: Path) -> Path:
    """Write report.html beside the silo's report.json."""
    return save(page(report, log), folder / PAGE)


def page(report: Mapping[str, Any], log: Log) -> str:
    """The page as a string."""
    silo, consortium = report["silo"], report["consortium"]
    title = f"{silo}, a silo of {consortium}"
    content = [
        f"<h1>{text(title)}</h1>",
        paragraph(f"{plural(report['rounds'], 'round')} · {datetime.date.today()}", "sub"),
        verdict.section(report.get("verdict")),
        _box(report),
        _scores(report),
        _effects(report),
        _log(log),
    ]
    footer = f"Written by this silo for itself, from report.json and events.jsonl. {PLAIN}"
    return document(f"{title} · tacit report", "\n".join(content), footer)


def _box(report: Mapping[str, Any]) -> str:
    """The guarantee as it is for this silo: the promise, and what it cost."""
    promise = report["guarantee"]
    facts: list[tuple[str, object, str]] = [
        ("What was agreed", [sentence(line) for line in report["leaves"]], ""),
        ("What left", _left(report), ""),
        ("What it spent", _spent(report.get("spent")), ""),
        ("Whom it must trust", sentence(promise["trusts"]), ""),
        ("Choice of settings", sentence(promise["tuning"]), ""),
        ("What is assumed", [sentence(line) for line in promise["assumptions"]] or "Nothing", ""),
    ]
    # Struck out where the promise does not hold, so that nobody copies the number on its own.
    void = promise.get("epsilon") is not None and not promise.get("private")
    return signed_box(promise, _figures(promise), facts, void=void)


def _figures(promise: Mapping[str, Any]) -> list[tuple[str, str]]:
    if promise.get("channel") == "exchange":
        return [("no ε", "nothing bounds what may be learned about this silo")]
    if promise.get("epsilon") is None:
        return [("ε = ∞", "no bound on what may be learned about this silo")]
    unit = promise.get("unit", "task")
    whom = "this silo" if unit == "task" else f"any one {unit} of this silo"
    figures = [
        (f"ε = {epsilon_text(promise)}", f"how much may be learned about {whom}"),
        (f"δ = {delta_text(promise['delta'])}", "probability that the bound fails"),
    ]
    whole = promise.get("tasks_epsilon")
    if whole is not None:
        said = "beside that, in this run: how much may be learned about this silo as a whole"
        figures.append((f"ε = {epsilon_up(whole)}", said))
    return figures


def _left(report: Mapping[str, Any]) -> str:
    sent, unreadable = report.get("contributions"), report.get("unreadable_events", 0)
    clip, unit = report["guarantee"].get("clip"), report["guarantee"].get("unit", "task")
    bound = "of any length" if clip is None else f"of length {clip:g} at most"
    if unit != "task":
        bound = f"that are sums over {unit}s, each {bound}"
    # The longest of them: where persons vote first, rounds differ.
    what = f"up to {plural(report['numbers'], 'number')} {bound}"
    if sent is None:  # a report from before they were counted
        return f"Contributions, each of {what}; log.txt says how many"
    each = ", each of" if sent != 1 else " of"
    said = f"{plural(sent, 'contribution')}{each} {what}, by this silo's own log"
    lines = f"{plural(unreadable, 'line')} of events.jsonl cannot be read"
    return f"{said}; {lines}, so there may have been more" if unreadable else said


def _spent(found: Mapping[str, Any] | str | None) -> str:
    """Over all runs that the silo took part in, as it stood when the report was made."""
    if found is None:
        return "Nothing was booked: without a bound and noise there is no ε to add up"
    said = found if isinstance(found, str) else found["in_words"]  # older reports have a sentence
    return f"{said}, over all runs in this folder, by this silo's own ledger"


def _scores(report: Mapping[str, Any]) -> str:
    entries = [("with the others", report["personal"])]
    if report["alone"] is not None:
        entries.insert(0, (BASELINES["local"], report["alone"]))
    main = _score(report, report["score"], report["higher_is_better"])
    kinds = [main, *([] if main.name == "loss" else [_score(report, "loss", False)])]
    rows = []
    for kind in kinds:
        values = [overall.get(kind.name) for _, overall in entries]
        digits = kind.decimals(values)
        better = Markup(f"{text(kind.words)}<small>, {kind.better}</small>")
        rows.append([better, *(kind.text(value, digits) for value in values)])
    part = report["measured_on"]
    caption = f"The personal model and training alone, on this silo's own {part} rows."
    return (
        "<h2>What this silo got</h2>"
        + paragraph(OWN, "uncovered")
        + drawing(_bars(entries, kinds), "scores", caption, slim=True)
        + table([f"on {part} rows", *(name for name, _ in entries)], rows)
        + _chosen(report)
    )


def _effects(report: Mapping[str, Any]) -> str:
    """What sets this silo apart in a mixed model."""
    found = report.get("effects")
    if not found:
        return ""
    caption = (
        "This silo's own effects with 95 % intervals. The band holds 95 % of all silos, by the "
        "variance that was published."
    )
    head = ["own effect", "estimate", "standard deviation of it", "deviation between silos"]
    return (
        "<h2>What sets this silo apart</h2>"
        + paragraph(APART, "uncovered")
        + drawing(caterpillar(found, "silos"), "effects", caption, slim=True)
        + table(head, effects_rows(found))
        + paragraph(f"In {found['units']}.", "note")
    )


def _chosen(report: Mapping[str, Any]) -> str:
    ended, rows = report.get("ended"), report["rows"]
    found = ended and ENDED.get((ended["start"], ended["trained"]))
    words, why = kind_of(ended) if ended else report["chosen"], f": {found}" if found else ""
    return paragraph(f"Its personal model, in the folder model/, is “{words}”{why}.") + (
        paragraph(
            f"It was trained on this silo's own {plural(rows, 'row')} and chosen by its own, at no "
            "privacy cost. With few rows, a small difference either way is mostly chance.",
            "note",
        )
    )


def _score(report: Mapping[str, Any], name: str, higher: bool) -> Score:
    return score({"federation": {"kind": report["kind"]}}, name, higher)


def _bars(
    entries: Sequence[tuple[str, Mapping[str, Any]]], kinds: Sequence[Score]
) -> Figure | None:
    """A panel for each score, a bar for each model; None if there is no number to draw."""
    found = {kind: [number(overall.get(kind.name)) for _, overall in entries] for kind in kinds}
    shown = {kind: values for kind, values in found.items() if any(map(math.isfinite, values))}
    if not shown:
        return None
    fig = figure(WIDE, 0.75 + 0.38 * len(entries))
    for place, (kind, values) in enumerate(shown.items(), 1):
        ax = axes(fig, 1, len(shown), place)
        digits = kind.decimals(values)
        drawn = [value * kind.factor if math.isfinite(value) else 0.0 for value in values]
        low, high = values[0], values[-1]
        gains = high >= low if kind.higher else high <= low
        mine = LOSS if len(values) > 1 and not gains else GAIN
        colours = [*([MUTED] * (len(values) - 1)), mine]
        ax.barh(range(len(values)), drawn, 0.62, color=colours, alpha=0.85)
        for row, value in enumerate(values):
            beside(ax, kind.text(value, digits), (drawn[row], row), (5, 0), color=INK, size=10)
        ax.set_yticks(range(len(values)), [name for name, _ in entries])
        ax.set_ylim(len(values) - 0.5, -0.5)
        ax.set_xlim(0, 1.2 * (100 if kind.percent else max(drawn)) or 1.0)  # room for the number
        if kind.percent:
            ax.set_xticks(range(0, 101, 50))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(2))
        ax.tick_params(axis="y", length=0, labelcolor=INK, labelsize=10)
        ax.grid(False, axis="y")
        ax.set_xlabel(f"{kind.axis}, {kind.better}")
    return fig


def _log(log: Log) -> str:
    if not log:
        return ""
    head = "The end of its log" if len(log) > LINES else "Its log"
    note = "What left this silo and what it refused, line by line; all of it is in log.txt."
    return f"<h2>{head}</h2>" + paragraph(note, "note") + log_table(log[-LINES:])


def log_table(log: Log) -> str:
    """Entries of a log; of each the first line, because others may be long."""
    rows = [
        (Markup(f'<span style="white-space: nowrap">{text(when)}</span>'), said.split("\n")[0])
        for when, said in log
    ]
    return table([], rows, kind="left")
