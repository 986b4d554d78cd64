"""Outcomes over time: what became of the rows of each task, beside what was predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.box import heading
from tacit.report.page import drawing, paragraph
from tacit.report.plots import shorten
from tacit.report.svg import GAIN, INK, LOSS, WIDE, axes, figure
from tacit.report.words import plural

ACROSS = 3
SEEN, SAID = "seen (Kaplan–Meier, 95 % band)", "predicted, mean over rows"


def section(result: Mapping[str, Any]) -> str:
    """Shown where the target is an outcome over time."""
    found = result["metrics"].get("curves")
    if not found or not found["per_task"]:
        return ""
    part, shown = result["metrics"].get("part", "test"), len(found["per_task"])
    few = shown < result["federation"]["tasks"]
    caption = (
        f"Rows without the event after so much time: Kaplan and Meier's estimate from {part} rows "
        "with Greenwood's 95 % band, and the mean of what the personal models predict for them, "
        "which should lie inside the band." + (f" The first {shown} tasks." if few else "")
    )
    note = "The solid lines are computed from the private rows of single tasks."
    head = heading("What became of the rows over time", result)
    return head + paragraph(note) + drawing(curves(found), "over-time", caption)


def curves(found: Mapping[str, Any]) -> Figure:
    """Small axes for each task, all with the same scales."""
    tasks, across = found["per_task"], min(ACROSS, len(found["per_task"]))
    down = math.ceil(len(tasks) / across)
    until = max(one["last"] for one in tasks.values()) or found["cuts"][-1]
    fig = figure(WIDE * across / ACROSS, 0.5 + 2.4 * down)
    for place, (name, one) in enumerate(tasks.items()):
        ax = axes(fig, down, across, place + 1)
        _draw(ax, one, found["cuts"], until)
        title = f"{shorten(name)} · {plural(one['rows'], 'row')}"
        ax.set_title(title, size=10, color=INK, loc="left", parse_math=False)
        ax.set(xlim=(0, until), ylim=(0, 1.02))
        if place % across:
            ax.tick_params(labelleft=False)
        else:
            ax.set_ylabel("without the event")
        if place + across >= len(tasks):
            ax.set_xlabel("time")
    handles, labels = fig.axes[0].get_legend_handles_labels()
    look: Any = {"frameon": False, "fontsize": 9.5, "labelcolor": INK}
    fig.legend(handles, labels, loc="outside upper left", ncols=2, **look)
    return fig


def _draw(ax: Axes, one: Mapping[str, Any], cuts: list[float], until: float) -> None:
    time = np.array([0.0, *one["time"], one["last"]])
    seen, low, high = (
        np.array([1.0, *one[name], (one[name] or [1.0])[-1]])
        for name in ("survival", "low", "high")
    )
    ax.fill_between(time, low, high, step="post", color=GAIN, alpha=0.15, linewidth=0)
    ax.step(time, seen, where="post", color=GAIN, linewidth=1.8, label=SEEN)
    if one["predicted"] is not None:
        # Hazards are constant inside intervals: there the logarithm is a straight line.
        logs = np.log(np.clip([1.0, *one["predicted"]], 1e-300, 1.0))
        when = np.unique([*np.linspace(0, until, 100), *(cut for cut in cuts if cut <= until)])
        said = np.exp(np.interp(when, [0.0, *cuts], logs))
        ax.plot(when, said, color=LOSS, linewidth=1.8, linestyle=(0, (4, 2)), label=SAID)
