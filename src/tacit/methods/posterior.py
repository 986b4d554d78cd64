"""What noisy sums of information and scores say of coefficients (`methods.mixed`)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PRIORS = torch.logspace(-4, 1, 21, dtype=torch.float64)
"""Prior variances of the coefficients, in squared units of target over column."""
FLAT = 1.0
"""Prior variance of an intercept, around zero, the level that was voted for, or a public one."""


def unknowns_in(numbers: int) -> int:
    """How many variances so many numbers tell of: a matrix and a vector."""
    return round((math.sqrt(1 + 4 * numbers) - 1) / 2)


def believable(informations: Tensor, blur: Tensor) -> tuple[Tensor, Tensor]:
    """Released H [r, d, d] with what rises out of the noise between columns, and how far off it is.

    With many columns and few tasks, noise alone makes directions of H. So the entries off the
    diagonal are shrunk by the share of their size that is noise, with variances `blur` [r]. With
    much noise only the diagonal is left; later scores, at better points, make up for it.
    """
    d = informations.shape[-1]
    beside = informations - torch.diag_embed(informations.diagonal(dim1=1, dim2=2))
    found = (beside**2).sum((1, 2)) / max(d * (d - 1), 1)
    kept = (found - blur).clamp(min=0.0) / found.clamp(min=1e-30)
    return informations - (1 - kept)[:, None, None] * beside, kept * blur


def shrunk(
    information: Tensor,
    target: Tensor,
    sampling: Tensor,
    blur: Tensor,
    prior: Tensor,
    middles: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Posterior mean and covariance of β where target = Hβ + N(0, sampling·H + blur·I), and H.

    The prior variance of the coefficients [k, d], and the point that they are shrunk to [c, d], are
    those with the most evidence; the first of several that are alike.
    """
    d = len(target)
    values, vectors = torch.linalg.eigh(information)
    information = (vectors * values.clamp(min=0.0)) @ vectors.T
    eye = torch.eye(d).to(target)
    spread = information @ (prior.unsqueeze(2) * information) + sampling * information
    factor = torch.linalg.cholesky_ex(spread + (blur + 1e-12) * eye)[0]
    targets = (target - middles @ information).T  # [d, c]
    half = torch.linalg.solve_triangular(factor, targets.expand(len(prior), -1, -1), upper=False)
    logdet = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    best = (-0.5 * (half**2).sum(1).T - logdet).argmax().reshape(1)  # [c, k]
    place, best = best // len(prior), best % len(prior)
    factor, prior, middle = factor[best][0], prior[best][0], middles[place][0]
    gain = prior.unsqueeze(1) * information
    beta = middle + gain @ torch.cholesky_solve(targets.T[place].T, factor)[:, 0]
    covariance = torch.diag(prior) - gain @ torch.cholesky_solve(gain.T, factor)
    return beta, covariance, information
