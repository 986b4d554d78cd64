"""Training alone: nothing leaves a task. What joining must beat.

`shrink` pulls towards the model everyone starts from, so that a small task can be given the
regularisation it needs; a comparison against an unregularised task would flatter the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, State, TrainedMethod


@dataclass(frozen=True, kw_only=True)
class Local(TrainedMethod):
    """Purely local training."""

    channel = "nothing"

    shrink: float = 0.0
    """Strength of the pull towards the starting model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("shrink", self.shrink >= 0, "zero or more")

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"start": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": board["start"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        rate, start = self.rate(board), board["start"]
        w, buffers = sgd(
            model, state["w"], state["buffers"], batches, rate, pull=self.shrink, towards=start
        )
        return {"w": w, "buffers": buffers}, w[:0]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return board.tensors

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]
