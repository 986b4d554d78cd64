"""The figure of a forecast: the gain over ε, and over the number of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from tacit.errors import TacitError
from tacit.report.svg import GAIN, INK, MUTED, WIDE, axes, figure

ENDINGS = (".png", ".svg", ".pdf")


def draw(forecast: Mapping[str, Any], path: Path) -> None:
    """Write it, in the format of the name's ending."""
    if path.suffix.lower() not in ENDINGS:
        raise TacitError(f"{path}: a plot's name ends with {', '.join(ENDINGS)}")
    fig = figure(WIDE, 3.4)
    here = forecast["here"]
    epsilon = "no privacy" if here["epsilon"] is None else f"ε = {here['epsilon']:g}"
    hidden = "" if forecast["unit"] == "task" else f", every {forecast['unit']} hidden"
    left, right = axes(fig, 1, 2, 1), axes(fig, 1, 2, 2)
    words = [
        "none" if each["epsilon"] is None else f"{each['epsilon']:g}"
        for each in forecast["by_epsilon"]
    ]
    _line(left, forecast["by_epsilon"], words, f"ε, with {here['tasks']} tasks{hidden}")
    words = [f"{each['tasks']}" for each in forecast["by_tasks"]]
    _line(right, forecast["by_tasks"], words, f"tasks, {epsilon}")
    left.set_ylabel(f"lower {forecast['measure']}\nthan the best alone", color=INK)
    right.sharey(left)
    left.legend(frameon=False, fontsize=9, labelcolor=INK)
    fig.savefig(path, facecolor="white", dpi=150)


def _line(ax: Axes, points: Sequence[Mapping[str, Any]], words: list[str], label: str) -> None:
    places = range(len(points))
    low, gain, high, others = (
        [each[name] for each in points] for name in ("low", "gain", "high", "from_others")
    )
    between = "little to much in common"
    ax.fill_between(places, low, high, color=GAIN, alpha=0.15, linewidth=0, label=between)
    ax.plot(places, gain, color=GAIN, linewidth=2, marker="o", label="half in common")
    ax.plot(places, others, color=MUTED, linestyle=(0, (4, 3)), label="of which from others")
    ax.set_xticks(list(places), words)
    ax.set_xlabel(label)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
