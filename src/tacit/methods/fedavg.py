"""Private FedAvg: one global model for all, the reference for every personal method.

Brendan McMahan, Daniel Ramage, Kunal Talwar, Li Zhang. "Learning Differentially Private Recurrent
Language Models." International Conference on Learning Representations, 2018.

| paper                                                     | here                        |
|-----------------------------------------------------------|-----------------------------|
| UserUpdateFedAvg: Δ_k = θ_k − θ⁰ after local SGD from θ⁰   | `client`                    |
| θ ← θ + (Σ clip(Δ_k, S) + noise) / (q W), every weight 1   | the channel, then `publish` |
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class FedAvg(BillboardMethod):
    """Federated averaging: every task ends with the same, published model."""

    asks_persons = True
    steps_from = "model"
    sends_steps = True

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"model": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        rate = self.rate(board)
        w, buffers = sgd(model, board["model"], state["buffers"], batches, rate)
        return {"buffers": buffers}, w - board["model"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"model": board["model"] + mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return board["model"]
