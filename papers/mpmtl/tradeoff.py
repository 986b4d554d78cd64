"""Figures 6, 7 and 8: privacy against accuracy, and the number of tasks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from papers.common.request import PageRequest
from papers.common.write import markdown_table, write_csv, write_figure
from papers.mpmtl import trials
from papers.mpmtl.compare import EPSILONS, NOT_PRIVATE, SEARCHES, MPMTLGrid
from papers.mpmtl.plots import NAMES, Curves, against
from papers.mpmtl.published import BARS, says
from papers.mpmtl.remarks import BELOW
from papers.mpmtl.trials import Made, MPMTLTrial

COLUMNS = (
    "set",
    "method",
    "epsilon",
    "repetitions",
    "mean",
    "sd",
    "minus_stl",
    "minus_stl_sd",
    "minus_mtl",
    "minus_mtl_sd",
)
FIRST, STEPS, AT = 20, (20, 40, 80, 160, 320), 1.0
"""Figure 7: the tasks that are measured, how many take part, and ε."""
IN_FIGURE_7 = ("valid-lr", "ours")
PRINTED = ("printed-lr", "printed-gs", "units-lr", "units-gs")
VALID = ("valid-lr", "valid-gs")
OURS = ("ours", "ours-half")
ROW_LEVEL = ("dp-mtrl", "dp-aggr")
AT_MOST = {"school-fixed": 10, "lsoa2": 3}
"""Repetitions: there are ten fixed splits, and 293 weights take their time."""
FEWER = {
    "school-fixed": ("ridge", "mean-regularised", "trace-norm"),
    "lsoa2": ("ridge", "mean-regularised", "trace-norm"),
}
"""Methods without privacy, where not all are run."""
TITLES = {
    "low-rank": "Synthetic, low rank",
    "group-sparse": "Synthetic, group sparse",
    "school": "School, 30 % for training",
    "school-fixed": "School, ten fixed splits (75 %)",
    "lsoa2": "LSOA II, 30 % for training",
}


@dataclass
class MPMTLContext:
    """Where an experiment runs, and how large."""

    grid: MPMTLGrid
    request: PageRequest
    sets: tuple[str, ...]
    tasks: int = 320
    epsilons: tuple[float, ...] = EPSILONS
    methods: tuple[str, ...] | None = None
    steps: tuple[int, ...] = STEPS

    @property
    def out(self) -> Path:
        return self.request.out

    @property
    def repetitions(self) -> int:
        return self.request.seeds

    @property
    def say(self) -> Callable[[str], None]:
        return self.request.say

    def trial(self, key: str, repetition: int) -> MPMTLTrial:
        if key in trials.GENERATORS:
            return trials.made_up(cast(Made, key), repetition, self.tasks)
        folder = self.request.data or Path()
        if key == "school":
            return trials.school(folder, repetition)
        if key == "school-fixed":
            return trials.school(folder, repetition, split=repetition + 1)
        return trials.lsoa2(folder, repetition)

    def choosing(self, key: str) -> Sequence[MPMTLTrial]:
        """Data sets for the choice of settings; none where each trial looks inside itself."""
        if key not in trials.GENERATORS:
            return ()
        return trials.for_choosing(cast(Made, key), self.tasks)

    def wanted(self, key: str) -> list[str]:
        return [m for m in SEARCHES[key] if self.methods is None or m in self.methods]


Scores = dict[tuple[str, float], list[float]]
"""By method and ε, in the order of the repetitions."""


FRESH = trials.CHOOSING + trials.CHOOSING_SETS
"""Figure 6 is on data sets from this seed on: ours was developed on earlier ones of the generator,
and the settings of the others are chosen on those just before."""


def collect(context: MPMTLContext, key: str, repetitions: int) -> Scores:
    """Every method and ε on every repetition of a set."""
    found: Scores = {}
    sets = context.choosing(key)
    for repetition in range(repetitions):
        first = FRESH if key in trials.GENERATORS else 0
        trial = context.trial(key, first + repetition)
        for method in context.wanted(key):
            for epsilon in context.epsilons:
                score = context.grid.private(method, epsilon, trial, sets)
                found.setdefault((method, epsilon), []).append(score)
        for method, score in context.grid.not_private(trial, FEWER.get(key, NOT_PRIVATE)).items():
            epsilon = 0.0 if method in ("ridge", "lasso", "stl") else math.inf
            found.setdefault((method, epsilon), []).append(score)
        context.say(f"{key}: {repetition + 1} of {repetitions}")
    return found


def alone(key: str) -> str:
    """What the paper calls STL: ridge on made-up data, the better of the two on real data."""
    return "ridge" if key in trials.GENERATORS else "stl"


def rows_of(key: str, scores: Scores) -> list[tuple]:
    """Lines of the CSV, with paired differences."""
    stl, mtl = scores[alone(key), 0.0], scores["mtl", math.inf]
    lines = []
    for (method, epsilon), values in scores.items():
        ends = [number for other in (stl, mtl) for number in stats(_minus(values, other))]
        lines.append((key, method, epsilon, len(values), *stats(values), *ends))
    return [tuple(round(v, 5) if isinstance(v, float) else v for v in line) for line in lines]


def _minus(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(values, others, strict=True)]


def stats(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def show(values: Sequence[float] | None, sign: bool = False) -> str:
    if values is None:
        return "–"
    mean, sd = stats(values)
    digits = 4 if abs(mean) < 10 else 1
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return f"{text} ± {sd:.{digits}f}" if len(values) > 1 else text


def tables(key: str, scores: Scores, epsilons: Sequence[float]) -> str:
    """Published, as printed, valid, ours; then what is not private; then paired differences."""
    groups = [[m for m in group if (m, epsilons[0]) in scores] for group in (PRINTED, VALID, OURS)]
    columns = [m for group in groups for m in group]
    head = ["ε", "published", *(_head(m) for m in columns)]
    drawn = says(key, "valid-lr")
    body = [[f"{e:g}", drawn, *(show(scores.get((m, e))) for m in columns)] for e in epsilons]
    parts = [markdown_table(head, body), ""]
    levels = [m for m, e in scores if not 0 < e < math.inf]
    body = [
        [NAMES[m], says(key, m), show(scores[m, e])]
        for m, e in scores
        if m in levels and not 0 < e < math.inf
    ]
    parts += ["No noise (STL: nothing is shared; the others are not private):", ""]
    parts += [markdown_table(("", "published", "here"), body), ""]
    low = [m for m in ROW_LEVEL if (m, epsilons[0]) in scores]
    if low:
        body = [[f"{e:g}", *(show(scores.get((m, e))) for m in low)] for e in epsilons]
        said = [f"{NAMES[m]} (published: {says(key, m)})" for m in low]
        parts += ["Data-level privacy turned into task-level privacy:", ""]
        parts += [markdown_table(("ε", *said), body), ""]
    name, single = alone(key), NAMES[alone(key)].split(", the better")[0]
    stl, mtl = scores[name, 0.0], scores["mtl", math.inf]
    kept = [m for m in columns if m in (*VALID, *OURS)]
    if kept:
        head = ["ε", *(f"{_head(m)} − {other}" for m in kept for other in (single, "MTL"))]
        body = [
            [
                f"{e:g}",
                *(show(_minus(scores[m, e], other), True) for m in kept for other in (stl, mtl)),
            ]
            for e in epsilons
        ]
        parts += ["Paired differences (the same data set and split; mean ± sd):", ""]
        parts += [markdown_table(head, body), ""]
    return "\n".join(parts)


def _head(method: str) -> str:
    return NAMES[method].replace("MP-MTL ", "")


def bars(key: str, scores: Scores) -> list[tuple[str, ...]]:
    """Rows: what, aimed at, obtained, whether it holds."""
    lines = []
    for (wanted, method, epsilon), most in BARS.items():
        if wanted == key and (method, epsilon) in scores:
            mean = statistics.mean(scores[method, epsilon])
            what = f"{TITLES[key]}: {NAMES[method]}"
            what += f", ε = {epsilon:g}" if math.isfinite(epsilon) else ", not private"
            lines.append((what, f"≤ {most:g}", f"{mean:.4f}", "yes" if mean <= most else "**no**"))
    ours = sorted(e for m, e in scores if m == "ours")
    if ours and key != "lsoa2":
        stl = statistics.mean(scores[alone(key), 0.0])
        worst = max(statistics.mean(scores["ours", e]) / stl - 1 for e in ours)
        what = f"{TITLES[key]}: ours against {NAMES[alone(key)]}, worst of all ε"
        held = "yes" if worst <= 0.01 else "**no**"
        lines.append((what, "≤ +1 %", f"{100 * worst:+.1f} %", held))
    return lines


def panel(key: str, scores: Scores, leave: Sequence[str] = ROW_LEVEL) -> tuple[str, Curves, dict]:
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for (method, epsilon), values in scores.items():
        if 0 < epsilon < math.inf and method not in leave:
            curves.setdefault(method, []).append((epsilon, *stats(values)))
    levels = {
        alone(key): statistics.mean(scores[alone(key), 0.0]),
        "mtl": statistics.mean(scores["mtl", math.inf]),
    }
    return TITLES[key], curves, levels


def figure6(context: MPMTLContext) -> str:
    return _against_epsilon(
        context,
        "figure6",
        "Figure 6: privacy and accuracy on synthetic data",
        leave=(*ROW_LEVEL, "units-lr", "units-gs"),
    )


def figure8(context: MPMTLContext) -> str:
    return _against_epsilon(context, "figure8", "Figure 8: privacy and accuracy on real data")


def _against_epsilon(
    context: MPMTLContext, stem: str, title: str, leave: Sequence[str] = ROW_LEVEL
) -> str:
    parts, panels, lines, labels = [], [], [], []
    for key in context.sets:
        count = min(context.repetitions, AT_MOST.get(key, context.repetitions))
        scores = collect(context, key, count)
        lines += rows_of(key, scores)
        parts += [
            f"## {TITLES[key]}",
            "",
            tables(key, scores, context.epsilons),
            *BELOW.get(key, ()),
            "",
        ]
        if key != "school-fixed":
            panels.append(panel(key, scores, leave))
            labels.append("mean AUC over tasks" if key == "lsoa2" else "nMSE, all tasks pooled")
    write_csv(context.out / f"{stem}.csv", COLUMNS, lines)
    write_figure(context.out, stem, against(panels, title, x="ε (log scale)", y=labels))
    return "\n".join(parts)


def figure7(context: MPMTLContext) -> str:
    """The first tasks' nMSE as more tasks take part."""
    sets = context.choosing("low-rank")
    found: dict[tuple[str, int], list[float]] = {}
    levels: dict[str, list[float]] = {"ridge": [], "mtl": []}
    steps = [m for m in context.steps if m <= context.tasks]
    first = min(FIRST, steps[0])
    whole = context.trial("low-rank", 0)
    chosen = {m: context.grid.settings(m, AT, whole, sets) for m in IN_FIGURE_7}
    for repetition in range(context.repetitions):
        trial = context.trial("low-rank", repetition)
        for method in IN_FIGURE_7:
            for tasks in steps:
                score = context.grid.private(
                    method, AT, trial.few(tasks), first=first, settings=chosen[method]
                )
                found.setdefault((method, tasks), []).append(score)
        for name, solver in (("ridge", "ridge"), ("mtl", "trace-norm")):
            levels[name].append(context.grid.classical_first(trial, solver, first))
        context.say(f"figure 7: {repetition + 1} of {context.repetitions}")
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for (method, tasks), values in found.items():
        curves.setdefault(method, []).append((float(tasks), *stats(values)))
    lines = [(m, t, len(v), *(round(s, 5) for s in stats(v))) for (m, t), v in found.items()]
    lines += [
        (m, context.tasks, len(v), *(round(s, 5) for s in stats(v))) for m, v in levels.items()
    ]
    write_csv(context.out / "figure7.csv", ("method", "tasks", "repetitions", "mean", "sd"), lines)
    means = {name: statistics.mean(values) for name, values in levels.items()}
    fig = against(
        [(f"nMSE of the first {first} tasks, ε = {AT:g}", curves, means)],
        "Figure 7: more tasks, better models",
        x="tasks that take part (log scale)",
        y=f"nMSE of the first {first} tasks",
    )
    write_figure(context.out, "figure7", fig)
    head = ("tasks", "published", *(NAMES[m] for m in IN_FIGURE_7))
    drawn = says("low-rank", "valid-lr")
    body = [[f"{t}", drawn, *(show(found[m, t]) for m in IN_FIGURE_7)] for t in steps]
    first_line = (
        f"STL (ridge) has {show(levels['ridge'])} on the same {first} tasks, the trace norm with "
        f"all {context.tasks} tasks and without privacy {show(levels['mtl'])}."
    )
    return "\n".join([markdown_table(head, body), "", first_line, "", *BELOW.get("figure7", ())])
