"""What the plots of several papers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tacit.report.svg import INK


def stroke(colour: str, marker: str, style: Any, size: float = 4.5) -> dict[str, Any]:
    """A line and its markers, which are hollow where the line is not solid."""
    face = colour if style == "-" else "white"
    marks = {"marker": marker, "markersize": size, "markerfacecolor": face}
    return {"color": colour, "linestyle": style, **marks}


def with_title(fig: Figure, title: str) -> Figure:
    """On white, so that it can be read in any mode of a page."""
    fig.suptitle(title, size=11.5, color=INK, x=0.01, ha="left")
    fig.patch.set_facecolor("white")
    return fig


def with_legend(fig: Figure, handles: Sequence[Any], columns: int) -> Figure:
    """The legend below all panels."""
    place = {"loc": "outside lower left", "ncols": columns}
    fig.legend(handles=list(handles), frameon=False, fontsize=8.5, labelcolor=INK, **place)
    return fig


def legend_key(colour: str, marker: str, label: str, **more: Any) -> Line2D:
    """A marker without a line, for a legend."""
    return Line2D([], [], color=colour, marker=marker, linestyle="", label=label, **more)
