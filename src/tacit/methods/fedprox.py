"""Private FedProx: federated averaging whose local steps stay near the published model.

Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith. "Federated
Optimization in Heterogeneous Networks." Proceedings of Machine Learning and Systems, 2020.

| paper                                                    | here                              |
|----------------------------------------------------------|-----------------------------------|
| Algorithm 2: w_k ≈ argmin F_k(w) + μ/2 ‖w − wᵗ‖²          | `client`, through `local.sgd`     |
| wᵗ⁺¹ = mean of the w_k                                    | the channel, then FedAvg's `publish` |

With `pull=0` it is FedAvg, step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, State
from tacit.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg with a pull towards the published model during local training."""

    steps_from = "model"  # where it begins, nothing pulls
    sends_steps = True  # what no gradient moves is where it is pulled to

    pull: float = 0.1
    """Strength of the pull (μ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        published, rate = board["model"], self.rate(board)
        w, buffers = sgd(
            model, published, state["buffers"], batches, rate, pull=self.pull, towards=published
        )
        return {"buffers": buffers}, w - published
