"""When a run ends before its last round."""

from __future__ import annotations

from typing import Any

from tacit.methods.base import LARGEST, Board

ASTRAY = (
    "the billboard diverged in round {}, and tasks keep the one before: use a smaller lr, or "
    "method auto, whose steps cannot diverge"
)


def astray(board: Board) -> bool:
    """Whether the billboard diverged; it is public, so nothing is told by stopping there."""
    return not all(bool((value.abs() < LARGEST).all()) for value in board.tensors.values())


def no_better_for(curve: list[dict[str, Any]]) -> int:
    """Evaluations since the lowest loss."""
    losses = [point["loss"] for point in curve]
    return len(losses) - 1 - losses.index(min(losses))
