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

from tacit.local.bayes import KNOWN, evidence_of, logdet_of


class Shared(NamedTuple):
    """Vectors T = [e, y, Z] of the rows, seen through V = I + s·XD²Xᵀ, for each s."""

    solved: Tensor
    """[s, d, t]: DXᵀV⁻¹T."""
    products: Tensor
    """[s, t, t]: TᵀV⁻¹T."""
    logdet: Tensor
    """[s]: of V."""

    @classmethod
    def of(cls, x: Tensor, spread: Tensor, vectors: Tensor, strengths: Tensor) -> Shared:
        """In as many dimensions as there are rows, or columns of x, whichever are fewer."""
        n, d = x.shape
        strength = strengths[:, None, None]
        known, total = spread.unsqueeze(1) * (x.T @ vectors), vectors.T @ vectors
        wide = x * spread if n <= d else x
        kernel = wide @ wide.T if n <= d else (x.T @ x) * spread * spread.unsqueeze(1)
        eye = torch.eye(len(kernel)).to(x)
        factor = torch.linalg.cholesky_ex(torch.addcmul(eye, strength, kernel))[0]
        side = (vectors if n <= d else known).expand(len(strengths), -1, -1)
        half = torch.linalg.solve_triangular(factor, side, upper=False)
        solved = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        products = half.mT @ half
        if n <= d:
            solved = wide.T @ solved
        else:
            products = total - strength * products
        # Without slopes V is the identity: nothing is to be solved.
        return cls(
            torch.cat([known.unsqueeze(0), solved]),
            torch.cat([total.unsqueeze(0), products]),
            torch.cat([strengths.new_zeros(1), logdet_of(factor)]),
        )

    def at(self, places: list[int]) -> Shared:
        """For some of the s."""
        return Shared(*(side[places] for side in self))


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
) -> tuple[Tensor, Tensor]:
    """Weights [f·s + t, d] and logarithms of the evidence, of all candidates.

    B are the `effects` [d, r], D is the `spread` [d]. σ² is about `variance`, which is worth
    `KNOWN` rows. Rows that do not count are zero.
    """
    x, y, counts = rows
    error = y - x @ mean
    strengths = [0.0, *sorted({*slopes, *alone} - {0.0})]
    vectors = torch.cat([error.unsqueeze(1), y.unsqueeze(1), x @ effects], dim=1)
    grids = (strengths[1:], factors, slopes, alone)
    every, factor, slope, strength = (
        torch.tensor(each, dtype=x.dtype, device=x.device) for each in grids
    )
    shared = Shared.of(x, spread, vectors, every)

    solved, products, logdet = shared.at([strengths.index(each) for each in slopes])
    u, quad, more = _effects(products, factor)
    seen = solved[:, :, 0] - (solved[:, :, 2:] @ u.unsqueeze(-1)).squeeze(-1)
    w = mean + u @ effects.T + spread * slope.unsqueeze(1) * seen
    total = (error * error).sum()
    evidence = evidence_of(logdet + more, quad, total, counts, KNOWN, variance)

    solved, products, logdet = shared.at([strengths.index(each) for each in alone])
    by_itself = spread * strength.unsqueeze(1) * solved[:, :, 1]
    quad, total = products[:, 1, 1], (y * y).sum()
    for_itself = evidence_of(logdet, quad, total, counts, KNOWN, variance)
    return torch.cat([w.flatten(0, 1), by_itself]), torch.cat([evidence.flatten(), for_itself])


def _effects(products: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u [f, s, r], eᵀV⁻¹e and what is added to the determinant, all with own effects in V."""
    toward, about = products[:, 2:, :1], products[:, 2:, 2:]
    eye, factor = torch.eye(about.shape[-1]).to(about), factors[:, None, None, None]
    small = torch.linalg.cholesky_ex(eye + factor * about)[0]
    u = (factor * torch.cholesky_solve(toward.expand(len(factors), -1, -1, -1), small))[..., 0]
    return u, products[:, 0, 0] - (toward[..., 0] * u).sum(-1), logdet_of(small)
