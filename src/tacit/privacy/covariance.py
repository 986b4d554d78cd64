"""A covariance of models as one Gaussian release: how far a task moves it.

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
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.sampling import Neighbours

SENSITIVITY: dict[Neighbours, float] = {"add-remove": 1.0, "replace": math.sqrt(2)}
"""How far a covariance moves in Frobenius norm, in units of K² (claim 2)."""


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
