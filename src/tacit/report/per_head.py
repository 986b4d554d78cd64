"""How well each head is predicted: with the others' help, alone, and by one model for all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tacit.report.box import heading
from tacit.report.page import details, drawing, paragraph, table
from tacit.report.plots import shorten
from tacit.report.scores import BASELINES, Score, baseline, number
from tacit.report.svg import GAIN, GRID, INK, LOSS, SPENT, WIDE, axes, figure
from tacit.report.words import count, plural

DRAWN = 40
"""Up to this many heads are drawn; more of them are a table."""
LABELS = 60
"""Up to this many labels are listed one by one."""
ACCURACY = Score("accuracy", "accuracy", True)
LINES = {
    "personal": ("personal models", GAIN, "o"),
    "local": (BASELINES["local"], LOSS, "s"),
    "global": (BASELINES["global"], SPENT, "D"),
}


def section(result: Mapping[str, Any]) -> str:
    """Shown wherever tasks work on different heads, whatever the channel."""
    heads = result["federation"].get("heads")
    lines = _lines(result, "per_head")
    if heads is None or "personal" not in lines:
        return ""
    names = [str(name) for name in heads["names"]]
    holders = np.bincount([h for held in heads["holds"] for h in held], minlength=len(names))
    pixels = result["federation"].get("kind") == "segmentation"
    what, right = (
        ("classes of pixels", "pixels that get their right class")
        if pixels
        else ("labels", "labels that are predicted right")
    )
    said = paragraph(
        f"A head is a group of {what}; there are {count(len(names))} of them, and a task works on "
        f"some. Here is the share of {right}, head by head, over all tasks that work on it."
    )
    tasks = [plural(int(n), "task") for n in holders]
    rows = [
        [name, held, *(ACCURACY.text(lines[line][k]) for line in lines)]
        for k, (name, held) in enumerate(zip(names, tasks, strict=True))
    ]
    titles = [LINES[line][0] for line in lines]
    listed = details("Heads in numbers", table(["head", "held by", *titles], rows))
    fig = dots(names, tasks, lines) if len(names) <= DRAWN else None
    part = result["metrics"].get("part", "test")
    caption = f"Accuracy of each head on {part} rows, and the number of tasks that hold it."
    head = heading("Accuracy by head", result) + said
    return head + drawing(fig, "heads", caption) + listed + _labels(result, titles)


def _lines(result: Mapping[str, Any], key: str) -> dict[str, list[float | None]]:
    """The accuracies of the run and of each baseline that has them."""
    found = {"personal": result["metrics"].get(key)}
    found |= {name: (baseline(result, name) or {}).get(key) for name in ("local", "global")}
    return {name: list(values) for name, values in found.items() if values is not None}


def dots(names: list[str], tasks: list[str], lines: Mapping[str, list[float | None]]) -> Figure:
    """A row for each head, a mark for each kind of model."""
    fig = figure(WIDE, 1.1 + 0.3 * len(names))
    ax = axes(fig)
    place = np.arange(len(names))[::-1]
    values = {name: 100 * np.array([number(v) for v in line]) for name, line in lines.items()}
    every = np.array(list(values.values()))
    seen = np.isfinite(every).any(axis=0)
    low, high = (end(every[:, seen], axis=0) for end in (np.nanmin, np.nanmax))
    ax.hlines(place[seen], low, high, color=GRID, linewidth=5, zorder=1)
    # The run's own marks lie on top of the others.
    for name in reversed(list(values)):
        words, colour, marker = LINES[name]
        own = name == "personal"
        # Hollow and larger: what lies at the same place as the run's own mark is still seen.
        size, face, line = (44, colour, 0) if own else (84, "none", 1.7)
        style: Any = {"s": size, "facecolors": face, "edgecolors": colour, "linewidths": line}
        ax.scatter(values[name], place, marker=marker, label=words, zorder=3, **style)
    ax.set_yticks(place, [f"{shorten(n)} · {t}" for n, t in zip(names, tasks, strict=True)])
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(False, axis="y")
    ax.margins(x=0.06)
    ax.set_xlabel("accuracy (%), higher is better")
    handles, labels = ax.get_legend_handles_labels()
    look: Any = {"frameon": False, "fontsize": 9.5, "labelcolor": INK, "handletextpad": 0.2}
    fig.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=3, **look)
    return fig


def _labels(result: Mapping[str, Any], titles: list[str]) -> str:
    """Accuracy of each single label, folded away."""
    lines = _lines(result, "per_label")
    federation = result["federation"]
    labels, heads = federation.get("labels") or [], federation["heads"]
    if not labels or len(labels) > LABELS or any(len(v) != len(labels) for v in lines.values()):
        return ""
    owner = [
        n for n, size in zip(heads["names"], heads["outputs"], strict=True) for _ in range(size)
    ]
    rows = [
        [label, head, *(ACCURACY.text(line[k]) for line in lines.values())]
        for k, (label, head) in enumerate(zip(labels, owner, strict=True))
    ]
    common = np.array([number(v) for v in lines["personal"]])
    undefined = int(sum(math.isnan(v) for v in common))
    note = paragraph(f"{plural(undefined, 'label')} without rows.", "note") if undefined else ""
    shown = table(["label", "head", *titles], rows, kind="left") + note
    return details(f"{count(len(labels))} labels in numbers", shown)
