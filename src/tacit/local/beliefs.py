"""What a task of a linear mixed model may believe, and how much speaks for each on its own rows.

    own effects     w ~ N(β, σ²(f·BBᵀ + s·D²))     a few effects B beside slopes of everything
    by itself       w ~ N(0, σ²·t·D²)              no use of the others at all

D is diagonal. All of them have V = I + s·XD²Xᵀ in common, for few s: rows are decomposed once for
each of these. Effects are a correction of as many dimensions as there are effects, with Z = XB:

    u = f(I + f·ZᵀV⁻¹Z)⁻¹ZᵀV⁻¹e,     w = β + Bu + s·D²XᵀV⁻¹(e − Zu)

Written for one task, like `local.bayes`, whose `solve` gives the same for each candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tacit.local.bayes import KNOWN, evidence_of
from tacit.local.newton import logdet_of


class Shared(NamedTuple):
    """Vectors T = [e, y, Z] of the rows, seen through V = I + s·XD²Xᵀ, for each s."""

    solved: Tensor
    """[s, d, t]: DXᵀV⁻¹T, for every s but zero."""
    products: Tensor
    """[s, t, t]: TᵀV⁻¹T. The first s is zero: V is the identity, and nothing is to be solved."""
    logdet: Tensor
    """[s]: of V."""

    @classmethod
    def of(cls, x: Tensor, spread: Tensor, vectors: Tensor, strengths: Tensor) -> Shared:
        """In as many dimensions as there are rows, or columns of x, whichever are fewer."""
        n, d = x.shape
        known, total = spread.unsqueeze(1) * (x.T @ vectors), vectors.T @ vectors
        wide = x * spread if n <= d else x
        kernel = wide @ wide.T if n <= d else (x.T @ x) * spread * spread.unsqueeze(1)
        eye = torch.eye(len(kernel)).to(x)
        side, ways, products, logdet = vectors if n <= d else known, [], [total], [eye[0, 0] * 0]
        for strength in strengths.unbind():  # one by one: matrices of all would leave the cache
            # Symmetric: turned over it is the same, and lies as the solver wants it.
            factor = torch.linalg.cholesky_ex(torch.addcmul(eye, strength, kernel).mT)[0]
            half = torch.linalg.solve_triangular(factor, side, upper=False)
            solved = torch.linalg.solve_triangular(factor.mT, half, upper=True)
            ways.append(wide.T @ solved if n <= d else solved)
            seen = half.T @ half
            products.append(seen if n <= d else total - strength * seen)
            logdet.append(logdet_of(factor))
        return cls(*(torch.stack(side) for side in (ways, products, logdet)))


class Beliefs(NamedTuple):
    """All candidates: f·s with own effects, then t by themselves."""

    evidence: Tensor
    """[f·s + t]: logarithms."""
    effects: Tensor
    """[f, s, r]: u."""
    ways: Tensor
    """[k, d, 2 + r]: where e, y and Z lead with each strength of slopes that is not zero."""
    at: Tensor
    """[s, k]: which of these strengths is that of each candidate with own effects."""
    at_alone: Tensor
    """[t, k]: … by itself."""
    mean: Tensor
    root: Tensor
    """[d, r]: B."""

    def average(self, chances: Tensor) -> Tensor:
        """The mean of the candidates' weights [d], of which each has such a chance.

        Chances are summed before weights are made: candidates differ by few numbers.
        """
        beside = chances[: self.effects[..., 0].numel()].reshape(self.effects.shape[:2])
        each, u = beside.sum(0), (beside.unsqueeze(2) * self.effects).sum(0)
        alone = chances[beside.numel() :] @ self.at_alone
        sides = torch.stack([each @ self.at, alone], dim=1)
        along = torch.cat([sides, -(self.at.T @ u)], dim=1)  # [k, 2 + r]
        led = torch.einsum("kdt,kt->d", self.ways, along)
        return each.sum() * self.mean + self.root @ u.sum(0) + led


def beliefs(
    rows: tuple[Tensor, Tensor, Tensor],
    mean: Tensor,
    effects: Tensor,
    spread: Tensor,
    variance: Tensor,
    *,
    factors: tuple[float, ...],
    slopes: tuple[float, ...],
    alone: tuple[float, ...],
) -> Beliefs:
    """All that a task may believe, and how much speaks for each.

    B are the `effects` [d, r], D is the `spread` [d]. σ² is about `variance`, which is worth
    `KNOWN` rows. Rows that do not count are zero.
    """
    x, y, counts = rows
    error = y - x @ mean
    strengths = sorted({*slopes, *alone} - {0.0})
    vectors = torch.cat([error.unsqueeze(1), y.unsqueeze(1), x @ effects], dim=1)
    grids = (strengths, factors, slopes, alone)
    every, factor, slope, strength = (
        torch.tensor(each, dtype=x.dtype, device=x.device) for each in grids
    )
    shared = Shared.of(x, spread, vectors, every)
    places, own_places = (
        [[0.0, *strengths].index(one) for one in side] for side in (slopes, alone)
    )

    u, quad, more = _effects(shared.products[places], factor)
    logdet, total = shared.logdet[places] + more, shared.products[0, 0, 0]
    evidence = evidence_of(logdet, quad, total, counts, KNOWN, variance)
    quad, total = shared.products[own_places, 1, 1], shared.products[0, 1, 1]
    for_itself = evidence_of(shared.logdet[own_places], quad, total, counts, KNOWN, variance)
    return Beliefs(
        torch.cat([evidence.flatten(), for_itself]),
        u,
        shared.solved * (every[:, None, None] * spread.unsqueeze(1)),
        (slope.unsqueeze(1) == every).to(x.dtype),
        (strength.unsqueeze(1) == every).to(x.dtype),
        mean,
        effects,
    )


def _effects(products: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u [f, s, r], eᵀV⁻¹e and what is added to the determinant, all with own effects in V."""
    toward, about = products[:, 2:, :1], products[:, 2:, 2:]
    eye, factor = torch.eye(about.shape[-1]).to(about), factors[:, None, None, None]
    small, side = eye + factor * about, factor * toward
    if len(eye) == 1:  # as nearly everywhere: a division in the place of a solver
        u, logdet = (side / small)[..., 0], small[..., 0, 0].log()
    else:
        triangle = torch.linalg.cholesky_ex(small)[0]
        u, logdet = torch.cholesky_solve(side, triangle)[..., 0], logdet_of(triangle)
    return u, products[:, 0, 0] - (toward[..., 0] * u).sum(-1), logdet
