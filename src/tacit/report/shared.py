"""What all tasks share in a mixed model: coefficients with their errors, and the variances."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.box import covered
from tacit.report.page import drawing, paragraph, table
from tacit.report.plots import shorten
from tacit.report.svg import GAIN, GRID, INK, MUTED, WIDE, axes, figure
from tacit.report.words import MINUS, NOTHING, plural, sentence

DRAWN = 40
"""Coefficients that are drawn; more of them would be a wall."""
NORMAL = 1.959963984540054
"""Standard deviations to either side that hold 95 %."""
HEAD = ("", "estimate", "standard error", "of which privacy", "95 % interval", "shrunk")
VARIED = ("standard error", "95 % interval")
"""Of standard deviations."""
ABOUT = (
    "Estimates are not shrunk; standard errors hold both sampling and privacy noise. Predictions "
    "use the shrunk ones."
)
ENDS = (
    "A feature counts as at most {} units from its centre; values farther out are moved to there."
)
LACKING = (
    "No common unit was found for {}: the votes for it drowned in noise. Coefficients would mean "
    "something different in each task, so none is given. Public constants for these columns, typed "
    "into a schema (tacit data --write-schema), need no votes."
)
UNKNOWN = (
    "Where a dash stands, noise hides the coefficient: its standard error is infinite. What "
    "predictions use is under “shrunk”."
)


def section(result: Mapping[str, Any]) -> str:
    """Tables and a forest plot, for runs of a mixed model."""
    found = result.get("summary")
    if not found:
        return ""
    private = any(each["privacy_error"] for each in found["coefficients"])
    caption = (
        "Estimates with 95 % intervals, in spreads of the target for a spread of the column "
        "(or for its 0 turning 1). "
    ) + ("Strong: what sampling alone leaves open. Faint: what privacy noise adds." * private)
    return (
        "<h2>Shared coefficients</h2>"
        + covered(found["label"], result)
        + tables(found)
        + drawing(forest(found), "forest", caption, slim=True)
    )


def tables(found: Mapping[str, Any]) -> str:
    """The coefficients, then the variances."""
    rows = _rows(found["coefficients"])
    said = " ".join(filter(None, [f"In {found['units']}.", ABOUT, _ends(found), _missing(found)]))
    own = [[name, *values] for name, *values in _own(found)]
    head = ["vary between tasks", "standard deviation", *VARIED, *_correlated(found)]
    return (
        table(list(HEAD), rows)
        + paragraph(said, "note")
        + table(head, own)
        + table([], _facts(found))
    )


def as_text(found: Mapping[str, Any], *, promise: bool = True) -> str:
    """The same as plain text, with the guarantee's sentence unless that is said elsewhere."""
    count = f"{plural(found['tasks'], 'task')}, {plural(found['releases'], 'release')}"
    parts = [
        f"Mixed model of {count}; {found['units']}",
        *filter(None, [_coefficients(found), _ends(found), _missing(found)]),
        _aligned([["vary between tasks", "sd", *VARIED, *_correlated(found)], *_own(found)]),
        "\n".join(f"{name}: {value}" for name, value in _facts(found)),
        f"{sentence(found['label'])}." + (f"\n{found['guarantee']}" if promise else ""),
    ]
    return "\n\n".join(parts)


def _coefficients(found: Mapping[str, Any]) -> str:
    """Empty where none means the same in two tasks: a wall of dashes says less than the sentence
    below it."""
    known = any(each["error"] is not None for each in found["coefficients"])
    if found.get("without_unit") and not known:
        return ""
    return _aligned([list(HEAD), *_rows(found["coefficients"])])


def _ends(found: Mapping[str, Any]) -> str:
    """How far from the centre values count; empty where they all count as they are."""
    farthest = found.get("farthest")
    return ENDS.format(f"{farthest:g}") if farthest else ""


def _missing(found: Mapping[str, Any]) -> str:
    """Why there are no intervals; empty if all are there."""
    lacking = found.get("without_unit")
    unknown = any(each["error"] is None for each in found["coefficients"])
    return LACKING.format(", ".join(lacking)) if lacking else UNKNOWN * unknown


def _aligned(rows: Sequence[Sequence[object]]) -> str:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [str.ljust, *(str.rjust for _ in widths[1:])]
    lines = ([a(c, w) for a, c, w in zip(aligned, row, widths, strict=True)] for row in cells)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _rows(coefficients: Sequence[Mapping[str, Any]]) -> list[list[object]]:
    rows = []
    for each in coefficients:
        error, low, high = each["error"], each["low"], each["high"]
        digits = decimals(error)
        known = error is not None
        span = f"{shown(low, digits)} to {shown(high, digits)}" if known else NOTHING
        errors = [shown(each[key], digits) for key in ("error", "privacy_error")]
        estimate = shown(each["estimate"], digits)
        shrunk = shown(each["shrunk"], digits if known else None)
        rows.append([each["name"], estimate, *(errors if known else ("∞", "∞")), span, shrunk])
    return rows


def _correlated(found: Mapping[str, Any]) -> list[str]:
    names = found["own"]["names"]
    return [f"correlation with {name}" for name in names[:-1]]


def _own(found: Mapping[str, Any]) -> list[list[str]]:
    """Standard deviations with errors, correlations below the diagonal, and the residual."""
    own, residual = found["own"], found["residual_deviation"]
    places = range(len(own["names"]) - 1)
    rows = []
    for k, name in enumerate(own["names"]):
        correlated = (shown(own["correlations"][k][j], 2) if j < k else "" for j in places)
        rows.append([name, shown(own["deviations"][k]), *_varied(own["errors"][k]), *correlated])
    if residual is not None:
        errors = _varied(found["residual_error"])
        rows.append(["residual", shown(residual), *errors, *("" for _ in places)])
    return rows


def _varied(known: Mapping[str, Any]) -> list[str]:
    """The standard error of a standard deviation, and its interval."""
    low, high, digits = known["low"], known["high"], decimals(known["error"] or known["high"])
    span = NOTHING if high is None else f"{shown(low, digits)} to {shown(high, digits)}"
    return [shown(known["error"], digits), span]


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("intraclass correlation, at the centre of the columns", found["icc"])]
    for name, words in (("marginal", "shared coefficients"), ("conditional", "with own effects")):
        facts.append((f"{name} R² ({words}), {found['r2_label']}", found[f"{name}_r2"]))
    return [(name, shown(value, 2)) for name, value in facts]


def decimals(error: float | None) -> int | None:
    """So many that the error has two digits."""
    return None if not error else min(9, max(0, 1 - math.floor(math.log10(error))))


def shown(value: float | None, digits: int | None = None) -> str:
    """Plain where it can be read; powers of ten for what is far from 1."""
    if value is None:
        return NOTHING
    size = abs(value)
    if digits is None:
        digits = 0 if not value else min(9, max(0, 3 - math.floor(math.log10(size))))
    made = f"{value:.{digits}f}" if size < 1e7 and (digits < 9 or not value) else f"{value:.3e}"
    return made.replace("-", MINUS)


def forest(found: Mapping[str, Any]) -> Figure | None:
    """A line for each coefficient, all in common units: those of the table differ too much."""
    drawn = found["coefficients"][1 : DRAWN + 1]
    if all(each["error"] is None for each in drawn):
        return None
    fig = figure(WIDE, 0.9 + 0.3 * len(drawn))
    ax = axes(fig)
    limit, across = _limit(drawn), ax.get_yaxis_transform()
    for place, each in enumerate(drawn):
        if each["error"] is None:
            ax.text(0.01, place, "not known", transform=across, color=MUTED, size=9, va="center")
            continue
        middle, whole = each["estimate"] * each["spread"], _reach(each)
        part = each["sampling_error"] / max(each["error"], 1e-300)
        for reach, alpha in ((whole, 0.35), (whole * part, 1.0)):
            _draw_interval(ax, place, middle, reach, linewidth=6, alpha=alpha)
        ax.plot([middle], [place], "|", color=INK, markersize=11, markeredgewidth=2)
        for side, arrow in ((-1, "<"), (1, ">")):
            if side * middle + whole > limit:  # it goes on beyond the edge
                ax.plot([side * limit], [place], arrow, color=GAIN, markersize=6, clip_on=False)
    ax.axvline(0, color=INK, linewidth=1)
    ax.set_xlim(-limit, limit)
    name_rows(ax, [each["name"] for each in drawn])
    ax.set_xlabel("coefficient, in spreads")
    return fig


def _draw_interval(ax: Axes, place: int, middle: float, reach: float, **style: Any) -> None:
    ends = [middle - reach, middle + reach]
    ax.plot(ends, [place, place], color=GAIN, solid_capstyle="butt", **style)


def _limit(drawn: Sequence[Mapping[str, Any]]) -> float:
    """One coefficient that is hardly known must not squeeze all others."""
    ends = [
        abs(each["estimate"] * each["spread"]) + _reach(each)
        for each in drawn
        if each["error"] is not None
    ]
    return 1.05 * min(max(ends), 3 * statistics.median_low(ends)) or 1.0


def _reach(each: Mapping[str, Any]) -> float:
    return (each["high"] - each["low"]) / 2 * each["spread"]


def caterpillar(found: Mapping[str, Any], tasks: str = "tasks") -> Figure:
    """One task's own effects, each over how much it varies between tasks: the band holds 95 %."""
    fig = figure(WIDE, 0.95 + 0.36 * len(found["names"]))
    ax = axes(fig)
    ax.axvspan(-NORMAL, NORMAL, color=GRID, alpha=0.7, linewidth=0)
    ax.axvline(0, color=MUTED, linewidth=1)
    most = 1.2 * NORMAL
    sides = (found[key] for key in ("effects", "errors", "deviations"))
    for place, (effect, error, deviation) in enumerate(zip(*sides, strict=True)):
        unit = max(deviation, 1e-300)
        middle, reach = effect / unit, NORMAL * error / unit
        most = max(most, abs(middle) + reach)
        _draw_interval(ax, place, middle, reach, linewidth=3)
        ax.plot([middle], [place], "o", color=INK, markersize=6)
    ax.set_xlim(-1.05 * most, 1.05 * most)
    name_rows(ax, found["names"])
    ax.grid(False, axis="x")
    ax.set_xlabel(f"own effect, in standard deviations between {tasks}")
    return fig


def effects_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Name, effect, its standard deviation, and how much it varies between tasks."""
    sides = (found[key] for key in ("names", "effects", "errors", "deviations"))
    return [
        [name, shown(effect, decimals(error)), shown(error, decimals(error)), shown(deviation)]
        for name, effect, error, deviation in zip(*sides, strict=True)
    ]


def name_rows(ax: Any, names: Sequence[str]) -> None:
    """Names down the side, the first on top."""
    ax.set_yticks(range(len(names)), [shorten(name) for name in names])
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)  # a name with a dollar sign is a name, not a formula
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelcolor=INK, labelsize=10)
    ax.grid(False, axis="y")
