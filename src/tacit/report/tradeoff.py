"""What privacy costs: the score of several runs against their ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from tacit.report.comparison import Group
from tacit.report.plots import shorten
from tacit.report.svg import GRID, MARKERS, MUTED, SERIES, WIDE, axes, beside, figure
from tacit.report.words import EXCHANGED


def tradeoff(members: Sequence[Group]) -> Figure | None:
    """Score against ε, a line for each method; no privacy stands apart at the right."""
    drawn = [group for group in members if math.isfinite(group.main.mean)]
    if not drawn:
        return None
    kind = drawn[0].score
    place = _places(drawn)
    fig = figure(WIDE, 4.2)
    ax = axes(fig)
    names = list(dict.fromkeys(group.series for group in drawn))
    ends = []
    for number, name in enumerate(names):
        colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        line = sorted((g for g in drawn if g.series == name), key=lambda g: g.epsilon)
        # Methods with the same ε would hide each other's bars: each is moved aside a little.
        aside = 0.012 * place.width * (number - (len(names) - 1) / 2)
        x = np.array([place.of(group.epsilon) + aside for group in line])
        y = np.array([group.main.mean for group in line]) * kind.factor
        bar = np.array([group.main.sd or 0.0 for group in line]) * kind.factor
        inside = np.array([0 < group.epsilon < math.inf for group in line])
        ax.plot(x[inside], y[inside], color=colour, linewidth=1.6)
        style: Any = {"markersize": 6.5, "elinewidth": 1.3, "markeredgewidth": 0}
        ax.errorbar(x, y, yerr=bar, fmt=marker, color=colour, **style)
        if x[-1] > place.right - 0.35 * place.width or place.single:
            ends.append((float(x[-1]), float(y[-1]), name, colour))
        else:  # far from the edge: a name beside its point is easier to find
            beside(ax, shorten(name, 34), (x[-1], y[-1]), (8, 0), color=colour)
    _alone(ax, drawn)
    place.ticks(ax)
    if not place.single:
        ax.set_xlabel("ε: smaller is more private")
    ax.set_ylabel(f"{kind.axis}\n{kind.better}")
    ax.margins(y=0.12)
    _labels(ax, ends, place.right)
    return fig


class _Places:
    """ε on a logarithmic axis, with 0 (nothing released) and ∞ (no privacy) beside its ends."""

    def __init__(self, finite: list[float], zero: bool, infinite: str) -> None:
        logs = [math.log10(e) for e in finite]
        self.low, self.high = (min(logs), max(logs)) if logs else (0.0, 0.0)
        step = max(0.22 * (self.high - self.low), 0.18)
        self.finite, self.has_zero, self.beyond = sorted(set(finite)), zero, infinite
        self.zero, self.infinite = self.low - step, self.high + step
        if not logs:
            self.zero, self.infinite = 0.0, float(zero)
        pad = step * 0.45
        self.left = (self.zero if zero else self.low) - pad
        self.right = (self.infinite if infinite else self.high) + pad
        self.width = self.right - self.left

    @property
    def single(self) -> bool:
        """Whether all stand in one place, beside each other: there is no axis then."""
        return not self.finite and self.has_zero != bool(self.beyond)

    def of(self, epsilon: float) -> float:
        if epsilon <= 0:
            return self.zero
        return self.infinite if math.isinf(epsilon) else math.log10(epsilon)

    def ticks(self, ax: Axes) -> None:
        marks: list[tuple[float, str]] = []
        for epsilon in self.finite:
            at = math.log10(epsilon)
            # Runs of nearly the same ε share a tick.
            if not marks or at - marks[-1][0] > 0.05 * self.width:
                marks.append((at, f"{epsilon:.3g}"))
        if self.has_zero:
            marks.insert(0, (self.zero, "0\nnothing\nreleased"))
        if self.beyond:
            marks.append((self.infinite, self.beyond))
        for at in [(self.low + self.zero) / 2] * (self.has_zero and bool(self.finite)) + [
            (self.high + self.infinite) / 2
        ] * bool(self.beyond and self.finite):
            ax.axvline(at, color=GRID, linewidth=4)
        ax.xaxis.set_major_locator(FixedLocator([at for at, _ in marks]))
        ax.xaxis.set_major_formatter(FixedFormatter([words for _, words in marks]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlim(self.left, self.right)


def _places(drawn: Sequence[Group]) -> _Places:
    every = [group.epsilon for group in drawn]
    finite = [e for e in every if 0 < e < math.inf]
    return _Places(finite, any(e <= 0 for e in every), _beyond(drawn))


def _beyond(drawn: Sequence[Group]) -> str:
    """What stands below runs without a finite ε; nothing if there are none."""
    kinds = {group.state.key == EXCHANGED.key for group in drawn if math.isinf(group.epsilon)}
    if not kinds:
        return ""
    if kinds == {True}:
        return "no ε\nexchange"
    return "∞, or no ε\nno privacy" if True in kinds else "∞\nno privacy"


def _alone(ax: Axes, drawn: Sequence[Group]) -> None:
    levels = [group.alone for group in drawn if math.isfinite(group.alone)]
    # Each run brings its own baseline; over seeds and runs they differ by chance only.
    if not levels:
        return
    level = float(np.mean(levels)) * drawn[0].score.factor
    ax.axhline(level, color=MUTED, linewidth=1.1, linestyle=(0, (2, 2)))
    style: Any = {"xycoords": ("axes fraction", "data"), "color": MUTED, "size": 9, "va": "bottom"}
    beside(ax, "each task alone", (0.01, level), (0, 3), **style)


def _labels(ax: Axes, ends: list[tuple[float, float, str, str]], right: float) -> None:
    """Names at the right edge, in the order of the lines' ends, pushed apart where they collide."""
    low, high = ax.get_ylim()
    if not ends:
        return
    gap = 0.065 * (high - low)
    order = sorted(ends, key=lambda end: end[1])
    spots: list[float] = []
    for _, y, _, _ in order:
        spots.append(max(y, spots[-1] + gap) if spots else y)
    over = max(0.0, spots[-1] - high)
    for (x, y, name, colour), spot in zip(order, spots, strict=True):
        line = {"arrowstyle": "-", "color": colour, "alpha": 0.35, "linewidth": 0.8}
        style: Any = {"arrowprops": line | {"shrinkA": 0, "shrinkB": 5}, "annotation_clip": False}
        end = right, spot - over
        beside(ax, shorten(name, 34), (x, y), end, textcoords="data", color=colour, **style)
    ax.set_ylim(low, high)
