"""Matplotlib figures as SVG that lives inside a page: its fonts, its colours, its dark mode."""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

# Okabe and Ito's blue and vermilion: told apart with every common colour blindness, and in grey.
INK, MUTED, GRID = "#1d2429", "#5c6770", "#e2e6e9"
GAIN, LOSS, SPENT = "#0072b2", "#d55e00", "#8a4f9e"
SERIES = (GAIN, LOSS, "#00896a", SPENT, "#a67c00", "#3f8fc4", "#6b7280")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", GAIN: "gain", LOSS: "loss", SPENT: "spent"}
WIDE = 8.8
"""Inches of a figure that fills the width of the page."""
SLIM = 4.6
"""… and of a telephone."""
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


class Picture(Figure):
    """A figure that a notebook shows without pyplot; `show` and `savefig` are as they were."""

    def _repr_html_(self) -> str:
        drawn = svg(self, f"picture-{id(self)}", "figure")
        width = f"{self.get_figwidth():.1f}in"
        return f'<div style="background: #fff; max-width: {width}">{drawn}</div>'


def figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody: no pyplot, no global state."""
    return Picture(figsize=(width, height), layout="constrained", facecolor="none")


def axes(fig: Figure, *position: int | SubplotSpec) -> Axes:
    """Axes in the style of the page: two thin spines, a quiet grid, text in the page's ink."""
    given: Any = position
    ax = fig.add_subplot(*given)
    ax.set_facecolor("none")
    ax.grid(True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
        ax.spines[side].set_linewidth(0.8)
    quiet(ax)
    return ax


def quiet(ax: Axes) -> None:
    ax.tick_params(colors=MUTED, labelsize=9, length=3, width=0.8, which="both")
    ax.xaxis.label.set(color=INK, size=10)
    ax.yaxis.label.set(color=INK, size=10)


def beside(
    ax: Axes, words: str, at: tuple[Any, Any], offset: tuple[Any, Any], **style: Any
) -> None:
    """Words a few points away from a place, as plain text."""
    usual: Any = {"textcoords": "offset points", "size": 9.5, "va": "center", "parse_math": False}
    ax.annotate(words, at, offset, **(usual | style))


def svg(fig: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its ids apart from those of other figures."""
    settings: Any = {"svg.hashsalt": f"tacit-{name}", "svg.fonttype": "none", "path.simplify": True}
    buffer = io.StringIO()
    # Names may be in a script that the measuring font lacks; the browser's own font draws them.
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        fig.savefig(buffer, format="svg", metadata=metadata)
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :].strip()
    # Metadata carry links; comments repeat every text.
    drawn = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawn, flags=re.DOTALL)
    head, body = drawn.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    # Text nodes cannot match these patterns: matplotlib writes user text with < > & escaped, and
    # replacements are confined to what stands inside tags.
    body = re.sub(r"<[^>]+>", lambda found: _tag(found.group(), name), body)
    label = escape(description)
    return f'<svg {box.group()} role="img" aria-label="{label}">{body}'


def _tag(tag: str, name: str) -> str:
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'\b(?:xlink:)?href="#', f'href="#{name}-', tag)
    tag = tag.replace("url(#", f"url(#{name}-")
    # Matplotlib measured with its own, wider font; versions differ in how they write it.
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r"(font: [^;\"]*?[\d.]+px )[^;\"]*", lambda f: f.group(1) + FONT, tag)
    for colour in _VARIABLES:
        tag = tag.replace(colour, css(colour))
    return tag


def css(colour: str) -> str:
    """A colour as the page has it, which differs in dark mode."""
    return f"var(--{_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour
