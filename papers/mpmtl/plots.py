"""The plots of MP-MTL's figures, in the house style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from papers.common.drawing import stroke, with_legend, with_title
from tacit.report.svg import GAIN, INK, LOSS, MUTED, SERIES, SPENT, axes, figure, quiet

NAMES = {
    "printed-lr": "MP-MTL low rank, as printed (not private)",
    "printed-gs": "MP-MTL group sparse, as printed (not private)",
    "units-lr": "MP-MTL low rank, Wishart with s = K² (not private)",
    "units-gs": "MP-MTL group sparse, Wishart with s = K² (not private)",
    "valid-lr": "MP-MTL low rank, valid mechanism",
    "valid-gs": "MP-MTL group sparse, valid mechanism",
    "ours": "ours (SharedPrior)",
    "ours-half": "ours, default share for the mean",
    "dp-mtrl": "DP-MTRL",
    "dp-aggr": "DP-AGGR",
    "ridge": "STL, ridge",
    "lasso": "STL, lasso",
    "stl": "STL, the better by cross-validation",
    "mtl": "MTL, not private",
    "trace-norm": "trace norm",
    "group-sparse": "ℓ2,1",
    "relationship": "MTRL",
    "mean-regularised": "mean-regularised",
}
STYLES: dict[str, tuple[str, str, Any]] = {
    "printed-lr": (LOSS, "s", "--"),
    "printed-gs": (SERIES[4], "D", "--"),
    "units-lr": (LOSS, "v", ":"),
    "units-gs": (SERIES[4], "v", ":"),
    "valid-lr": (SERIES[2], "^", "-"),
    "valid-gs": (SPENT, "P", "-"),
    "ours": (GAIN, "o", "-"),
    "ours-half": (SERIES[5], "o", "--"),
    "dp-mtrl": (SERIES[6], "X", "-"),
    "dp-aggr": (MUTED, "X", ":"),
}
LINES = {"ridge": (MUTED, (0, (1, 1.5))), "stl": (MUTED, (0, (1, 1.5))), "mtl": (INK, (0, (5, 2)))}
WIDE = 2.0
"""nMSE is drawn on a log axis where the largest is so many times the smallest."""
Curves = Mapping[str, Sequence[tuple[float, float, float]]]
"""(x, mean, sd) by method."""
Panel = tuple[str, Curves, Mapping[str, float]]
"""Title, curves, and horizontal lines."""


def against(
    panels: Sequence[Panel],
    title: str,
    *,
    x: str,
    y: Sequence[str] | str,
    log: bool = True,
) -> Figure:
    """Curves side by side over a log axis; nMSE on a log axis too where it spans much."""
    fig = figure(4.4 * len(panels) + 0.4, 5.2)
    seen: dict[str, Line2D] = {}
    for column, (name, curves, levels) in enumerate(panels):
        ax = axes(fig, 1, len(panels), column + 1)
        for method, points in curves.items():
            colour, marker, style = STYLES[method]
            xs, means, sds = (np.array(v) for v in zip(*points, strict=True))
            nudge = 1 + 0.02 * (list(STYLES).index(method) - 4) if log else 1
            line = stroke(colour, marker, style)
            ax.errorbar(xs * nudge, means, sds, linewidth=1.5, capsize=2, elinewidth=0.9, **line)
            seen[method] = Line2D([], [], label=NAMES[method], **line)
        for method, level in levels.items():
            colour, style = LINES[method]
            ax.axhline(level, color=colour, linewidth=1.4, linestyle=style)
            seen[method] = Line2D([], [], color=colour, linestyle=style, label=NAMES[method])
        if log:
            ax.set_xscale("log")
        places = sorted({point[0] for points in curves.values() for point in points})
        ax.set_xticks(places, [f"{place:g}" for place in places])
        ax.xaxis.set_minor_locator(NullLocator())
        own = y if isinstance(y, str) else y[column]
        middles = [point[1] for points in curves.values() for point in points]
        if "nMSE" in own and max(middles) > WIDE * min(middles):
            ax.set_yscale("log")
            # A deviation as long as its mean would reach down to nothing.
            ax.set_ylim(bottom=max(ax.get_ylim()[0], 0.8 * min(middles)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            ax.yaxis.set_minor_formatter(FuncFormatter(_few))
        ax.set_xlabel(x)
        ax.set_ylabel(own)
        ax.set_title(name, size=10, color=INK, loc="left")
    order = [name for name in (*STYLES, *LINES) if name in seen]
    return with_title(with_legend(fig, [seen[name] for name in order], 2), title)


def _few(value: float, _: int) -> str:
    """Labels of minor ticks: 2 and 5 of each power of ten."""
    digit = round(value / 10 ** np.floor(np.log10(value)), 6)
    return f"{value:g}" if digit in (2, 5) else ""


def heat(
    rows: Sequence[Sequence[tuple[str, np.ndarray]]],
    title: str,
    labels: Sequence[tuple[str, str]],
    *,
    size: tuple[float, float],
) -> Figure:
    """Matrices side by side, one colour scale for each row of panels."""
    fig = figure(*size)
    wide = max(map(len, rows))
    for number, panels in enumerate(rows):
        most = max(float(np.quantile(np.abs(matrix), 0.995)) for _, matrix in panels[:1]) or 1.0
        image = None
        drawn = []
        for column, (name, matrix) in enumerate(panels):
            ax = fig.add_subplot(len(rows), wide, number * wide + column + 1)
            image = ax.imshow(
                matrix, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest"
            )
            ax.grid(False)
            quiet(ax)
            ax.set_title(name, size=9.5, color=INK, loc="left")
            across, down = labels[number]
            ax.set_xlabel(across)
            if column == 0:
                ax.set_ylabel(down)
            drawn.append(ax)
        if image is not None:
            fig.colorbar(image, ax=drawn, shrink=0.85, pad=0.01, aspect=18).ax.tick_params(
                labelsize=8, colors=MUTED
            )
    return with_title(fig, title)


def steps(
    panels: Sequence[tuple[str, Curves]],
    title: str,
    x: str,
    y: str,
    styles: Mapping[str, tuple[str, str, str]],
    levels: Mapping[str, tuple[float, str]] | None = None,
) -> Figure:
    """Plain curves with a band of one standard deviation."""
    wide = min(2, len(panels))
    high = -(-len(panels) // wide)
    fig = figure(4.4 * wide + 0.4, 3.4 * high + 1.2)
    for column, (name, curves) in enumerate(panels):
        ax = axes(fig, high, wide, column + 1)
        for label, points in curves.items():
            colour, marker, style = styles[label]
            xs, means, sds = (np.array(v) for v in zip(*points, strict=True))
            ax.plot(xs, means, linewidth=1.6, label=label, **stroke(colour, marker, style))
            ax.fill_between(xs, means - sds, means + sds, color=colour, alpha=0.12, linewidth=0)
        for label, (level, colour) in (levels or {}).items():
            ax.axhline(level, color=colour, linewidth=1.3, linestyle=(0, (1, 1.5)), label=label)
        ax.set_xlabel(x)
        if column % wide == 0:
            ax.set_ylabel(y)
        ax.set_title(name, size=10, color=INK, loc="left")
    handles, _ = fig.axes[0].get_legend_handles_labels()
    return with_title(with_legend(fig, handles, 2), title)
