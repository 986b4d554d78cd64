"""The plots: accuracy against ε on a log axis, and loss or accuracy with ε over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from papers.common.drawing import stroke, with_legend, with_title
from papers.pmtl.means import Mean, NoiseCurve
from papers.pmtl.sets import DataSet
from tacit.report.svg import GAIN, INK, MARKERS, MUTED, SERIES, SPENT, axes, figure, quiet

NAMES = {
    "pmtl": "PMTL",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "naive": "naive DP of all models",
    "ppsgd": "PP-SGD",
    "alone": "training alone",
}
MODES = {
    "none": "",
    "vanilla": "vanilla",
    "mean": "mean-regularised",
    "kl": "symmetrised KL",
    "ewc": "EWC",
    "best": "best fine-tuning",
}
PANELS = MODES | {"none": "the method's own models"}
COLOURS = dict(zip(("pmtl", "fedavg", "fedprox", "naive", "ppsgd"), SERIES, strict=False))
SHAPES = {"pmtl": "o", "fedavg": "s", "fedprox": "^", "naive": "X", "ppsgd": "D"}
HOLLOW = ("fedprox",)
"""Drawn so that the method beneath can be seen: FedProx is nearly FedAvg."""
BEYOND = 2.2
"""ε = ∞ stands so many times right of the largest finite ε."""


def against_epsilon(
    sets: Sequence[DataSet], found: Sequence[Mean], panels: Sequence[str], title: str
) -> Figure:
    """A row of panels for each data set; `panels` are modes drawn apart, or one empty name.

    Solid lines are the methods' own models, dashed ones the best fine-tuning of them.
    """
    wide, high = len(panels), len(sets)
    fig = figure(max(6.4, 3.1 * wide + 2.2), 3.3 * high + 0.6)
    for row, data in enumerate(sets):
        own = [mean for mean in found if mean.set == data.key]
        for column, panel in enumerate(panels):
            ax = axes(fig, high, wide, row * wide + column + 1)
            shown = [m for m in own if not panel or m.mode == panel or m.method == "alone"]
            _lines(ax, shown, dashed=not panel)
            # Panels of a row are compared with each other.
            level = [m for m in own if not panel or m.mode in panels or m.method == "alone"]
            low = min((m.mean - m.sd for m in level), default=0.0)
            top = max((m.mean + m.sd for m in level), default=1.0)
            pad = 0.06 * (top - low) or 0.05
            ax.set_ylim(max(0.0, low - pad), min(1.0, top + pad))
            if column == 0:
                ax.set_ylabel("test accuracy, mean over tasks")
            ax.set_xlabel("ε (log scale)")
            name = data.title + (", reduced" if data.version == "reduced" else "")
            if panel:
                name = (f"{name}\n" if column == 0 else "\n") + PANELS[panel]
            ax.set_title(name, size=10, color=INK, loc="left")
    handles = _legend(found, dashed=not panels[0])
    beside: Any = {"loc": "outside right center", "frameon": False, "fontsize": 9}
    fig.legend(handles=handles, labelcolor=INK, **beside)
    return with_title(fig, title)


def _lines(ax: Axes, found: Sequence[Mean], *, dashed: bool) -> None:
    finite = sorted({m.epsilon for m in found if 0 < m.epsilon < math.inf})
    endless = (finite[-1] if finite else 1.0) * BEYOND
    for method in COLOURS:
        for mode in dict.fromkeys(m.mode for m in found if m.method == method):
            line = sorted(
                (m for m in found if m.method == method and m.mode == mode), key=lambda m: m.epsilon
            )
            # Methods side by side by a hair, so that error bars can be told apart.
            nudge = 1 + 0.025 * (list(COLOURS).index(method) - 1)
            x = [nudge * (m.epsilon if math.isfinite(m.epsilon) else endless) for m in line]
            style = "--" if (dashed and mode != "none") or method in HOLLOW else "-"
            given = stroke(COLOURS[method], SHAPES[method], style)
            means, sds = [m.mean for m in line], [m.sd for m in line]
            ax.errorbar(x, means, sds, linewidth=1.6, capsize=2, elinewidth=1, **given)
    for mean in found:
        if mean.method == "alone":
            ax.axhline(mean.mean, color=MUTED, linewidth=1.4, linestyle=(0, (1, 1.5)))
            ax.axhspan(mean.mean - mean.sd, mean.mean + mean.sd, color=MUTED, alpha=0.15, lw=0)
    ax.set_xscale("log")
    places = finite + ([endless] if any(math.isinf(m.epsilon) for m in found) else [])
    # 1.6 and 2 are too near for two labels.
    labels = ["" if e == 1.6 and 2.0 in finite else f"{e:g}" for e in finite]
    ax.set_xticks(places, labels + ["∞"] * (len(places) - len(finite)))
    ax.xaxis.set_minor_locator(NullLocator())


def _legend(found: Sequence[Mean], *, dashed: bool) -> list[Line2D]:
    handles = []
    for method in COLOURS:
        for mode in dict.fromkeys(m.mode for m in found if m.method == method):
            own = mode == "none" or not dashed
            text = NAMES[method] if own else f"{NAMES[method]}, {MODES[mode]}"
            style = "-" if own and method not in HOLLOW else "--"
            line = Line2D([], [], label=text, **stroke(COLOURS[method], SHAPES[method], style))
            if text not in [h.get_label() for h in handles]:
                handles.append(line)
    if any(m.method == "alone" for m in found):
        handles.append(Line2D([], [], color=MUTED, linestyle=(0, (1, 1.5)), label=NAMES["alone"]))
    return handles


def by_noise(
    sets: Sequence[DataSet], found: Mapping[str, Sequence[NoiseCurve]], title: str
) -> Figure:
    """Two rows of panels for each set, a column for each clip: accuracy above, ε below."""
    clips = {data.key: sorted({c.clip for c in found[data.key] if c.sigma}) for data in sets}
    wide = max(len(each) for each in clips.values())
    fig = figure(3.1 * wide + 0.6, 5.0 * len(sets) + 0.9)
    high, handles = 2 * len(sets), {}
    for row, data in enumerate(sets):
        curves = found[data.key]
        seen = [accuracy for c in curves for _, accuracy, _, _ in c.points]
        pad = 0.06 * (max(seen) - min(seen)) or 0.05
        sigmas = sorted({c.sigma for c in curves}, reverse=True)
        styles = dict(zip(sigmas[:-1], zip(SERIES, MARKERS, strict=False), strict=False))
        for column, clip in enumerate(clips[data.key]):
            above = axes(fig, high, wide, 2 * row * wide + column + 1)
            below = axes(fig, high, wide, (2 * row + 1) * wide + column + 1)
            for curve in curves:
                if curve.sigma and curve.clip != clip:
                    continue
                rounds, accuracy, sd, epsilon = zip(*curve.points, strict=True)
                colour, marker = styles.get(curve.sigma, (INK, ""))
                style = stroke(colour, marker, "-" if curve.sigma else "--", 4)
                above.errorbar(rounds, accuracy, sd, linewidth=1.5, elinewidth=0.9, **style)
                if curve.sigma:
                    below.plot(rounds, epsilon, linewidth=1.5, **style)
                text = f"σ = {curve.sigma:g}" if curve.sigma else "without privacy"
                handles[text] = Line2D([], [], label=text, **style)
            above.set_ylim(max(0.0, min(seen) - pad), min(1.0, max(seen) + pad))
            below.set_ylim(bottom=0)
            below.set_xlabel("round")
            if column == 0:
                above.set_ylabel("test accuracy")
                below.set_ylabel("ε spent so far")
            name = (f"{data.title}\n" if column == 0 else "\n") + f"γ = {clip:g}"
            above.set_title(name, size=10, color=INK, loc="left")
    return with_legend(with_title(fig, title), list(handles.values()), 4)


def over_rounds(
    sets: Sequence[DataSet], curves: dict[str, list[tuple[int, float, float, float]]], title: str
) -> Figure:
    """Training loss (left axis) and ε spent (right axis); (round, loss, sd, ε) for each set."""
    fig = figure(4.4 * len(sets) + 0.4, 3.7)
    for column, data in enumerate(sets):
        rounds, loss, sd, epsilon = zip(*curves[data.key], strict=True)
        ax = axes(fig, 1, len(sets), column + 1)
        ax.plot(rounds, loss, color=GAIN, linewidth=1.8)
        low, high = ([a + s * b for a, b in zip(loss, sd, strict=True)] for s in (-1, 1))
        ax.fill_between(rounds, low, high, color=GAIN, alpha=0.2, linewidth=0)
        ax.set_ylim(0, 1.08 * max(high))
        ax.set_xlim(0, rounds[-1])
        ax.set_xlabel("round")
        ax.set_ylabel("training loss, mean over tasks", color=GAIN)
        second = ax.twinx()
        second.plot(rounds, epsilon, color=SPENT, linewidth=1.6, linestyle=(0, (5, 2)))
        second.set_ylim(0, 1.12 * max(epsilon))
        for side in ("top", "left", "bottom"):
            second.spines[side].set_visible(False)
        second.spines["right"].set_color(MUTED)
        quiet(second)
        second.set_ylabel("ε spent so far", color=SPENT)
        second.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        reduced = ", reduced" if data.version == "reduced" else ""
        ax.set_title(data.title + reduced, size=10, color=INK, loc="left")
    return with_title(fig, title)
