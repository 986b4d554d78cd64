"""PMTL over a fixed relationship: clusters of tasks, or a given matrix Ω.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. "Private Multi-Task Learning: Formulation and
Applications to Federated Learning." Transactions on Machine Learning Research, 04/2023.

| paper                                                        | here                          |
|--------------------------------------------------------------|-------------------------------|
| objective (1) with fixed Ω: Σ l_k(w_k) + λ/2 tr(W Ω Wᵀ)       | `client` minimises k's part   |
| its slope, λ(c w_k − (QΛQᵀW)_k)                               | `client`: pull λc to `target` |
| clusters with mean regularisation inside each                 | Ω = blocks of I − 11ᵀ/m_c     |
| w̃ ← w̃ + noisy mean of clipped updates, one per sum            | the channel, then `publish`   |

The billboard holds S = QᵀW, r sums (`data.relation` says which Ω that covers). Task k contributes
how far its model is from what the sums say of it, (QS)_k, spread over the sums by its loadings, so
S settles at QᵀW. With one cluster this is PMTL.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.data.relation import Relation, parts
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, RelatedMethod, State


@dataclass(frozen=True, kw_only=True)
class RelatedPMTL(RelatedMethod):
    """PMTL inside clusters, or along a public Ω: `federation.clustered(...)`, `.related(...)`."""

    known_as = "related"

    pull: float = 1.0
    """Strength of the relationship (λ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")

    def sums(self, model: FlatModel, relation: Relation) -> dict[str, Tensor]:
        return {"sums": relation.start.to(model.start).outer(model.start)}

    def read(self, board: Board, place: Tensor) -> Board:
        sums = board["sums"]
        fit, target, own, rest = parts(place, len(sums))
        mine = {"fit": fit @ sums, "target": target @ sums, "strength": own, "rest": rest}
        return Board(mine, board.round)

    def state(self, model: FlatModel, board: Board) -> State:
        # A task that the sums do not reach (an isolated one) starts from the model itself.
        return {"w": board["fit"] + board["rest"] * model.start, "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        pull, target, rate = self.pull * board["strength"], board["target"], self.rate(board)
        w, buffers = sgd(
            model, state["w"], state["buffers"], batches, rate, pull=pull, towards=target
        )
        return {"w": w, "buffers": buffers}, w - board["fit"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"sums": board["sums"] + mean.reshape(board["sums"].shape)}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]
