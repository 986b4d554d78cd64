"""Variance components of a mixed model as releases tell them, and how surely they do.

Tasks sent A and q, whose sums solve A·(T, s) = q: how Σ = σ²LLᵀ and σ² should change, to σ²LTLᵀ and
sσ² (`local.mixed`). What predicts is shrunk and kept in bounds; what is reported is not:

    (T, s) = A⁻¹q,   Cov (T, s) = A⁻¹(2B/m + ν²(1 + |(T, s)|²)I)A⁻ᵀ

B/2 is Fisher's information of one of m tasks, ν the standard deviation of the noise in each number
of A and q. Noise in A also bends A⁻¹: errors are 1/(1 − g) times larger, with g = (1.96 ν/|A|)² and
|A| its smallest singular value, the factor by which Fieller's intervals of a ratio are wider. Where
A is not well above its noise, nothing is claimed. Without noise 2A⁻¹/m is the usual asymptotic
covariance of maximum likelihood, which knows nothing of what β costs: little, with many tasks.

E. C. Fieller. "Some Problems in Interval Estimation." Journal of the Royal Statistical Society B,
1954.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.local.mixed import basis

NORMAL = 1.959963984540054
"""Half the width of a 95 % interval, in standard errors."""
ABOVE_NOISE = 3.0
"""Singular values of A below so many standard deviations of its noise are not believed."""


def components(
    told: np.ndarray, blur: float, tasks: int, root: np.ndarray, rest: float, evenly: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The lower triangle of Σ (and σ², where there is one), and the covariance of the estimates.

    `told` are A and q; L is the `root` and σ² the `rest` that they were told at. Where tasks have
    the same say about σ² (`evenly`), its row of A is divided by how much each could tell.
    """
    shapes = basis(len(root)).numpy()
    numbers = round((math.sqrt(1 + 4 * len(told)) - 1) / 2)
    equations, moments = told[: numbers**2].reshape(numbers, numbers), told[numbers**2 :]
    size = np.linalg.svd(equations, compute_uv=False)[-1]
    unknown = np.full((numbers, numbers), np.inf)
    if size <= max(ABOVE_NOISE * blur, 1e-12):
        return np.full(numbers, np.nan), unknown
    inverse = np.linalg.inv(equations)
    change = inverse @ moments
    noise = blur**2 * (1 + change @ change) * np.eye(numbers)
    spread = 2 * _information(equations, blur, evenly and numbers > len(shapes)) / tasks + noise
    lower = np.tril_indices(len(root))
    turned = rest * np.einsum("ab,ibc,dc->iad", root, shapes, root)
    onto = np.zeros((numbers, numbers))
    onto[: len(shapes), : len(shapes)] = turned[:, lower[0], lower[1]].T
    if numbers > len(shapes):
        onto[-1, -1] = rest
    known = onto @ inverse / (1 - (NORMAL * blur / size) ** 2)
    return onto @ change, known @ spread @ known.T


def _information(equations: np.ndarray, blur: float, evenly: bool) -> np.ndarray:
    """B: half the covariance of what one task says of q, as far as A tells it."""
    seen = equations.copy()
    if evenly:
        # The last row has the weights 1/trₖ V⁻². Twice their mean is the variance of the last of
        # q, which is not released; the row itself, with and without weights, tells about it.
        seen[:-1, -1] = equations[-1, :-1]
        with_weights, without = equations[-1, -2], equations[-2, -1]
        seen[-1, -1] = min(1.0, max(0.0, with_weights / without)) if without > blur else 1.0
    values, vectors = np.linalg.eigh((seen + seen.T) / 2)
    return (vectors * values.clip(min=0.0)) @ vectors.T
