"""The figures of a report: learning curve, task by task against training alone, gains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tacit.report.scores import Comparison, Score, number, overall_score, score
from tacit.report.svg import GAIN, GRID, INK, LOSS, MUTED, SPENT, WIDE, axes, beside, figure, quiet
from tacit.report.words import count, epsilon_text, plural

POINTS = 400
"""More points than this on a line cannot be seen, only downloaded."""
CROWD = 2000
"""More tasks than this are drawn as a density."""
NAMED = 30
"""Up to this many tasks each get a bar with their name."""


def learning_curve(result: Mapping[str, Any]) -> Figure | None:
    """The main score (or the loss) over rounds, with the ε spent so far on a second axis."""
    curve = result.get("curve") or []
    if len(curve) < 2:
        return None
    kind, values = _curve_score(result, curve)
    if kind is None:
        return None
    rounds = np.array([number(point["round"]) for point in curve])
    epsilon = np.array([number(point.get("epsilon")) for point in curve])
    keep = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), POINTS)).astype(int))
    spent = bool(np.isfinite(epsilon).any() and np.nanmax(epsilon) > 0)
    fig = figure(WIDE, 3.5)
    ax = axes(fig)
    ax.plot(rounds[keep], values[keep] * kind.factor, color=GAIN, linewidth=2)
    if last_step(result):
        style: Any = {"xycoords": "axes fraction", "color": MUTED, "va": "top", "ha": "left"}
        beside(ax, "before the last step", (0, 1), (6, -2), **style)
    ax.set_xlabel("round")
    ax.set_ylabel(f"{kind.axis}\n{kind.better}", color=GAIN)
    ax.set_xlim(rounds[0], rounds[-1])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(y=0.12)
    if spent:
        second = ax.twinx()
        second.set_facecolor("none")
        second.set_zorder(-1)
        second.plot(rounds[keep], epsilon[keep], color=SPENT, linewidth=1.6, linestyle=(0, (5, 2)))
        second.set_ylim(0, float(np.nanmax(epsilon)) * 1.12)
        for side in ("top", "left", "bottom"):
            second.spines[side].set_visible(False)
        second.spines["right"].set_color(MUTED)
        quiet(second)
        second.set_ylabel("ε spent so far", color=SPENT)
        last = int(np.flatnonzero(np.isfinite(epsilon))[-1])
        words = f"ε = {epsilon_text({'epsilon': float(epsilon[last])})}"
        end = rounds[last], epsilon[last]
        beside(second, words, end, (-4, 4), ha="right", va="bottom", color=SPENT)
    return fig


def last_step(result: Mapping[str, Any]) -> bool:
    """Whether tasks ended with other models than those that the rounds left them."""
    metrics = result["metrics"]
    chosen = (metrics.get("personal_models") or {}).get("per_task")
    return bool(chosen or metrics.get("combined"))


def mark(fig: Figure, words: str) -> None:
    """A label that stays with the figure wherever it goes."""
    fig.suptitle(words, size=8.5, color=MUTED, x=0.01, ha="left", parse_math=False)


def _curve_score(
    result: Mapping[str, Any], curve: list[Mapping[str, Any]]
) -> tuple[Score | None, np.ndarray]:
    for kind in (overall_score(result), score(result, "loss", False)):
        values = np.array([number(point.get(kind.name)) for point in curve])
        values[~np.isfinite(values)] = math.nan
        if np.isfinite(values).sum() >= 2:
            return kind, values
    return None, np.array([])


def task_by_task(tasks: Comparison, kind: Score) -> Figure | None:
    """Each task alone (across) and with its personal model (up), a density for many tasks."""
    seen = tasks.finite
    if seen.sum() < 2:
        return None
    x, y = tasks.alone[seen] * kind.factor, tasks.personal[seen] * kind.factor
    both = np.concatenate([x, y])
    low, high = float(both.min()), float(both.max())
    # A few hard tasks must not squeeze all others into a corner.
    log = not kind.percent and low > 0 and high / low > 8
    if log:
        low, high = low / 1.15, high * 1.15
    else:
        pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = low - pad, high + pad
    crowd = int(seen.sum()) > CROWD
    fig = figure(6.1 if crowd else 5.2, 5.0)
    ax = axes(fig)
    if log:
        ax.set(xscale="log", yscale="log")
    if crowd:
        _density(fig, ax, x, y, (low, high), log)
    else:
        rows = tasks.rows[seen]
        crowding = float(np.clip(120 / len(x), 0.15, 1.0))
        size = (14 + 60 * np.sqrt(rows / max(int(rows.max()), 1))) * crowding + 4
        gain = tasks.gain[seen]
        alpha = 0.75 if len(x) <= 300 else 0.45
        for chosen, colour in ((gain == 0, MUTED), (gain > 0, GAIN), (gain < 0, LOSS)):
            ax.scatter(
                x[chosen], y[chosen], s=size[chosen], color=colour, alpha=alpha, linewidths=0
            )
    if log:  # after hexbin, which sets the scale anew
        steps = (1, 2, 5) if high / low < 1000 else (1,)
        for side in (ax.xaxis, ax.yaxis):
            side.set_major_locator(LogLocator(subs=steps))
            side.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            side.set_minor_locator(NullLocator())
    ax.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set_xlabel(f"alone: {kind.axis}")
    ax.set_ylabel(f"personal model: {kind.axis}")
    upper, lower = ("gain", "lose") if kind.higher else ("lose", "gain")
    for word, place, side in ((upper, (0.04, 0.96), "top"), (lower, (0.96, 0.04), "bottom")):
        number_of = tasks.gaining if word == "gain" else tasks.losing
        verb = f"{word}s" if number_of == 1 else word
        said, colour = f"{plural(number_of, 'task')} {verb}", GAIN if word == "gain" else LOSS
        style: Any = {"va": side, "ha": "left" if side == "top" else "right", "color": colour}
        ax.text(*place, said, transform=ax.transAxes, weight="bold", size=10, **style)
    return fig


def _density(
    fig: Figure, ax: Axes, x: np.ndarray, y: np.ndarray, span: tuple[float, float], log: bool
) -> None:
    ramp = LinearSegmentedColormap.from_list("tasks", ["#cfe3f1", "#5fa6d3", "#0073b3", "#004168"])
    scale = "log" if log else "linear"
    low, high = map(math.log10, span) if log else span
    frame: Any = {"extent": (low, high, low, high), "xscale": scale, "yscale": scale}
    style: Any = {"cmap": ramp, "mincnt": 1, "linewidths": 0.2}
    drawn = ax.hexbin(x, y, gridsize=38, bins="log", **frame, **style)
    bar = fig.colorbar(drawn, ax=ax, shrink=0.6, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: count(int(v)) if v >= 1 else ""))
    bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))
    bar.ax.tick_params(colors=MUTED, labelsize=9, which="both")
    bar.set_label("tasks in a cell", color=INK, size=10)


def gains(tasks: Comparison, kind: Score) -> Figure | None:
    """How the gains over training alone are spread: named bars for few tasks, else a histogram."""
    seen = tasks.finite
    if not seen.any():
        return None
    gain = tasks.gain[seen] * kind.factor
    unit = "percentage points" if kind.percent else kind.words
    label = f"gain over training alone ({unit})"
    if len(gain) <= NAMED:
        return _bars([n for n, s in zip(tasks.names, seen, strict=True) if s], gain, label)
    fig = figure(WIDE, 2.9)
    ax = axes(fig)
    # A single extreme task must not squeeze all others into one bar.
    quarter, three = np.quantile(gain, [0.25, 0.75])
    far = 4 * (three - quarter) or np.inf
    low, high = max(gain.min(), quarter - far), min(gain.max(), three + far)
    reach = max(abs(low), abs(high)) or 1.0
    low, high = min(low, -0.05 * reach), max(high, 0.05 * reach)
    bins = int(np.clip(2 * np.sqrt(len(gain)), 14, 44))
    width = (high - low) / bins
    edges = width * np.arange(math.floor(low / width), math.ceil(high / width) + 1)
    level = gain == 0
    heights, _ = np.histogram(gain[~level], edges)
    middle = (edges[:-1] + edges[1:]) / 2
    colours = np.where(middle > 0, GAIN, LOSS)
    ax.bar(edges[:-1], heights, width * 0.94, align="edge", color=colours, alpha=0.85)
    highest = max(heights.max(), level.sum(), 1)
    if level.any():  # neither better nor worse: no bar of either colour
        ax.bar([0.0], [level.sum()], width * 0.5, color=MUTED, alpha=0.85)
        words = f"{count(int(level.sum()))} unchanged"
        beside(ax, words, (0, level.sum()), (0, 4), va="bottom", ha="center", color=MUTED)
    # Room for the labels of the median and, below it, of the grey bar.
    ax.set_ylim(0, highest * (1.3 if level.any() else 1.16))
    ax.axvline(0, color=INK, linewidth=1)
    centre = float(np.median(gain))
    ax.axvline(centre, color=MUTED, linewidth=1.1, linestyle=(0, (2, 2)))
    digits = kind.decimals(gain / kind.factor)
    half = kind.text(centre / kind.factor, digits, sign=True)
    right = centre < (edges[0] + edges[-1]) / 2
    offset, side = ((4, 0), "left") if right else ((-4, 0), "right")
    style: Any = {"xycoords": ("data", "axes fraction"), "color": MUTED, "va": "top", "ha": side}
    beside(ax, f"median {half}", (centre, 1.0), offset, **style)
    _mark_ends(ax, int((gain < edges[0]).sum()), int((gain > edges[-1]).sum()))
    ax.set_xlabel(label)
    ax.set_ylabel("tasks")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.grid(False, axis="x")
    return fig


def _mark_ends(ax: Axes, below: int, above: int) -> None:
    """How many tasks are too far out to be drawn, at the end where they would be."""
    for number_of, at, said, side in (
        (below, 0.0, "◂ {} further", "left"),
        (above, 1.0, "{} further ▸", "right"),
    ):
        if number_of:
            words = said.format(plural(number_of, "task"))
            style: Any = {"xycoords": "axes fraction", "color": INK, "ha": side, "va": "bottom"}
            beside(ax, words, (at, 0.3), (4 if at == 0 else -4, 0), weight="bold", **style)


def _bars(names: list[str], gain: np.ndarray, label: str) -> Figure:
    order = np.argsort(gain, kind="stable")
    fig = figure(WIDE, 1.0 + 0.23 * len(order))
    ax = axes(fig)
    place = np.arange(len(order))
    ax.barh(place, gain[order], 0.72, color=np.where(gain[order] < 0, LOSS, GAIN), alpha=0.85)
    ax.axvline(0, color=INK, linewidth=1)
    level = place[gain[order] == 0]
    ax.plot(np.zeros(len(level)), level, "o", color=MUTED, markersize=6)  # a bar of no length
    ax.set_yticks(place, [shorten(names[k]) for k in order])
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)  # a name with a dollar sign is a name, not a formula
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.grid(False, axis="y")
    ax.grid(True, axis="x", color=GRID)
    ax.set_xlabel(label)
    return fig


def shorten(name: str, most: int = 28) -> str:
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"
