"""Who learns from whom: clients on a circle, with arrows, and from how many each of them learns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator

from tacit.report.clients import Clients
from tacit.report.plots import shorten
from tacit.report.svg import GAIN, INK, MUTED, WIDE, axes, figure

STRONGEST = 3
"""Lines to a client, where all would hide each other."""
TIES = 6
"""Lines that are equally strong are all shown, up to so many."""
FEW = 60
"""Up to this many lines are all shown."""


def others(weights: np.ndarray) -> np.ndarray:
    """Weights without the clients' own."""
    return np.where(np.eye(len(weights), dtype=bool), 0.0, np.nan_to_num(weights))


def strongest(weights: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (receiver, sender) to draw: all if there are few, else each receiver's strongest."""
    size = np.abs(others(weights))
    if int((size > 0).sum()) <= FEW:
        return [(int(i), int(j)) for i, j in np.argwhere(size > 0)]
    chosen = []
    for i, row in enumerate(size):
        order = np.argsort(-row, kind="stable")
        least = row[order[min(STRONGEST, len(order)) - 1]]
        kept = [int(j) for j in order if row[j] > 0 and row[j] >= least - 1e-9]
        chosen += [(i, j) for j in kept[:TIES]]
    return chosen


def who_learns(weights: np.ndarray, clients: Clients) -> Figure | None:
    """The circle, and beside it how many others each client learns from; None if nobody does."""
    theirs = others(weights)
    pairs = strongest(weights)
    if not pairs:
        return None
    fig = figure(WIDE, 5.3)
    grid = fig.add_gridspec(1, 2, width_ratios=(2.1, 1))
    ax = fig.add_subplot(grid[0])
    _circle(ax, theirs, pairs, clients)
    _histogram(fig, grid[1], theirs)
    _legend(fig, clients)
    return fig


def _circle(ax: Axes, weights: np.ndarray, pairs: list[tuple[int, int]], clients: Clients) -> None:
    n = len(clients)
    angle = math.pi / 2 - 2 * math.pi * np.arange(n) / n
    x, y = np.cos(angle), np.sin(angle)
    colours = clients.colours
    most = max(abs(weights[i, j]) for i, j in pairs)
    dot = float(np.clip(260 / n, 3.0, 9.0))
    # Many lines are thin ones, or nothing but arrowheads would be seen.
    crowd = float(np.clip(45 / len(pairs), 0.4, 1.0))
    ends: Any = {"arrowstyle": "-|>", "shrinkA": dot / 2, "shrinkB": dot / 2 + 1}
    # Weak lines first, so that strong ones lie on top.
    for i, j in sorted(pairs, key=lambda pair: abs(weights[pair])):
        share = abs(weights[i, j]) / most
        turn = (angle[i] - angle[j] + math.pi) % (2 * math.pi) - math.pi
        # Bent towards the middle, and more so one way: there and back again are two lines.
        bend = (0.42 if turn > 0 else 0.22) * (1 - abs(turn) / 4)
        line: Any = {"linewidth": 0.5 + 2.1 * share * crowd, "alpha": 0.25 + 0.6 * share}
        line |= {"linestyle": "solid" if weights[i, j] > 0 else (0, (3, 2)), "color": colours[j]}
        line |= {"connectionstyle": f"arc3,rad={-math.copysign(bend, turn):.2f}"}
        size = 3 + 6 * share * crowd
        there, here = (x[j], y[j]), (x[i], y[i])
        ax.add_patch(FancyArrowPatch(there, here, mutation_scale=size, **line, **ends))
    for colour in dict.fromkeys(colours):
        here = np.array([c == colour for c in colours])
        ax.scatter(x[here], y[here], s=dot**2, color=colour, zorder=3, linewidths=0)
    reach = 1.06
    if clients.named:
        style: Any = {"rotation_mode": "anchor", "va": "center", "parse_math": False}
        style |= {"color": MUTED, "size": 8.5 if n <= 30 else 7.5}
        for k, name in enumerate(clients.names):
            left, degrees = x[k] < -1e-9, math.degrees(angle[k])
            turned, side = (degrees + 180, "right") if left else (degrees, "left")
            words = shorten(name, 14)
            ax.text(1.06 * x[k], 1.06 * y[k], words, rotation=turned, ha=side, **style)
        reach = 1.1 + 0.031 * max(len(shorten(name, 14)) for name in clients.names)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set_facecolor("none")
    ax.axis("off")


def _histogram(fig: Figure, spot: SubplotSpec, weights: np.ndarray) -> None:
    counts = (weights != 0).sum(axis=1)
    ax = axes(fig, spot)
    top = int(counts.max())
    width = max(1, math.ceil((top + 1) / 16))
    edges = np.arange(0, top + width + 1, width)
    heights, _ = np.histogram(counts, edges)
    ax.bar(edges[:-1] - 0.5, heights, 0.92 * width, align="edge", color=GAIN, alpha=0.85)
    ax.set_xlim(-0.6 - 0.02 * top, edges[-1] - 0.4 + 0.02 * top)
    ax.set_xlabel("number of others a client learns from")
    ax.set_ylabel("clients")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.grid(False, axis="x")
    ax.set_box_aspect(0.95)


def _legend(fig: Figure, clients: Clients) -> None:
    groups = clients.legend()
    if not groups:
        return
    marks = [
        Line2D([], [], marker="o", linestyle="", color=colour, markersize=6) for _, colour in groups
    ]
    words, columns = [shorten(words, 40) for words, _ in groups], min(len(groups), 4)
    style: Any = {"frameon": False, "fontsize": 9, "handletextpad": 0.1, "columnspacing": 1.4}
    place = "outside lower center"
    shown = fig.legend(marks, words, loc=place, ncols=columns, labelcolor=INK, **style)
    for label in shown.get_texts():
        label.set_parse_math(False)
