"""MP-MTL: shared structure of linear models through a private covariance.

Jian Liang, Ziqi Liu, Jiayu Zhou, Xiaoqian Jiang, Changshui Zhang, Fei Wang. "Model-Protected
Multi-Task Learning." IEEE Transactions on Pattern Analysis and Machine Intelligence, 2020.

| paper                                                          | here                            |
|----------------------------------------------------------------|---------------------------------|
| Algorithm 1, 4–5: Σ = WWᵀ + noise                              | the channel, with `moments`     |
| Algorithm 1, 6: any map f: Σ → M                               | `publish`, through `shared`     |
| Algorithm 1, 7: any single-task algorithm given M              | `step`, in `client`             |
| Algorithm 2, 7–9: U max(0, 1 − ηλ/√Λ) Uᵀ                       | `shared`, structure "low-rank"  |
| Algorithm 3, 7–8: the same on the diagonal of Σ                | `shared`, "group-sparse"        |
| 9–11: ŵ = Mw; z = ŵ + β_t(ŵ − ŵ_prev); w = z − η ∂L(z)         | `step`                          |
| 3.5: ε_t = ε₀t^α or ε₀Q^(−t); β_t                              | `weights`, `momentum`           |
| strong convexity: µ/2 ‖w‖² added to each loss                  | `ridge`                         |
| 3.2: decomposed models, shared part + outliers of the task     | `outliers`                      |

A round contributes W^(t−1), and its release gives M^(t); so what the paper does at the end of
iteration t is here the beginning of round t + 1, and `settle` after the last: T rounds, T releases.

Another instance of Algorithm 1 is a subclass with its own `shared` (any map of the covariance) and
`step` (any single-task algorithm that is given what was published).

Differences from the printed algorithms, on purpose: noise is Gaussian (`papers/mpmtl/wishart.py`
refutes the printed one); what is clipped is the copy that is sent, not the model that a task works
with (`clip_model` clips both, as printed); in Algorithm 2, eigenvalues that the noise alone could
have made count as that large, so that under heavy noise a task keeps its model (the paper's
Proposition 1) instead of losing directions at random; and λ is given per √m, because ‖W‖_* grows
with the square root of the number of tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.families import FAMILIES
from tacit.local.batches import Batches
from tacit.local.bayes import design
from tacit.local.flat import FlatModel
from tacit.methods.base import LARGEST, Board, State
from tacit.methods.linear import LinearMethod, ridge
from tacit.privacy import schedule
from tacit.privacy.covariance import unflatten
from tacit.privacy.moments import Moments

TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class MPMTL(LinearMethod):
    """Proximal gradient steps whose shrinkage comes from a private covariance of all models."""

    begins_at_start = False

    structure: Literal["low-rank", "group-sparse"] = "low-rank"
    """What tasks are taken to share: a subspace (Algorithm 2) or features (Algorithm 3)."""
    strength: float = 0.1
    """Strength of the shared structure (λ/√m)."""
    lr: float = 0.1
    """Step size (η). Above one over the largest eigenvalue of a task's mean xxᵀ it diverges; rows
    of unit length allow 1 and more."""
    accelerated: bool = True
    """Whether steps carry momentum (β_t)."""
    ridge: float = 0.0
    """Ridge added to every loss (µ); above zero the loss counts as strongly convex."""
    growth: float | None = None
    """How the budget grows: ε_t ∝ t^α, or Q^(−t) with a ridge; None for the paper's α or Q."""
    outliers: float | None = None
    """Strength of the ℓ1 penalty on each task's own part (W = P + Q), which needs half the step
    size; None for no such part."""
    mechanism: Literal["gaussian"] = "gaussian"
    """The noise. Wishart noise, as printed, is not private, and an experiment of papers/mpmtl."""
    clip_model: bool = False
    """Whether a task's own model is clipped too, as printed, or only the copy it sends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        structures = ("low-rank", "group-sparse")
        self._require("structure", self.structure in structures, " or ".join(structures))
        self._require("strength", self.strength >= 0, "zero or more")
        self._require("lr", self.lr > 0, "a positive number")
        self._require("ridge", 0 <= self.ridge < 1 / self.lr, "zero or more, and below 1/lr")
        falls = self.growth is None or not self.ridge or self.growth > 0
        self._require("growth", falls, "positive with a ridge (it is Q), or None")
        outliers = self.outliers is None or self.outliers >= 0
        self._require("outliers", outliers, "zero or more, or None")
        if self.mechanism != "gaussian":
            raise TacitError(
                f"mechanism={self.mechanism!r}: only gaussian noise is private; the Wishart noise "
                "that the paper prints is an experiment without ε in papers/mpmtl/wishart.py of "
                "tacit's repository"
            )

    @property
    def usual_rounds(self) -> int:
        return 10

    @property
    def moments(self) -> Moments:
        return Moments(covariance=1.0)

    def weights(self, rounds: int, tasks: int = 0) -> tuple[float, ...]:
        if self.ridge:
            q = self.growth
            if q is None:
                q = schedule.suggest(self.ridge, 1 / self.lr, self.accelerated)[0]
            shares = schedule.shares(rounds, q=q)
        else:
            alpha = self.growth
            if alpha is None:
                alpha = 0.4 if self.accelerated else 0.0
            shares = schedule.shares(rounds, alpha)
        return tuple(float(share) for share in shares / shares.max())

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        d = self.size(model)
        return {"shared": torch.eye(d, dtype=torch.float64, device=model.start.device)}

    def state(self, model: FlatModel, board: Board) -> State:
        zero = torch.zeros_like(model.start)
        models = {name: zero for name in ("w", "last", "own", "result")}
        return {**models, "began": zero[:1], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        w, hat, own = self.step(model, board, state, batches)
        # W^(0), when a task first takes part: what it finds by itself.
        start = ridge(model.kind, batches, len(w))
        began = state["began"] > 0
        w = torch.where(began, w, start)
        last = torch.where(began, hat, self.clipped(start))
        own = torch.where(began, own, 0.0)
        after = {"w": w, "last": last, "own": own, "result": last + own}
        kept = {name: value.to(model.start.dtype) for name, value in after.items()}
        done = {"began": torch.ones_like(state["began"]), "buffers": state["buffers"]}
        return {**kept, **done}, kept["w"]

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        d = len(board["shared"])
        covariance = unflatten(mean.double(), d)
        return {"shared": self.shared(covariance, self.clip**2 * board.noise)}

    def shared(self, covariance: Tensor, noise: Tensor | float) -> Tensor:
        """The shrinkage operator M [d, d] of a (mean) covariance with noise of this size."""
        d, step = len(covariance), self.lr * self.strength
        if self.structure == "low-rank":
            values, vectors = torch.linalg.eigh(covariance)
            # Noise alone has eigenvalues up to √(2d) times its standard deviation.
            kept = _shrunk(values, step, noise * math.sqrt(2 * d))
            return (vectors * kept) @ vectors.T
        # |Σ_ii| of noise is as large as the noise, so a diagonal needs no floor.
        return torch.diag(_shrunk(covariance.diagonal().abs(), step, 0.0))

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        _, hat, _ = self.step(model, board, state, batches)
        return state | {"result": (hat + state["own"]).to(model.start.dtype)}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["result"]

    def clipped(self, w: Tensor) -> Tensor:
        """The model that a task works with, of the one that it found."""
        if not self.clip_model:
            return w
        return w * (self.clip / torch.linalg.vector_norm(w).clamp(min=TINY)).clamp(max=1.0)

    def momentum(self, board: Board) -> Tensor | float:
        """β_t of the iteration that this round completes (t = `board.round`)."""
        if not self.accelerated:
            return 0.0
        if self.ridge:
            return schedule.suggest(self.ridge, 1 / self.lr, True)[1]
        t = torch.as_tensor(board.round).double()
        return ((t - 1) / (t + 2)).clamp(min=0.0)

    def step(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Lines 9–11 with the published M: the next w, ŵ, and the task's own part."""
        x, y, counts = design(batches, len(state["w"]))
        hat = board["shared"] @ self.clipped(state["w"].double())
        z = hat + self.momentum(board) * (hat - state["last"].double())
        own = state["own"].double()
        scores = x @ (z + own)
        error = (scores if model.kind == "regression" else FAMILIES[model.kind].mean(scores)) - y
        slope = (counts * error) @ x / counts.sum().clamp(min=1.0) + self.ridge * z
        if self.outliers is not None:
            moved = own - self.lr * slope
            own = torch.sign(moved) * (moved.abs() - self.lr * self.outliers).clamp(min=0.0)
        w = z - self.lr * slope
        # What is published has no length, so a step size that is too large shows here only.
        return torch.where(w.abs() < LARGEST, w, torch.nan), hat, own


def _shrunk(squares: Tensor, step: float, floor: Tensor | float) -> Tensor:
    """max(0, 1 − ηλ/√Λ), where Λ below the floor counts as the floor."""
    root = torch.maximum(squares, torch.as_tensor(floor, dtype=squares.dtype)).clamp(min=TINY)
    return (1 - step / root.sqrt()).clamp(min=0.0)
