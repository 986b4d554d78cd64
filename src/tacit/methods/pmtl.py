"""PMTL: mean-regularised personal models around a private mean.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. "Private Multi-Task Learning: Formulation and
Applications to Federated Learning." Transactions on Machine Learning Research, 04/2023.

| paper                                               | here                              |
|-----------------------------------------------------|-----------------------------------|
| objective (2): 1/m Σ λ/2 ‖w_k − w̄‖² + l_k(w_k)      | `client` minimises task k's part  |
| Algorithm 1: w ← w − η(∇l_k(w) + λ(w − w̃))          | `client`, through `local.sgd`     |
| Algorithm 1: g_k = w_k − w̃ (TMLR version)           | `client`, `update="from-mean"`    |
| earlier versions: g_k = the task's own progress     | `client`, `update="from-previous"`|
| Algorithm 1: w̃ ← w̃ + 1/q Σ clip(g_k, γ) + N(0, σ²I) | the channel, then `publish`       |
| w̃⁰, the mean of the initial personal models         | `board`: all start from one model |

Differences from the printed algorithm, on purpose: the sum is divided by the *expected* cohort
size; contributions are not weighted by sample counts (that would break the bound γ); and a task
drawn for the first time starts from the billboard of that round, not from the untrained model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class PMTL(BillboardMethod):
    """Private multi-task learning: each task keeps its own model, pulled towards a private mean."""

    asks_persons = True

    pull: float = 1.0
    """Strength of the pull towards the published mean (λ)."""
    update: Literal["from-mean", "from-previous"] = "from-mean"
    """What is contributed: the distance to the published mean, or the task's own progress (g_k)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")
        readings = ("from-mean", "from-previous")
        self._require("update", self.update in readings, "'from-mean' or 'from-previous'")

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"mean": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": board["mean"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        mean, before, rate = board["mean"], state["w"], self.rate(board)
        w, buffers = sgd(
            model, before, state["buffers"], batches, rate, pull=self.pull, towards=mean
        )
        origin = mean if self.update == "from-mean" else before
        return {"w": w, "buffers": buffers}, w - origin

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"mean": board["mean"] + mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]
