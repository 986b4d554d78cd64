"""Groups that tasks found by themselves: how large they are, and whose model serves whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from tacit.report.box import covered, heading
from tacit.report.page import drawing, paragraph, table
from tacit.report.scores import number
from tacit.report.shared import decimals, shown
from tacit.report.svg import GAIN, INK, MUTED, WIDE, axes, figure
from tacit.report.words import plural

PALE = LinearSegmentedColormap.from_list("pale", ["#ffffff", GAIN])
DARK, ON_PALE = 0.6, "#202020"
"""Darker cells have white letters, others black ones, by day and by night."""

ABOUT = (
    "Percent are the published shares of tasks. Nothing says how sure a coefficient is: the "
    "smaller a group, the more noise is in its model."
)
NOT_SHOWN = (
    "The groups' models are not drawn: only linear ones with one output and at most 30 columns are."
)


def section(result: Mapping[str, Any]) -> str:
    """Shown for methods whose tasks join groups."""
    found = result.get("groups")
    if not found:
        return ""
    return _found(found, result) + _models(result)


def _found(found: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """How large groups are, and how well each one's model serves the others."""
    head = heading("Groups that tasks found", result)
    sizes = [int(n) for n in found["members"]]
    if len(sizes) == 1:
        return head + paragraph(
            "One group: nothing stood out of the noise that would part the tasks, so all of them "
            "learn from all."
        )
    said = paragraph(
        f"There are {plural(len(sizes), 'group')}. Each task measured every group's model on its "
        "own rows and joined the best; nobody was told which. What is published are the models and "
        "a noisy share of the tasks in each. Who is where is counted here in a simulation only."
    )
    caption = (
        "Left: the share of tasks in each group, as published with noise and as it is. Right: the "
        "mean loss of a group's members (row) with each group's model (column). Dark is "
        "good for these members: the paler the rest of a row, the more they gain from their own "
        "group."
    )
    return head + said + drawing(_drawn(found), "groups", caption)


def _models(result: Mapping[str, Any]) -> str:
    """Coefficients of all groups beside each other; older results have none."""
    if "group_models" not in result:
        return ""
    found = result["group_models"]
    if found is None:
        return paragraph(NOT_SHOWN, "note")
    shares = zip(found["share"], found["coefficients"], strict=True)
    head = ["", *(f"group {g} · {share:.0%}" for g, (share, _) in enumerate(shares, 1))]
    rows = [
        [name, *(shown(value, _digits(values)) for value in values)]
        for name, *values in zip(found["names"], *found["coefficients"], strict=True)
    ]
    return (
        "<h2>The models of groups</h2>"
        + covered(found["label"], result)
        + table(head, rows)
        + paragraph(f"Coefficients in {found['units']}. {ABOUT}", "note")
    )


def _digits(values: Sequence[float | None]) -> int | None:
    """So many decimals that the largest of a row has three digits."""
    return decimals(max(abs(value or 0.0) for value in values) / 10)


def _drawn(found: Mapping[str, Any]) -> Figure:
    sizes, shares = np.array(found["members"]), 100 * np.array(found["share"])
    groups = np.arange(len(sizes))
    fig = figure(WIDE, 1.4 + 0.42 * len(groups))
    grid = fig.add_gridspec(1, 2, width_ratios=[1, 1.25])
    left, right = axes(fig, grid[0]), axes(fig, grid[1])
    bars: Any = {"height": 0.55, "color": GAIN, "alpha": 0.35, "label": "in this simulation"}
    left.barh(groups, 100 * sizes / max(sizes.sum(), 1), **bars)
    left.scatter(shares, groups, color=INK, s=34, zorder=3, label="published")
    look: Any = {"frameon": False, "fontsize": 9, "labelcolor": INK, "ncols": 2}
    left.legend(loc="lower left", bbox_to_anchor=(0, 1), **look)
    left.set_yticks(groups, [f"group {g + 1} · {plural(int(sizes[g]), 'task')}" for g in groups])
    left.set_xlabel("share of tasks (%)")
    left.set_xlim(0, None)
    left.grid(False, axis="y")
    values = np.array([[number(v) for v in row] for row in found["losses"]])
    best = np.nan_to_num(values, nan=np.inf).min(axis=1, keepdims=True)  # nobody may be there
    lightness = best / np.where(values > 0, values, np.nan)
    edges = np.arange(len(groups) + 1) - 0.5
    right.pcolormesh(edges, edges, np.nan_to_num(lightness), cmap=PALE, vmin=0, vmax=1.3)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if lightness[row, column] > DARK else ON_PALE
            right.text(column, row, f"{value:.3g}", ha="center", va="center", c=colour, size=9.5)
    right.set_xticks(groups, [f"model {g + 1}" for g in groups])
    right.set_yticks(groups, [f"members {g + 1}" for g in groups])
    right.set_xlabel("mean loss, lower is better")
    right.grid(False)
    for side in ("left", "bottom"):
        right.spines[side].set_visible(False)
    for ax in (left, right):
        ax.tick_params(axis="y", length=0, colors=MUTED)
        ax.set_ylim(len(groups) - 0.5, -0.5)
    return fig
