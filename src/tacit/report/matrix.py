"""A heat map of pairs, written as SVG by hand: every cell is the page's own colour, fainter or not.

Matplotlib would make it an image, which knows nothing of dark mode, or megabytes of squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np

from tacit.report.clients import Clients, listed
from tacit.report.plots import shorten
from tacit.report.svg import css

LEVELS = 24
"""Shades between nothing and full colour; the eye tells fewer apart."""
LARGEST, CELL = 372.0, 40.0
"""Sides of the square and of a cell, at most, in points: the whole width of the page is 634."""
LETTER = 5.0
"""Width of a letter of a name, about."""


@dataclass(frozen=True)
class Scale:
    """Values from `low` (no colour) to `high` (full); below zero the other colour, if `both`."""

    low: float
    high: float
    both: bool

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        apart = ~np.eye(len(values), dtype=bool) & np.isfinite(values)
        found = values[apart] if apart.any() else np.zeros(1)
        least, most = float(found.min()), float(found.max())
        if least < 0 or np.nanmax(values) > 1 + 1e-6:
            # A covariance: the clients' own entries are far larger, and would leave no colour.
            reach = max(abs(least), abs(most)) or 1.0
            return cls(0.0, reach, least < 0)
        # Where all are much alike, shades begin later; the bar beside the picture says where.
        low = 0.0 if least < 0.5 else math.floor(10 * least) / 10
        return cls(low if low < 1 else 0.0, 1.0, False)

    def levels(self, values: np.ndarray) -> np.ndarray:
        """Whole numbers from -LEVELS to LEVELS."""
        share = (np.abs(values) - self.low) / (self.high - self.low)
        steps = np.rint(LEVELS * np.clip(np.nan_to_num(share), 0, 1)).astype(int)
        return np.where(values < 0, -steps, steps)


def heat_map(values: np.ndarray, clients: Clients, label: str, description: str) -> tuple[str, int]:
    """The drawing, and the share of the page's width that it takes, in per cent."""
    scale = Scale.of(values)
    side = min(LARGEST, CELL * max(len(clients), 4))
    cell = side / len(clients)
    names = [shorten(name, 16) for name in clients.names] if clients.named else []
    left = LETTER * max(map(len, names), default=0) + 24
    below = 0.85 * LETTER * max(map(len, names), default=0) + 24
    right = 18 + LETTER * max((len(_short(heads)) for heads, _, _ in clients.blocks), default=0)
    width, height = left + side + right + 78, side + below + 8
    drawn = [
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(description)}">',
        '<defs><pattern id="matrix-never" width="4" height="4" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0h1.2v4h-1.2z" style="fill: var(--muted); '
        'fill-opacity: 0.55"/></pattern></defs>',
        f'<g transform="translate({left:.1f} 4) scale({cell:.5f})" shape-rendering="crispEdges">',
        *_cells(values, scale),
        "</g>",
        f'<g transform="translate({left:.1f} 4)">',
        _frame(clients, side),
        _sets(clients, side),
        *_names(names, side),
        _text(-left + 9, side / 2, "client", "middle", 10, "ink", turned=True),
        _text(side / 2, side + below - 6, "compared with", "middle", 10, "ink"),
        f'<g transform="translate({side + right + 8:.1f} 0)">{_bar(scale, label)}</g>',
        "</g></svg>",
    ]
    return "".join(drawn), round(min(100.0, 100 * width / 633.6))


def _cells(values: np.ndarray, scale: Scale) -> list[str]:
    """One path for all cells of a shade; neighbours in a row are one rectangle."""
    levels, never = scale.levels(values), ~np.isfinite(values)
    paths: dict[int | None, list[str]] = {}
    for row in range(len(values)):
        marks = [None if n else int(v) for v, n in zip(levels[row], never[row], strict=True)]
        begin = 0
        for column in range(1, len(marks) + 1):
            if column < len(marks) and marks[column] == marks[begin]:
                continue
            if marks[begin] != 0:
                run = column - begin
                paths.setdefault(marks[begin], []).append(f"M{begin} {row}h{run}v1h-{run}z")
            begin = column
    return [
        f'<path d="{"".join(path)}" style="{_fill(level)}"/>'
        for level, path in sorted(paths.items(), key=lambda item: (item[0] is None, item[0] or 0))
    ]


def _fill(level: int | None) -> str:
    if level is None:
        return "fill: url(#matrix-never)"
    colour = "gain" if level > 0 else "loss"
    return f"fill: var(--{colour}); fill-opacity: {abs(level) / LEVELS:.3f}"


def _frame(clients: Clients, side: float) -> str:
    cell = side / len(clients)
    inner = "".join(
        f"M0 {begin * cell:.1f}h{side:.1f}M{begin * cell:.1f} 0v{side:.1f}"
        for _, begin, _ in clients.blocks[1:]
    )
    return (
        f'<path d="M0 0h{side:.1f}v{side:.1f}h-{side:.1f}z" style="fill: none; '
        'stroke: var(--muted); stroke-width: 0.8"/>'
        f'<path d="{inner}" style="fill: none; stroke: var(--ink); stroke-width: 0.7"/>'
    )


def _sets(clients: Clients, side: float) -> str:
    """A strip in the colour of each set of heads, and its name where there is room for it."""
    cell = side / len(clients)
    made = []
    for heads, begin, end in clients.blocks:
        if not heads:
            continue
        top, tall = begin * cell, (end - begin) * cell
        colour = clients.colours[begin]
        made.append(
            f'<path d="M{side + 3:.1f} {top + 0.6:.1f}h5v{max(tall - 1.2, 0.6):.1f}h-5z" '
            f'style="fill: {css(colour)}"/>'
        )
        if tall >= 8.5:
            made.append(_text(side + 12, top + tall / 2, _short(heads), "start", 8.5, "ink"))
    return "".join(made)


def _short(heads: tuple[str, ...]) -> str:
    return shorten(listed(heads), 22)


def _names(names: list[str], side: float) -> list[str]:
    cell = side / max(len(names), 1)
    size = min(8.5, cell)
    made = []
    for place, name in enumerate(names):
        at = (place + 0.5) * cell
        made.append(_text(-4, at, name, "end", size, "muted"))
        made.append(_text(at, side + 4, name, "end", size, "muted", turned=True))
    return made


def _bar(scale: Scale, label: str) -> str:
    """What a shade means, from full colour down."""
    low = -LEVELS if scale.both else 0
    steps = list(range(LEVELS, low - 1, -1))
    tall = 150.0
    step = tall / len(steps)
    bands = "".join(
        f'<path d="M0 {k * step:.2f}h12v{step:.2f}h-12z" style="{_fill(level)}"/>'
        for k, level in enumerate(steps)
        if level
    )
    ends = [(0.0, scale.high), (tall, -scale.high if scale.both else scale.low)]
    ends.insert(1, (tall / 2, 0.0 if scale.both else (scale.low + scale.high) / 2))
    marks = ""
    for at, value in ends:
        words = f"{value:.2g}".replace("-", "\N{MINUS SIGN}")
        marks += _text(17, min(max(at, 4), tall - 3), words, "start", 9, "muted")
    return (
        f'<g shape-rendering="crispEdges">{bands}</g>'
        f'<path d="M0 0h12v{tall:.0f}h-12z" style="fill: none; stroke: var(--muted); '
        f'stroke-width: 0.6"/>{marks}{_text(50, tall / 2, label, "middle", 10, "ink", turned=True)}'
    )


def _text(
    x: float, y: float, words: str, anchor: str, size: float, colour: str, *, turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}"{turn} style="font-size: {size:.1f}px; '
        f'text-anchor: {anchor}; dominant-baseline: central; fill: var(--{colour})">'
        f"{escape(words)}</text>"
    )
