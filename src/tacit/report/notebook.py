"""What a notebook shows of a run and of what belongs to it, in the look of the report.

A notebook has no policy that would stop a script, so here everything rests on escaping: every
function takes plain values, and makes HTML of them with `report.page` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from tacit.errors import TacitError
from tacit.report import over_time, plots, settings, shapes, shared, verdict
from tacit.report.box import guarantee_box, short_box, uncovered
from tacit.report.html import headline, subtitle, title, write_html, write_summary
from tacit.report.page import definitions, details, embedded, paragraph, table, text
from tacit.report.scores import against_alone, entries, score, task_score
from tacit.report.words import NOT_COVERED, label, plain, sentence

__all__ = [
    "Plots",
    "federation",
    "guarantee",
    "metrics",
    "plan",
    "run",
    "write_html",
    "write_summary",
]
FEW = 10
"""Tasks whose scores are shown; all of them are in the data frame."""
WHOLE = "run.report('report.html') writes all of it as one page; run.plot draws single figures."
FRAME = "run.metrics.to_frame() has all of them."


def run(result: Mapping[str, Any]) -> str:
    """A run: whether it helped, what it promises, what the tasks got."""
    tasks = against_alone(result)
    return embedded(
        f"<h3>{text(title(result))}</h3>"
        + paragraph(subtitle(result), "sub")
        + verdict.section(result.get("verdict"))
        + short_box(result["guarantee"])
        + headline(result, tasks)
        + paragraph(WHOLE, "note")
    )


def guarantee(found: Mapping[str, Any]) -> str:
    """The box that a privacy officer can sign."""
    return embedded(guarantee_box(found))


def metrics(found: Mapping[str, Any]) -> str:
    """Overall scores beside those of the baselines, then the first tasks."""
    result = {"metrics": found, "federation": {"kind": found.get("kind")}}
    columns = [(words, overall) for words, overall, _ in entries(result, "personal")]
    lines = [(name, score(result, name, True)) for name in found["overall"]]
    rows = [
        [kind.words, *(kind.text(overall.get(name)) for _, overall in columns)]
        for name, kind in lines
    ]
    kind, total = task_score(result), len(found["per_task"])
    few = list(found["per_task"].items())[:FEW]
    each = [[name, plain(task.get("rows")), kind.text(task.get(kind.name))] for name, task in few]
    part = found.get("part", "test")
    listed = table(["task", f"{part} rows", kind.words], each)
    more = f"The first {FEW} of {total} tasks. " if total > FEW else ""
    return embedded(
        uncovered(result)
        + table(["", *(name for name, _ in columns)], rows)
        + details("Task by task", listed + paragraph(more + FRAME, "note"))
    )


def federation(found: Mapping[str, Any]) -> str:
    """Data that were loaded; what was counted over all tasks says so."""
    facts = settings.about_data(found, NOT_COVERED)
    for name, empty in (("assumptions", "None stated"), ("leaks", "None")):
        said = [sentence(each) for each in found[name]]
        facts.append((name, said or empty, ""))
    return embedded("<h3>Federation</h3>" + definitions(facts))


def plan(found: Mapping[str, Any]) -> str:
    """All settings of a run; those that were left at their default stand back."""
    chosen, usual = ([(k, plain(v), "") for k, v in found[side].items()] for side in SIDES)
    return embedded(
        "<h3>Plan of a run</h3>"
        + (definitions(chosen) if chosen else paragraph("Everything is as usual."))
        + details("Settings left as they are", definitions(usual))
    )


SIDES = ("chosen", "usual")


class Plots:
    """The figures of the report, one at a time; each call draws anew, for you to change and save.

    What was computed over several tasks without noise says so in the figure.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        self._result = result

    def curve(self) -> Figure:
        """How the score went over rounds, before the last step, and the ε spent by then."""
        drawn = plots.learning_curve(self._result)
        return self._marked(drawn, "nothing was measured while it ran")

    def tasks(self) -> Figure:
        """Each task alone and with its personal model."""
        drawn = self._compared(plots.task_by_task)
        return self._marked(drawn, "it was not compared with training alone: use baselines=True")

    def gains(self) -> Figure:
        """How the gains over training alone are spread."""
        drawn = self._compared(plots.gains)
        return self._marked(drawn, "it was not compared with training alone: use baselines=True")

    def coefficients(self) -> Figure:
        """Shared coefficients of a mixed model with their intervals: covered by the guarantee."""
        found = self._result.get("summary")
        return _drawn(found and shared.forest(found), "only mixed models have coefficients")

    def shapes(self, *, own: bool = False) -> Figure:
        """The shapes of an additive model: the shared ones, or beside them tasks' `own`."""
        found, lacking = self._result.get("shapes"), "only runs of additive have shapes"
        drawn = found and shapes.draw(shapes.largest(found["columns"]), found["outcome"], own=own)
        return self._marked(drawn, lacking) if own else _drawn(drawn, lacking)

    def over_time(self) -> Figure:
        """What became of rows over time, beside what was predicted."""
        found = self._result["metrics"].get("curves")
        drawn = over_time.curves(found) if found and found["per_task"] else None
        return self._marked(drawn, "only outcomes over time (survival) have such curves")

    def _compared(self, draw: Any) -> Figure | None:
        tasks = against_alone(self._result)
        return None if tasks is None else draw(tasks, task_score(self._result))

    def _marked(self, drawn: Figure | None, lacking: str) -> Figure:
        """The figure with its label: one that is copied out of a notebook keeps it."""
        fig = _drawn(drawn, lacking)
        plots.mark(fig, label(self._result))
        return fig

    def __repr__(self) -> str:
        return f"Plots({', '.join(f'{name}()' for name in _names(type(self)))})"


def _names(kind: type) -> Sequence[str]:
    return [name for name, found in vars(kind).items() if callable(found) and name[0] != "_"]


def _drawn(fig: Figure | None, lacking: str) -> Figure:
    if not fig:
        raise TacitError(f"this run has no such figure: {lacking}")
    return fig
