"""The shapes of an additive model: one small picture for every column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.box import covered, heading
from tacit.report.page import drawing
from tacit.report.plots import shorten
from tacit.report.svg import GAIN, MUTED, WIDE, axes, figure

DRAWN = 30
"""Columns that are drawn, those with the largest shapes; more of them would be a wall."""
ACROSS = 3
BAND = 2.0
"""Standard deviations of the noise to either side."""
SHARED = (
    "What each column adds to a prediction, compared with its usual value, for all tasks together: "
    "{outcome}. The band is two standard deviations of the noise on sums of residuals to either "
    "side; what lies inside it around zero may be noise alone. What noisy votes (for common units, "
    "for the usual number of rows) do to large shapes comes on top, and so does sampling."
)
OWN = (
    "The same, with the own shapes of {tasks} as thin lines. They come from these tasks' own rows "
    "and never left them."
)


def section(result: Mapping[str, Any]) -> str:
    """Pictures of the shared shapes, then the same with tasks' own beside them."""
    found = result.get("shapes")
    if not found:
        return ""
    columns = largest(found["columns"])
    left = len(found["columns"]) - len(columns)
    more = f" The {len(columns)} largest shapes of {len(found['columns'])}." if left else ""
    caption = SHARED.format(outcome=found["outcome"]) + more
    who = f"{len(found['tasks'])} tasks" if len(found["tasks"]) > 1 else "one task"
    return (
        "<h2>Shared shapes</h2>"
        + covered(found["label"], result)
        + drawing(draw(columns, found["outcome"]), "shapes", caption)
        + heading("Beside tasks' own", result, 3)
        + drawing(draw(columns, found["outcome"], own=True), "own-shapes", OWN.format(tasks=who))
    )


def largest(columns: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most `DRAWN` of them, in the order of the table."""
    order = np.argsort([-np.ptp(column["shared"]) for column in columns], kind="stable")
    return [columns[k] for k in sorted(order[:DRAWN].tolist())]


def draw(columns: Sequence[Mapping[str, Any]], outcome: str, *, own: bool = False) -> Figure | None:
    """A picture for each column, all with the same heights, so that they can be compared."""
    if not columns:
        return None
    across = min(ACROSS, len(columns))
    down = math.ceil(len(columns) / across)
    fig = figure(WIDE * across / ACROSS, 2.15 * down)
    limit = _limit(columns, own)
    for place, column in enumerate(columns):
        ax = axes(fig, down, across, place + 1)
        _column(ax, column, own)
        ax.set_ylim(-limit, limit)
        if place % across:
            ax.tick_params(labelleft=False)
        else:
            ax.set_ylabel(outcome)
    return fig


def _column(ax: Axes, column: Mapping[str, Any], own: bool) -> None:
    places = np.array(column["places"])
    shared, noise = np.array(column["shared"]), np.array(column["noise"])
    ax.axhline(0, color=MUTED, linewidth=0.8)
    if own:
        for each in column["own"]:
            ax.plot(places, each, color=MUTED, linewidth=0.7, alpha=0.45)
    else:
        low, high = shared - BAND * noise, shared + BAND * noise
        ax.fill_between(places, low, high, color=GAIN, alpha=0.25, linewidth=0)
    ax.plot(places, shared, color=GAIN, linewidth=1.6, marker="o", markersize=2.5)
    if len(places) == 2:
        ax.set_xticks(places, ["0", "1"])
    else:
        ax.set_xlim(places[0], places[-1])
    ax.set_title(shorten(column["name"]), size=10, parse_math=False)
    if column["units"]:
        ax.set_xlabel(column["units"], size=8)


def _limit(columns: Sequence[Mapping[str, Any]], own: bool) -> float:
    """The height that shows all shared shapes with their bands; own ones may leave the picture."""
    ends = [
        np.abs(column["shared"]) + BAND * np.array(column["noise"]) * (not own)
        for column in columns
    ]
    most = float(np.concatenate(ends).max())
    if own:
        far = np.concatenate([np.abs(column["own"]).ravel() for column in columns])
        most = max(most, float(np.quantile(far, 0.98)))
    return 1.08 * most or 1.0
