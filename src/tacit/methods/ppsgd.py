"""PP-SGD: a shared private part plus a personal part, added.

Alberto Bietti, Chen-Yu Wei, Miroslav Dudík, John Langford, Zhiwei Steven Wu. "Personalization
Improves Privacy-Accuracy Tradeoffs in Federated Learning." International Conference on Machine
Learning, 2022.

| paper                                                     | here                           |
|-----------------------------------------------------------|--------------------------------|
| prediction with w + θ_k (for linear models (w + θ_k)ᵀx)     | `client`, `personal`           |
| θ_k ← θ_k − η ∂f_k/∂θ_k, kept by the task                  | `client`, the state            |
| w ← w − αη · noisy mean of clipped ∂f_k/∂w                 | `client`, the channel, `publish` |

For networks parameter vectors are added, as for linear models. Several local steps move both parts;
α, which trades the shared against the personal part, is `personal_rate` = 1/α here.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class PPSGD(BillboardMethod):
    """Each task predicts with the published model plus an offset of its own."""

    personal_rate: float = 1.0
    """Step size of the personal part relative to the shared one (1/α)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("personal_rate", self.personal_rate >= 0, "zero or more")

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"shared": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"own": 0 * board["shared"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        shared, own, buffers = board["shared"], state["own"], state["buffers"]
        for x, y, weight in batches.steps():
            slope, buffers = model.gradient(shared + own, buffers, x, y, weight)
            shared = shared - self.rate(board) * slope
            own = own - self.rate(board) * self.personal_rate * slope
        return {"own": own, "buffers": buffers}, shared - board["shared"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"shared": board["shared"] + mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return board["shared"] + state["own"]
