"""Files: CSV, PNG, SVG, Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure


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
