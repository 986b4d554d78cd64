"""Private Ditto: a personal model beside the global one, pulled towards it.

Tian Li, Shengyuan Hu, Ahmad Beirami, Virginia Smith. "Ditto: Fair and Robust Federated Learning
Through Personalization." International Conference on Machine Learning, 2021.

| paper                                                          | here                        |
|----------------------------------------------------------------|-----------------------------|
| Algorithm 1, global part: any solver for w, here FedAvg         | `client`, the contribution  |
| Algorithm 1, v_k ← v_k − η(∇F_k(v_k) + λ(v_k − wᵗ))             | `client`, the state         |

Only the global part leaves a task, so Ditto is as private as FedAvg. With `pull=0` the personal
models are those of training alone. Both parts see the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class Ditto(BillboardMethod):
    """A private global model, and personal models regularised towards it."""

    asks_persons = True
    steps_from = "model"

    pull: float = 1.0
    """Strength of the pull towards the global model (λ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")

    @property
    def gradients(self) -> int:
        return 2 * self.local_steps

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"model": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"v": board["model"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        published, rate = board["model"], self.rate(board)
        w, _ = sgd(model, published, state["buffers"], batches, rate)
        v, buffers = sgd(
            model, state["v"], state["buffers"], batches, rate, pull=self.pull, towards=published
        )
        return {"v": v, "buffers": buffers}, w - published

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"model": board["model"] + mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["v"]
