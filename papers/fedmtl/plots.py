"""The plots of FedMTL's table and figures, in the house style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from papers.common.drawing import legend_key, stroke, with_legend, with_title
from papers.fedmtl.contenders import CONTENDERS
from papers.fedmtl.context import SeedScore
from papers.fedmtl.sets import FedMTLPlan
from tacit.report.svg import GAIN, INK, LOSS, MARKERS, MUTED, SERIES, SPENT, axes, figure, quiet

GREEN, OCHRE, SKY, GREY = SERIES[2], SERIES[4], SERIES[5], SERIES[6]
DOTS = (0, (1, 1.5))
HEADS = {"T1": "#56b4e9", "T2": "#e69f00", "T3": "#cc79a7", "T4": "#4d4d4d"}
"""Colours of figure 2 (a), none of them a group's."""
Style = tuple[str, str, Any]
"""Colour, marker, line."""
STYLES: dict[str, Style] = {
    "fedmtl": (GAIN, "o", "--"),
    "fedmtl-ours": (GAIN, "o", "-"),
    "fedmtl-g": (SKY, "P", "-"),
    "fedavg": (LOSS, "s", "-"),
    "fedavg-position": (LOSS, "s", "--"),
    "fedprox": (OCHRE, "^", "-"),
    "fedprox-position": (OCHRE, "^", "--"),
    "pfedme": (GREY, "v", "-"),
    "pfedme-position": (GREY, "v", "--"),
    "mocha": (GREEN, "D", "-"),
    "fedfomo": (SPENT, "X", "-"),
    "fedamp": (INK, "*", "-"),
    "ditto": (GREEN, "<", DOTS),
    "local": (MUTED, "", DOTS),
}
"""A family of methods has one colour; dashed is as published."""
Panels = Sequence[
    tuple[FedMTLPlan, Mapping[str, SeedScore | None], Mapping[str, tuple[float, ...] | None]]
]
Curves = Mapping[str, Sequence[tuple[int, float, float]]]


def ablation_styles(names: Iterable[str]) -> dict[str, Style]:
    colours = (GAIN, LOSS, GREEN, SPENT, OCHRE, SKY, GREY, INK)
    return {
        name: (colour, marker, "-" if k == 0 else (0, (5, 1.5)))
        for k, (name, colour, marker) in enumerate(
            zip(names, colours, (*MARKERS, "*"), strict=True)
        )
    }


def dots(panels: Panels, title: str) -> Figure:
    """A row for each method: ours as a dot with its sd, the paper's as a hollow diamond."""
    names = [name for name in CONTENDERS if any(ours.get(name) for _, ours, _ in panels)]
    fig = figure(2.2 + 3.1 * len(panels), 1.5 + 0.3 * len(names))
    first: Axes | None = None
    diamond: Any = {"marker": "D", "markerfacecolor": "white"}
    for column, (plan, ours, theirs) in enumerate(panels):
        ax = axes(fig, 1, len(panels), column + 1)
        for row, name in enumerate(names):
            score, known = ours.get(name), theirs.get(name)
            if score is not None:
                colour = STYLES[name][0]
                dot = {"color": colour, "marker": "o", "markersize": 5.5, "linestyle": ""}
                spread = {"xerr": 100 * score.sd, "capsize": 2.5, "elinewidth": 1.2}
                ax.errorbar(100 * score.mean, row, **spread, **dot)
            if known is not None:
                ax.plot(known[0], row, color=MUTED, linestyle="", markersize=5, **diamond)
        ax.set_ylim(len(names) - 0.5, -0.5)
        labels = [CONTENDERS[name].title for name in names] if first is None else []
        ax.set_yticks(range(len(names)), labels or [""] * len(names))
        ax.tick_params(axis="y", labelcolor=INK)
        ax.set_xlabel("test mIoU, %" if plan.scenes else "test accuracy, %")
        ax.set_title(_split(plan.title), size=9.5, color=INK, loc="left")
        first = first or ax
    handles = [
        legend_key(INK, "o", "ours, on a stand-in (± sd)"),
        legend_key(MUTED, label="published, on the paper's data", **diamond),
    ]
    return with_legend(with_title(fig, title), handles, 2)


def _split(title: str) -> str:
    """In two lines: panels are narrow."""
    return title.replace(" (", "\n(", 1)


def thresholds(curves: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> Figure:
    """(Z, test, sd, peers) of each set: accuracy on the left, with how many it mixes right."""
    fig = figure(8.6, 3.7)
    left, right = axes(fig, 1, 2, 1), axes(fig, 1, 2, 2)
    styles = {"lfwa": (GAIN, "o", "-"), "facea": (LOSS, "s", "--")}
    handles = []
    for key, points in curves.items():
        colour, marker, line = styles[key]
        z, test, sd, peers = (np.array(values) for values in zip(*points, strict=True))
        given = {"linewidth": 1.6, **stroke(colour, marker, line, 5)}
        left.errorbar(z, 100 * test, 100 * sd, capsize=2.5, elinewidth=1, **given)
        right.plot(z, peers, **given)
        handles.append(Line2D([], [], label=f"{key} (stand-in)", **given))
    left.set_ylabel("test accuracy, % (± sd)")
    right.set_ylabel("peers in the last round")
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set_xlabel("threshold Z, the same in all rounds")
    return with_legend(with_title(fig, "Whom FedMTL mixes with, and what it gains"), handles, 2)


def over_rounds(
    panels: Sequence[tuple[str, Curves]],
    title: str,
    styles: Mapping[str, Style],
    names: Mapping[str, str],
) -> Figure:
    """Validation accuracy by round; markers at every fourth, so that lines can be told apart."""
    fig = figure(4.6 * len(panels) + 0.4, 5.4)
    seen: dict[str, Line2D] = {}
    for column, (name, curves) in enumerate(panels):
        ax = axes(fig, 1, len(panels), column + 1)
        for number, (method, points) in enumerate(curves.items()):
            colour, marker, line = styles[method]
            # Without deviations, which would cover each other: tables have them.
            rounds, mean, _ = (np.array(values) for values in zip(*points, strict=True))
            given = {"linewidth": 1.6, **stroke(colour, marker, line, 5.5)}
            every = max(1, len(rounds) // 5)
            ax.plot(rounds, 100 * mean, markevery=(number % every, every), **given)
            seen[method] = Line2D([], [], label=names[method], **given)
        ax.set_xlabel("round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if column == 0:
            ax.set_ylabel("validation accuracy, %, mean over clients")
        ax.set_title(name, size=10, color=INK, loc="left")
    order = [seen[method] for method in styles if method in seen]
    return with_legend(with_title(fig, title), order, 4 if len(panels) > 1 else 2)


def ratios(curves: Mapping[str, Mapping[str, Sequence[tuple[int, Sequence[float]]]]]) -> Figure:
    """Figure 9: time on shares over time in the clear, with bars from the least to the most."""
    fig = figure(8.6, 4.0)
    named = {"clients": "(a) over clients N", "heads": "(b) over heads K"}
    styles = ((GAIN, "o", "-"), (LOSS, "s", "-"), (GREEN, "^", "-"), (INK, "D", "--"))
    seen: dict[str, Line2D] = {}
    for column, (varied, title) in enumerate(named.items()):
        ax = axes(fig, 1, 2, column + 1)
        for (parties, points), style in zip(curves[varied].items(), styles, strict=False):
            x = [count for count, _ in points]
            middle = [float(np.median(found)) for _, found in points]
            low, high = ([float(found[end]) for _, found in points] for end in (0, -1))
            given = {"linewidth": 1.6, **stroke(*style, 5)}
            bars = np.array([np.subtract(middle, low), np.subtract(high, middle)])
            ax.errorbar(x, middle, bars, capsize=2.5, elinewidth=1, **given)
            seen[parties] = Line2D([], [], label=parties, **given)
        ax.set_xticks(sorted({count for points in curves[varied].values() for count, _ in points}))
        ax.set_ylim(bottom=0)
        ax.set_xlabel(title[4:].removeprefix("over "))
        ax.set_ylabel("time on shares / in the clear")
        ax.set_title(title, size=10, color=INK, loc="left")
    title = "Figure 9: a round on shares against one in the clear"
    return with_legend(with_title(fig, title), list(seen.values()), 4)


def dealt(rows: Sequence[int], by_number: Sequence[int], by_head: Sequence[int]) -> Figure:
    """Figure 5: samples of each client, clients by number of heads, clients by head."""
    fig = figure(11, 3.4)
    numbers = [str(k + 1) for k in range(len(by_number))]
    heads = [f"T{k + 1}" for k in range(len(by_head))]
    parts: tuple[tuple[str, str, str, Sequence[int], Sequence[str]], ...] = (
        ("(a) samples of each client, sorted", "client", "samples", sorted(rows)[::-1], ()),
        ("(b) how many heads clients have", "number of heads", "clients", by_number, numbers),
        ("(c) who works on a head", "head", "clients", by_head, heads),
    )
    for column, (name, x, y, values, labels) in enumerate(parts):
        ax = axes(fig, 1, 3, column + 1)
        ax.bar(range(1, len(values) + 1), values, color=(GAIN, LOSS, GREEN)[column], width=0.8)
        ax.grid(False, axis="x")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        if labels:
            ax.set_xticks(range(1, len(labels) + 1), labels)
        ax.set_xlabel(x)
        ax.set_ylabel(y)
        ax.set_title(name, size=10, color=INK, loc="left")
    return with_title(fig, "Figure 5: rows and heads as dealt (D2, seed 0)")


def heat(task: np.ndarray, shared: np.ndarray, groups: Sequence[str]) -> Figure:
    """Figure 6: similarity of all pairs of clients, ordered by sub-group."""
    fig = figure(10.4, 4.9)
    size = len(task) // len(groups)
    middle = [size * k + (size - 1) / 2 for k in range(len(groups))]
    named = (("(a) task layers: S of eq. 6", task), ("(b) shared layers: cosine", shared))
    for column, (name, matrix) in enumerate(named):
        ax = fig.add_subplot(1, 2, column + 1)
        # From the smallest to the largest of two clients: with one scale, either could be flat.
        pairs = matrix[~np.eye(len(matrix), dtype=bool)]
        image = ax.imshow(
            matrix, cmap="cividis", vmin=pairs.min(), vmax=pairs.max(), interpolation="nearest"
        )
        quiet(ax)
        ax.set_xticks(middle, groups)
        ax.set_yticks(middle, groups)
        for k in range(1, len(groups)):
            wide = 1.6 if 2 * k == len(groups) else 0.5
            ax.axhline(size * k - 0.5, color="white", linewidth=wide)
            ax.axvline(size * k - 0.5, color="white", linewidth=wide)
        ax.set_xlabel("sub-group of the other client")
        ax.set_ylabel("sub-group of the client")
        ax.set_title(name, size=10, color=INK, loc="left")
        bar = fig.colorbar(image, ax=ax, shrink=0.85, pad=0.02)
        bar.ax.tick_params(labelsize=8, colors=MUTED)
        bar.set_label("similarity", color=INK, size=9)
    title = "Figure 6: similarity of clients (G1x photographs, G2x negatives; stand-in)"
    return with_title(fig, title)


def scatter(
    panels: Sequence[tuple[str, Sequence[dict[str, str]]]], groups: Sequence[str]
) -> Figure:
    """Figure 2: points in the plane; markers by group, colours by group or, in (a), by head."""
    fig = figure(11.4, 4.6)
    colours = (GAIN, LOSS, GREEN, SPENT, OCHRE, INK)
    for column, (name, points) in enumerate(panels):
        ax = axes(fig, 1, len(panels), column + 1)
        for point in points:
            k = int(point["group"][1:]) - 1
            mark = {"marker": MARKERS[k], "markersize": 6.5, "markeredgewidth": 0, "linestyle": ""}
            colour = HEADS.get(point["head"], colours[k])
            ax.plot(float(point["x"]), float(point["y"]), color=colour, alpha=0.85, **mark)
        ax.set_xlabel("t-SNE, first axis")
        ax.set_ylabel("t-SNE, second axis")
        ax.set_title(f"({'abc'[column]}) {name}", size=10, color=INK, loc="left")
    handles = [legend_key(colours[k], MARKERS[k], name) for k, name in enumerate(groups)]
    bar = {"markersize": 11, "markeredgewidth": 5}
    handles += [legend_key(c, "|", f"{head}, colour in (a)", **bar) for head, c in HEADS.items()]
    title = "Figure 2: layers of clients that trained alone (stand-in)"
    return with_legend(with_title(fig, title), handles, 5)
