"""One run as one HTML file: whether it helped, the guarantee, then what the tasks got for it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tacit.report import (
    audit,
    broken,
    exchange,
    groups,
    kept,
    over_time,
    per_head,
    plots,
    settings,
    shapes,
    shared,
    verdict,
)
from tacit.report.box import brief_box, guarantee_box, heading, uncovered
from tacit.report.page import (
    PLAIN,
    Markup,
    details,
    document,
    drawing,
    paragraph,
    save,
    table,
    text,
    together,
)
from tacit.report.scores import (
    EXPLAINED,
    Comparison,
    Score,
    about_scores,
    against_alone,
    baseline,
    entries,
    number,
    overall_score,
    score,
    task_score,
)
from tacit.report.words import NOTHING, count, plural, share

MEANT = {
    "constant": (
        "Own mean: each task predicts its own mean, class shares or hazards for every row."
    ),
    "local": "Best alone: the best that each task finds by its own rows, sharing nothing.",
    "global": "One model for all: every task uses the same model, trained with the same privacy.",
    "open": "Not private: the same method without noise.",
}
LOSERS = 15
ALONE_AND_NOT = ("alone", "personal", "gain")
LISTED = 500
KEEP = (
    "A task that loses can keep the model it trained alone. It decides by looking at its own data "
    "only, so this costs no privacy."
)
CHOSEN = (
    "Training alone was among the choices of every task, and the choice costs no privacy. A task "
    "that loses chose another model by its training and validation rows, and the rows scored here "
    "disagree."
)


def write_html(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the report of one run, from the content of its result.json and nothing else.

    Attacks on the run are shown where they stand under `audits` (what `tacit audit` keeps).
    """
    return save(page(result), path)


def page(result: Mapping[str, Any]) -> str:
    """The report as a string."""
    tasks = against_alone(result)
    kind = task_score(result)
    content = [
        f"<h1>{text(title(result))}</h1>",
        paragraph(subtitle(result), "sub"),
        verdict.section(result.get("verdict")),
        broken.section(result),
        guarantee_box(
            result["guarantee"], adapted=result["config"].get("clip_quantile") is not None
        ),
        audit.section(result),
        uncovered(result),
        shared.section(result),
        shapes.section(result),
        headline(result, tasks),
        kept.section(result),
        per_head.section(result),
        over_time.section(result),
        exchange.section(result),
        groups.section(result),
        _curve(result),
        _against_alone(result, tasks, kind),
        _losers(result, tasks, kind),
        _everyone(result, tasks, kind),
        settings.section(result),
    ]
    footer = f"Written by tacit {result.get('tacit', '')} from result.json. {PLAIN}"
    return document(
        f"{title(result)} · tacit report", "\n".join(part for part in content if part), footer
    )


def write_summary(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write what fits on one printed page: whether it helped, the promise, what the tasks got."""
    return save(summary(result), path)


def summary(result: Mapping[str, Any]) -> str:
    """The page to print, read and sign, as a string."""
    content = [
        f"<h1>{text(title(result))}</h1>",
        paragraph(subtitle(result), "sub"),
        verdict.section(result.get("verdict")),
        broken.section(result),
        brief_box(result["guarantee"]),
        scores_table(result, against_alone(result)),
        uncovered(result),
        '<p class="signed"><span>Read by</span><span>Date</span></p>',
    ]
    footer = "A summary of report.html, which says all that the promise rests on."
    inside = f'<div class="onepage">{"".join(content)}</div>'
    return document(f"{title(result)} · tacit summary", inside, footer)


def title(result: Mapping[str, Any]) -> str:
    """What was trained on, and by which method."""
    return f"{result['federation']['source']}: {result['config'].get('method', 'a method')}"


def subtitle(result: Mapping[str, Any]) -> str:
    """What was run on, and when; a result that does not say so is of today."""
    federation = result["federation"]
    when = result.get("timing", {}).get("date") or datetime.date.today().isoformat()
    kind = str(federation.get("kind", "unknown kind"))
    if federation.get("heads"):
        kind += f", {plural(len(federation['heads']['names']), 'head')}"
    return f"{plural(federation['tasks'], 'task')} ({kind}) · {when}"


def scores_table(result: Mapping[str, Any], tasks: Comparison | None) -> str:
    """The personal models beside the baselines, under a heading."""
    main, kind = overall_score(result), task_score(result)
    shown = entries(result, "personal models (this run)")
    head: list[object] = [
        "",
        Markup(f"{text(main.words)}<small>{main.better}</small>"),
        Markup(f"worst tenth of tasks<small>{text(kind.words)}, {kind.better}</small>"),
    ]
    digits = main.decimals(overall.get(main.name) for _, overall, _ in shown)
    worst = kind.decimals(overall.get("worst_tenth") for _, overall, _ in shown)
    rows: list[list[object]] = [
        [words, main.text(o.get(main.name), digits), kind.text(o.get("worst_tenth"), worst)]
        for words, o, _ in shown
    ]
    if tasks is not None:
        head += ["tasks better than alone", "tasks worse than alone"]
        for row, (_, _, compared) in zip(rows, shown, strict=True):
            row += [NOTHING, NOTHING] if compared is None else _won(compared)
    got = heading("What the tasks got", result)
    return got + table(head, rows, kind="wide", mine=0)


def headline(result: Mapping[str, Any], tasks: Comparison | None) -> str:
    """The same with what the scores mean."""
    part, main = result["metrics"].get("part", "test"), overall_score(result)
    said = [f"Measured on each task's own {part} rows.", *about_scores(result)]
    said.append(EXPLAINED.get(main.name, ""))
    said += [words for name, words in MEANT.items() if baseline(result, name)]
    note = paragraph(" ".join(filter(None, said)), "note")
    missing = "No comparison with training alone: this run was made without that baseline."
    alone = "" if tasks is not None else paragraph(missing, "note")
    return scores_table(result, tasks) + note + alone + _others(result)


def _won(tasks: Comparison) -> list[str]:
    return [f"{share(n, len(tasks))} ({count(n)})" for n in (tasks.gaining, tasks.losing)]


def _others(result: Mapping[str, Any]) -> str:
    """All overall scores, folded away: the headline stays small."""
    columns = [(words, overall) for words, overall, _ in entries(result, "personal")]
    rows = []
    for name in result["metrics"]["overall"]:
        kind = task_score(result) if name == "worst_tenth" else score(result, name, True)
        label = f"worst tenth of tasks: {kind.words}" if name == "worst_tenth" else kind.words
        digits = kind.decimals(overall.get(name) for _, overall in columns)
        rows.append([label, *(kind.text(overall.get(name), digits) for _, overall in columns)])
    return details("All overall scores", table(["", *(name for name, _ in columns)], rows))


def _curve(result: Mapping[str, Any]) -> str:
    fig = plots.learning_curve(result)
    if fig is None:
        return ""
    spent = any(number(point.get("epsilon")) > 0 for point in result["curve"])
    # Another part than the one above, so the baselines' scores would not belong on this axis.
    part = "validation" if result["federation"].get("rows", {}).get("validation") else "training"
    caption = f"Score of the personal models on {part} rows"
    if plots.last_step(result):  # whose scores stand above
        caption += ", before the last step that each task takes on its own rows"
    caption += "; ε spent by then on the right." if spent else "."
    words = "How it learned, and what that cost" if spent else "How it learned"
    return together(heading(words, result), drawing(fig, "curve", caption, slim=True))


def _against_alone(result: Mapping[str, Any], tasks: Comparison | None, kind: Score) -> str:
    if tasks is None or not (tasks.gaining or tasks.losing):
        return ""  # a run of the baseline itself: there is nothing to see
    crowd = int(tasks.finite.sum()) > plots.CROWD
    side = "Above" if kind.higher else "Below"
    marks = (
        "Darker cells hold more tasks."
        if crowd
        else "Each dot is a task; larger dots have more rows."
    )
    caption = f"{marks} {side} the dashed line the personal model is better than training alone."
    spread = "Positive: the personal model is better than training alone."
    spread += " Grey: no difference." if (tasks.gain == 0).any() else ""
    head = heading("Task by task, against training alone", result)
    first = drawing(plots.task_by_task(tasks, kind), "tasks", caption, slim=True)
    return together(head, first) + drawing(plots.gains(tasks, kind), "gains", spread, slim=True)


def _losers(result: Mapping[str, Any], tasks: Comparison | None, kind: Score) -> str:
    if tasks is None or not len(tasks):
        return ""
    head = heading("The tasks that lose", result)
    keep = paragraph(CHOSEN if kept.mode(result) == "best" else KEEP)
    out = (
        paragraph(f"{plural(tasks.left_out, 'task')} without a score are left out.", "note")
        if tasks.left_out
        else ""
    )
    if not tasks.losing:
        return head + paragraph(f"None: of {plural(len(tasks), 'task')}, none loses.") + keep + out
    lost = -tasks.gain[(tasks.gain < 0) & tasks.finite]
    digits = kind.decimals([*tasks.alone, *tasks.personal])
    verb = "loses" if tasks.losing == 1 else "lose"
    words = f"{count(tasks.losing)} of {plural(len(tasks), 'task')} {verb}"
    unit = "percentage points" if kind.percent else f"in {kind.words}"
    if len(lost) == 1:
        words += f", by {_size(kind, lost[0], digits)} {unit}"
    elif len(lost):
        half, most = float(np.median(lost)), float(lost.max())
        words += f", by {_size(kind, half, digits)} {unit} in the median"
        words += f" and by {_size(kind, most, digits)} at most"
    broken = tasks.losing - len(lost)
    ended = "ended" if broken == len(lost) == 1 else "of them ended"
    words += f"; {count(broken)} {ended} with a model that has no usable score" if broken else ""
    chance = "With few rows in a task, a small difference either way is mostly chance."
    shown = _rows(result, tasks, kind, tasks.losers(LOSERS), digits)
    more = f"The {LOSERS} greatest losses." if tasks.losing > LOSERS else ""
    said = paragraph(f"{words}. {chance}") + (paragraph(more, "note") if more else "")
    return head + said + table(_columns(result), shown) + keep + out


def _size(kind: Score, value: float, digits: int) -> str:
    return kind.text(float(value), digits, sign=True).lstrip("+")


def _columns(result: Mapping[str, Any], scores: tuple[str, ...] = ALONE_AND_NOT) -> list[object]:
    part = result["metrics"].get("part", "test")
    last = [Markup('<span class="said">ended with</span>')] if kept.ended_with(result) else []
    return ["task", f"{part} rows", *scores, *last]


def _kept(result: Mapping[str, Any], task: str) -> list[object]:
    return [kept.cell(result, task)] if kept.ended_with(result) else []


def _rows(
    result: Mapping[str, Any], tasks: Comparison, kind: Score, chosen: list[int], digits: int
) -> list[list[object]]:
    made: list[list[object]] = []
    for k in chosen:
        gain = tasks.gain[k]
        colour = "gain" if gain > 0 else "loss" if gain < 0 else ""
        difference = kind.text(gain, digits, sign=True)
        said = Markup(f'<span class="{colour}">{text(difference)}</span>')
        scores = [kind.text(values[k], digits) for values in (tasks.alone, tasks.personal)]
        name, rows = tasks.names[k], count(int(tasks.rows[k]))
        made.append([name, rows, *scores, said, *_kept(result, name)])
    return made


def _everyone(result: Mapping[str, Any], tasks: Comparison | None, kind: Score) -> str:
    per_task = result["metrics"]["per_task"]
    if not per_task:
        return ""
    if tasks is not None and len(tasks):
        digits = kind.decimals([*tasks.alone, *tasks.personal])
        first = [*range(len(tasks))][:LISTED]
        shown = table(_columns(result), _rows(result, tasks, kind, first, digits))
        total = len(tasks)
    else:
        total = len(per_task)
        digits = kind.decimals(task.get(kind.name) for task in per_task.values())
        rows = []
        for name, task in list(per_task.items())[:LISTED]:
            value = kind.text(task.get(kind.name), digits)
            rows.append([name, count(task.get("rows") or 0), value, *_kept(result, name)])
        shown = table(_columns(result, (kind.words,)), rows)
    scale = f"Scores are {kind.words}, {kind.better}."
    cut = f" The first {LISTED} of {count(total)}; all are in result.json."
    listed = paragraph(scale + (cut if total > LISTED else ""), "note") + shown
    label = f"{plural(min(total, LISTED), 'task')} with scores"
    return heading("All tasks", result) + details(label, listed)
