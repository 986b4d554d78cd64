"""Private pFedMe: personal models through Moreau envelopes.

Canh T. Dinh, Nguyen H. Tran, Tuan Dung Nguyen. "Personalized Federated Learning with Moreau
Envelopes." Advances in Neural Information Processing Systems, 2020.

| paper                                                            | here                      |
|------------------------------------------------------------------|---------------------------|
| F_k(w) = min_θ f_k(θ) + λ/2 ‖θ − w‖²                              | what `client` descends on |
| Algorithm 1, line 7: θ̃ ≈ argmin on one batch                      | `client`, `inner_steps`   |
| Algorithm 1, line 8: w_k ← w_k − ηλ(w_k − θ̃)                      | `client`                  |
| Algorithm 1, line 11: wᵗ⁺¹ = (1 − β) wᵗ + β · mean of the w_k      | `publish`, `server_rate`  |
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import BillboardMethod, Board, State


@dataclass(frozen=True, kw_only=True)
class PFedMe(BillboardMethod):
    """Personal models are proximal points of a private global model."""

    pull: float = 1.0
    """Strength of the pull between personal and global model (λ)."""
    inner_steps: int = 5
    """Gradient steps towards the proximal point on each batch (K)."""
    inner_lr: float = 0.1
    """Step size of those."""
    server_rate: float = 1.0
    """How far the billboard moves towards the mean of the tasks (β)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull > 0, "a positive number")
        self._require("inner_steps", self.inner_steps >= 1, "at least 1")
        self._require("inner_lr", self.inner_lr > 0, "a positive number")
        self._require("server_rate", self.server_rate > 0, "a positive number")

    @property
    def gradients(self) -> int:
        return self.local_steps * self.inner_steps

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"model": model.start}

    def state(self, model: FlatModel, board: Board) -> State:
        return {"theta": board["model"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        w, theta, buffers = board["model"], state["theta"], state["buffers"]
        for x, y, weight in batches.steps():
            for _ in range(self.inner_steps):
                slope, after = model.gradient(theta, buffers, x, y, weight)
                theta = theta - self.inner_lr * (slope + self.pull * (theta - w))
            buffers = after
            w = w - self.rate(board) * self.pull * (w - theta)
        return {"theta": theta, "buffers": buffers}, w - board["model"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"model": board["model"] + self.server_rate * mean}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["theta"]
