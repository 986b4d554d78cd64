"""MOCHA: multi-task learning where the curator learns how clients are related.

Virginia Smith, Chao-Kai Chiang, Maziar Sanjabi, Ameet Talwalkar. "Federated Multi-Task Learning."
Advances in Neural Information Processing Systems, 2017. The relationship step is that of Yu Zhang,
Dit-Yan Yeung, "A Convex Formulation for Learning Task Relationships in Multi-Task Learning",
UAI 2010.

| paper                                                                | here                  |
|----------------------------------------------------------------------|-----------------------|
| eq. 1: min Σ_k f_k(w_k) + λ/2 tr(V Ω Vᵀ), V the models               | `client` and `answer` |
| W step with Ω fixed: a sub-problem for each client                   | `client`              |
| Ω step with W fixed: covariance (VᵀV)^½ / trace, Ω its inverse       | `relationship`        |

Differences. Sub-problems are solved in the primal, by SGD, so that models need not be linear (the
paper's dual method is for convex losses). V are distances from the public start, which for linear
models is zero and the models themselves. The trace is n, so that unrelated clients of equal size
have Ω = I, whatever their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.exchange import Answer, Uploads
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State
from tacit.methods.exchange import ExchangeMethod


def relationship(models: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The covariance between clients [n, n] (trace n) and its inverse Ω, made safe by a ridge."""
    values, vectors = torch.linalg.eigh((models @ models.T).double())
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    n, trace = len(root), root.trace()
    eye = torch.eye(n, dtype=root.dtype, device=root.device)
    covariance = root * (n / trace) if trace > 0 else eye
    return covariance, torch.linalg.inv(covariance + ridge * eye)


@dataclass(frozen=True, kw_only=True)
class MOCHA(ExchangeMethod):
    """Clients are pulled to where their relatives are; who is related is learned."""

    pull: float = 0.1
    """Strength of the regulariser (λ)."""
    ridge: float = 0.1
    """Added to the covariance before it is inverted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")
        self._require("ridge", self.ridge > 0, "a positive number")

    def state(self, model: FlatModel, board: Board) -> State:
        start = board["start"]
        # Before the first answer nobody is related: nothing but the own part pulls.
        return {
            "w": start,
            "relatives": torch.zeros_like(start),
            "stiffness": torch.ones_like(start[:1]),
            "buffers": model.buffers,
        }

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        start, w, buffers = board["start"], state["w"], state["buffers"]
        rate, stiffness = self.rate(board), self.pull * state["stiffness"]
        for x, y, weight in batches.steps():
            slope, buffers = model.gradient(w, buffers, x, y, weight)
            pulled = stiffness * (w - start - state["relatives"])
            # Implicit in the pull: a stiff relationship must not make the step overshoot.
            w = w - rate * (slope + pulled) / (1 + rate * stiffness)
        sent = torch.cat([w - start, torch.ones_like(w[:1])])
        return state | {"w": w, "buffers": buffers}, sent

    def answer(self, uploads: Uploads, memory: dict[str, Tensor]) -> Answer:
        covariance, omega = relationship(uploads.model, self.ridge)
        own = omega.diagonal()
        # Minimising over w_i alone: Ω_ii w_i + Σ_j Ω_ij w_j, so it is pulled to the sum below.
        others = (-omega / own.unsqueeze(1)).fill_diagonal_(0.0)
        # A head that a client does not hold stays where everybody began.
        heads = others * uploads.holds.T.unsqueeze(2)
        weights = torch.cat([others.unsqueeze(0), heads, torch.diag(own).unsqueeze(0)])
        return Answer(weights.unsqueeze(0).to(uploads.vectors.dtype), similarity=covariance.float())

    def receive(
        self, model: FlatModel, board: Board, state: State, answer: Tensor, rows: Batches
    ) -> State:
        return state | {"relatives": answer[0, : model.size], "stiffness": answer[0, model.size :]}
