"""Mechanisms for a covariance of models: what holds, and what was published and does not hold.

Every task has a model w with ‖w‖ ≤ K. What is released is the sum Σ wwᵀ over tasks (d × d), or the
Gram matrix WᵀW between tasks (m × m), with noise.

**Claim 1 (isometry).** `flatten` keeps the diagonal and multiplies what is above it by √2. The norm
of the flat vector is the Frobenius norm of the matrix, and N(0, σ²I) on the vector is symmetric
noise on the matrix: N(0, σ²) on the diagonal, N(0, σ²/2) beside it.

*Proof.* ‖A‖_F² = Σ_i A_ii² + 2 Σ_{i<j} A_ij². Undoing the √2 halves the variance. ∎

So a covariance is a vector like any contribution: one Gaussian release, whose sensitivity is:

**Claim 2 (covariance).** Adding or removing a task moves Σ wwᵀ by at most K², replacing it by at
most √2 K², in Frobenius norm. Both are reached.

*Proof.* ‖wwᵀ‖_F = ‖w‖² ≤ K². ‖wwᵀ − vvᵀ‖_F² = ‖w‖⁴ + ‖v‖⁴ − 2(wᵀv)² ≤ 2K⁴, with equality for
orthogonal w and v of norm K. ∎

**Claim 3 (Gram matrix).** Setting one of m models to zero moves WᵀW by at most K²√(2m−1). Replacing
one moves it by at most K²√(8(m−1)), or K² if m = 1. Both are reached.

*Proof.* Only the row and the column of the task change. Zero: the diagonal by ‖w‖², the 2(m−1)
others by wᵀw_j, each at most K²; equal models reach it. Replace w by v, a = ‖w‖ ≥ b = ‖v‖, K = 1:
the square is (a²−b²)² + 2 Σ_j ((w−v)ᵀw_j)² ≤ (a²−b²)² + 2(m−1)(a+b)². It grows with a, so a = 1.
Its derivative in b is 4(1+b)((m−1) − b(1−b)), positive for m ≥ 2: the maximum is at b = 1, where
the first term is 0 and the second 8(m−1). Then v = −w, and all w_j = w reach it. (The two terms are
largest at different pairs; bounding them one by one would give 8(m−1) + 1.) ∎

**Claim 4 (the Wishart mechanism is not private).** Let E ~ W_d(d+1, cI) with c = s/(2ε), as MP-MTL
prints it. Whatever ε is promised with δ = 0, an observer of one release refutes it with probability
1 − e^{−ε‖w‖²/s}, for every d.

*Proof.* E is positive definite. With the task, Z − A − wwᵀ = E is always positive definite. Without
it, Z − A − wwᵀ = E − wwᵀ is not as soon as wᵀE⁻¹w ≥ 1: then Z cannot have come from the neighbour,
and no e^ε makes up for a probability of zero. (wᵀw/c) / (wᵀE⁻¹w) is χ² with (d+1)−d+1 = 2 degrees
of freedom, so P(wᵀE⁻¹w ≥ 1) = P(χ²₂ ≤ ‖w‖²/c) = 1 − e^{−‖w‖²/(2c)}. ∎

For d = 1 this is one-sided exponential noise. The flaw is in the proof of Jiang et al. (2016), who
compare densities where both are positive; Sheffet (2019) and Amin et al. (2019) note it. Wishart
noise is here to compare with published figures. No guarantee is computed from it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.sampling import Neighbours
from tacit.randomness import Randomness

SENSITIVITY: dict[Neighbours, float] = {"add-remove": 1.0, "replace": math.sqrt(2)}
"""How far a covariance moves in Frobenius norm, in units of K² (claim 2)."""

WISHART_REFUTED = (
    "Wishart noise carries no ε: it is positive definite, so what can be published moves with the "
    "data, and an observer of one release with ε as printed proves that a task with model w is "
    "absent with probability 1 − exp(−ε‖w‖²/s), whatever the dimension; "
    "`tacit.privacy.audit.refutation` makes this attack"
)
"""For guarantees and reports: why a run with Wishart noise has ε = ∞."""


def flatten(matrix: Tensor) -> Tensor:
    """Symmetric [..., d, d] to [..., d(d+1)/2] with the same norm; what is below is not read."""
    d = matrix.shape[-1]
    rows, columns = torch.triu_indices(d, d, device=matrix.device)
    place = (rows * d + columns).expand(*matrix.shape[:-2], -1)
    return matrix.flatten(-2).gather(-1, place) * _weights(d, matrix)


def unflatten(vector: Tensor, d: int) -> Tensor:
    """The symmetric matrix [..., d, d] of a flat vector [..., d(d+1)/2]."""
    if vector.shape[-1] != d * (d + 1) // 2:
        raise TacitError(
            f"a flat covariance of {d} features has {d * (d + 1) // 2} numbers, "
            f"but {vector.shape[-1]} were given"
        )
    one = torch.arange(d, device=vector.device)
    low, high = torch.minimum(one[:, None], one), torch.maximum(one[:, None], one)
    # Row `low` begins after d + (d−1) + … numbers; its first one is the diagonal.
    position = low * d - low * (low - 1) // 2 + (high - low)
    return (vector / _weights(d, vector))[..., position]


def _weights(d: int, like: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(d, d, device=like.device)
    beside = torch.ones_like(rows, dtype=like.dtype) * math.sqrt(2)  # √2 in the precision asked for
    return torch.where(rows == columns, torch.ones_like(beside), beside)


def moved(neighbours: Neighbours) -> float:
    """How far one task moves Σ wwᵀ at most, in Frobenius norm and units of K² (claim 2)."""
    if neighbours not in SENSITIVITY:
        raise TacitError(f"neighbours={neighbours!r}: choose one of {', '.join(SENSITIVITY)}")
    return SENSITIVITY[neighbours]


def gram_moved(neighbours: Neighbours, tasks: int) -> float:
    """How far one of `tasks` moves WᵀW at most, in Frobenius norm and units of K² (claim 3)."""
    if tasks < 1:
        raise TacitError(f"tasks={tasks!r}: at least one is needed")
    moved(neighbours)  # refuses other words
    if neighbours == "add-remove" or tasks == 1:
        return math.sqrt(2 * tasks - 1)
    return math.sqrt(8 * (tasks - 1))


def wishart_noise(d: int, scale: float, randomness: Randomness, round: int) -> Tensor:
    """E ~ W_d(d+1, scale · I), in double precision. Not private (claim 4)."""
    normal = torch.from_numpy(randomness.normal("noise", round, d * (d + 1))).reshape(d, d + 1)
    noise = scale * (normal @ normal.T)
    return (noise + noise.T) / 2


def printed_scale(clip: float, epsilon: float, sensitivity: Literal["2K", "K2"]) -> float:
    """s / (2ε): s = 2K as MP-MTL prints it, or K², by which ‖w‖² really moves."""
    if sensitivity not in ("2K", "K2"):
        raise TacitError(f"sensitivity={sensitivity!r}: choose 2K or K2")
    if not (epsilon > 0 and clip > 0):
        raise TacitError(f"epsilon={epsilon!r}, clip={clip!r}: positive numbers are needed")
    return (2 * clip if sensitivity == "2K" else clip**2) / (2 * epsilon)
