"""Means over seeds, and files: CSV, PNG, SVG, Markdown."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tacit.reproduce.grid import Record


@dataclass(frozen=True)
class Mean:
    """Over the seeds of one cell."""

    set: str
    method: str
    mode: str
    epsilon: float
    seeds: int
    mean: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}" if self.seeds > 1 else f"{self.mean:.3f}"


def means(records: Iterable[Record]) -> list[Mean]:
    """In the order in which the cells first appear."""
    groups: dict[tuple[str, str, str, float], dict[int, float]] = {}
    for record in records:
        key = (record.set, record.method, record.mode, record.epsilon)
        groups.setdefault(key, {})[record.seed] = record.accuracy_per_task
    return [
        Mean(*key, len(values), statistics.mean(values.values()), _sd(list(values.values())))
        for key, values in groups.items()
    ]


def _sd(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def show_epsilon(epsilon: float) -> str:
    if epsilon == 0:
        return "0 (nothing released)"
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_figure(folder: Path, stem: str, fig: Figure) -> None:
    """PNG and SVG on white, so that both can be read in any mode of a page."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: Any = {"svg.hashsalt": f"tacit-{stem}", "svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        fig.savefig(folder / f"{stem}.png", dpi=150, facecolor="white")
        plain = dict.fromkeys(("Date", "Creator"))
        fig.savefig(folder / f"{stem}.svg", facecolor="white", metadata=plain)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
