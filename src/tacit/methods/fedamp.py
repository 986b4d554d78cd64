"""FedAMP: attentive message passing, every client near a mixture of models like its own.

Yutao Huang, Lingyang Chu, Zirui Zhou, Lanjun Wang, Jiangchuan Liu, Jian Pei, Yong Zhang.
"Personalized Cross-Silo Federated Learning on Non-IID Data." AAAI, 2021.

| paper                                                                 | here                 |
|-----------------------------------------------------------------------|----------------------|
| eq. 4 and 5: u_i = Σ_j ξ_ij w_j, ξ_ij = α A'(‖w_i − w_j‖²) for j ≠ i    | `answer`             |
| A(x) = 1 − exp(−x / σ); ξ_ii = 1 − Σ_{j≠i} ξ_ij                         | `answer`             |
| eq. 6: w_i = argmin f_i(w) + λ / (2α) ‖w − u_i‖², from u_i              | `client`, `pull`     |

ξ_ij must sum to less than one, which the paper leaves to the choice of α. Here α is
`others · σ / (n − 1)`, so that all others together have at most the share `others`; and σ is
measured in units of the median squared distance of the round, so that it does not depend on the
size of the model. The proximal term has a gradient: a common implementation takes it of detached
parameters, which leaves local training from u_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.exchange import Answer, Uploads, distances, guarded
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, State
from tacit.methods.exchange import MixingMethod


@dataclass(frozen=True, kw_only=True)
class FedAMP(MixingMethod):
    """Clients with similar models pull each other together."""

    pull: float = 1.0
    """Strength of the pull towards the cloud model (λ / α)."""
    sigma: float = 1.0
    """How fast attention falls with distance (σ), in median squared distances."""
    others: float = 0.9
    """Largest share that all other clients together have in a cloud model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")
        self._require("sigma", self.sigma > 0, "a positive number")
        self._require("others", 0 < self.others <= 1, "above 0, and at most 1")

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": board["start"], "cloud": board["start"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        cloud, rate = state["cloud"], self.rate(board)
        w, buffers = sgd(
            model, cloud, state["buffers"], batches, rate, pull=self.pull, towards=cloud
        )
        # Until it is answered, its own model is all the cloud it has.
        return {"w": w, "cloud": w, "buffers": buffers}, w

    def answer(self, uploads: Uploads, memory: dict[str, Tensor]) -> Answer:
        n = len(uploads)
        apart = distances(uploads.model)
        others = ~torch.eye(n, dtype=torch.bool, device=apart.device)
        unit = apart[others & apart.isfinite()]
        unit = unit.median() if len(unit) else apart.new_ones(())
        near = torch.where(apart > 0, torch.exp(-apart / (self.sigma * unit)), 1.0)
        attention = torch.where(others, self.others / max(1, n - 1) * near, 0.0)
        held = uploads.holds.T.to(attention.dtype)
        each = attention * held.unsqueeze(1) * held.unsqueeze(2)
        weights = torch.cat([attention.unsqueeze(0), each, torch.zeros_like(attention[None])])
        weights = weights + torch.diag_embed(1 - weights.sum(dim=-1))
        return Answer(guarded(weights, self.min_peers).unsqueeze(0))

    def receive(
        self, model: FlatModel, board: Board, state: State, answer: Tensor, rows: Batches
    ) -> State:
        return state | {"cloud": answer[0]}
