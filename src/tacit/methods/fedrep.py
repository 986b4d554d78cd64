"""Private FedRep: a shared representation on the billboard, a head of its own for every task.

Liam Collins, Hamed Hassani, Aryan Mokhtari, Sanjay Shakkottai. "Exploiting Shared Representations
for Personalized Federated Learning." International Conference on Machine Learning, 2021.

| paper                                                        | here                           |
|--------------------------------------------------------------|--------------------------------|
| Algorithm 1: τ steps on the head h_k with the body φ fixed    | `client`, first `head_steps`   |
| Algorithm 1: then step(s) on φ with the head fixed            | `client`, then `local_steps`   |
| φ ← mean of the tasks' bodies                                 | the channel, then `publish`    |

`head_steps=0` moves body and head together in each local step, which is FedPer (Arivazhagan et al.,
2019) and the split that LG-FedAvg turns around. Only the body leaves a task, so the noise falls on
fewer numbers than with a whole model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class FedRep(BillboardMethod):
    """The body of the network is shared and private, the last layers stay with each task."""

    head_layers: int = 1
    """Layers at the end of the model that belong to the task."""
    head_steps: int = 5
    """Local steps on the head alone, before the body moves (τ); 0 moves both together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("head_layers", self.head_layers >= 1, "at least 1")
        self._require("head_steps", self.head_steps >= 0, "zero or more")

    @property
    def steps(self) -> int:
        return self.head_steps + self.local_steps

    def _body(self, model: FlatModel) -> int:
        """How many of the parameters come before the head, or before all of several heads."""
        if model.headed:
            if self.head_layers != 1:
                raise TacitError(
                    f"FedRep(head_layers={self.head_layers}): the model has heads of its own, and "
                    "they stay with each task; leave head_layers out"
                )
            return model.parts[0].stop
        begins = [begin for _, begin in model.layers]
        if len(begins) <= self.head_layers:
            raise TacitError(
                f"FedRep keeps {self.head_layers} layer(s) of the model as the head, but the model "
                f"has only {len(begins)}: use a deeper model (model='mlp' or 'cnn')"
            )
        return begins[-self.head_layers]

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"body": model.start[: self._body(model)]}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"head": model.start[self._body(model) :], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        body, head, buffers = board["body"], state["head"], state["buffers"]
        for number, (x, y, weight) in enumerate(batches.steps()):
            slope, buffers = model.gradient(torch.cat([body, head]), buffers, x, y, weight)
            step = self.rate(board) * slope
            if number < self.head_steps or self.head_steps == 0:
                head = head - step[len(body) :]
            if number >= self.head_steps:
                body = body - step[: len(body)]
        return {"head": head, "buffers": buffers}, body - board["body"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"body": board["body"] + mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return torch.cat([board["body"], state["head"]])
