"""What noisy sums of information and scores say of coefficients (`methods.mixed`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

PRIORS = torch.logspace(-4, 1, 21, dtype=torch.float64)
"""Prior variances of the coefficients, in squared units of target over column."""
RELATIVE = (0.3, 3.0)
"""How far the variances may move in a round."""
FLAT = 1.0
"""Prior variance of an intercept, around zero, the level that was voted for, or a public one."""


ANY = 100.0
"""Prior variance of an intercept of which nobody told anything."""


def unknowns_in(numbers: int) -> int:
    """How many variances so many numbers tell of: a matrix and a vector."""
    return round((math.sqrt(1 + 4 * numbers) - 1) / 2)


def changed(told: Tensor, blur: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
    """By what the variances change [r, r], and σ²: equations that were told, with a ridge."""
    numbers = unknowns_in(len(told))
    equations, moments = told[: numbers**2].reshape(numbers, numbers), told[numbers**2 :]
    present = torch.cat([torch.einsum("iaa->i", shapes), moments.new_ones(1)])[:numbers]
    eye = torch.eye(numbers).to(told)
    change = torch.linalg.solve(equations + blur * eye, moments + blur * present)
    relative = torch.einsum("i,iab->ab", change[: len(shapes)], shapes)
    values, vectors = torch.linalg.eigh(relative)
    relative = (vectors * values.clamp(*RELATIVE)) @ vectors.T
    rest = change[-1].clamp(*RELATIVE) if numbers > len(shapes) else change.new_ones(())
    return relative, rest


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


def centred(informations: Tensor, blur: Tensor, intercepts: list[int]) -> tuple[Tensor, Tensor]:
    """Released H [r, d, d] as columns around their means say it, and how far off it is.

    Columns that are not centred, flags for example, have large entries in common, and `believable`
    would take those for what is between them. The rows of the intercepts know the means. Without
    what these explain, entries beside the diagonal are shrunk by the part of them that is noise;
    with variances `blur` [r] on the diagonal, it has half of that beside it.

    Rows may tell much about a direction that noise hides. So no eigenvalue is left below the noise:
    steps would be too long there.
    """
    d, size = informations.shape[-1], blur.sqrt().reshape(-1, 1, 1)
    between = informations[:, intercepts]
    values, vectors = torch.linalg.eigh(between[:, :, intercepts])
    tiny = 1e-12 * informations.diagonal(dim1=1, dim2=2).mean(1).reshape(-1, 1).clamp(min=1e-18)
    floor = torch.maximum(size.squeeze(2), tiny)
    across = vectors.mT @ between
    means = across.mT @ (across / torch.maximum(values, floor).unsqueeze(2))
    others = informations.new_ones(d)
    others[intercepts] = 0.0
    rest = (informations - means) * torch.outer(others, others)
    own = torch.diag_embed(rest.diagonal(dim1=1, dim2=2))
    beside, many = rest - own, others.sum() * (others.sum() - 1)
    found = (beside**2).sum((1, 2)) / many.clamp(min=1.0)
    kept = (found - blur / 2).clamp(min=0.0) / found.clamp(min=1e-30)
    values, vectors = torch.linalg.eigh(means + own + kept.reshape(-1, 1, 1) * beside)
    known = (vectors * torch.maximum(values, floor).unsqueeze(1)) @ vectors.mT
    whole = min(1.0, 3 * len(intercepts) / d)  # rows and columns of intercepts, and the diagonal
    return known, (kept + (1 - kept) * whole) * blur


class Shrunk(NamedTuple):
    """What is believed of β."""

    beta: Tensor
    covariance: Tensor
    information: Tensor
    """H without the directions that only noise can have made."""
    learnt: Tensor
    """How much of β is what rows were off: its covariance [d, d] with H⁻¹N(0, sampling·H).

    Where β hardly follows what was released that is little, and H⁻¹ of a noisy H is anything."""


def shrunk(
    information: Tensor,
    target: Tensor,
    sampling: Tensor,
    blur: Tensor,
    prior: Tensor,
    middles: Tensor,
) -> Shrunk:
    """Posterior of β where target = Hβ + N(0, sampling·H + blur), with a `blur` of [d, d].

    The prior variance of the coefficients [k, d], and the point that they are shrunk to [c, d], are
    those with the most evidence; the first of several that are alike.
    """
    d = len(target)
    values, vectors = torch.linalg.eigh(information)
    information = (vectors * values.clamp(min=0.0)) @ vectors.T
    eye = torch.eye(d).to(target)
    spread = information @ (prior.unsqueeze(2) * information) + sampling * information
    factor = torch.linalg.cholesky_ex(spread + blur + 1e-12 * eye)[0]
    targets = (target - middles @ information).T  # [d, c]
    half = torch.linalg.solve_triangular(factor, targets.expand(len(prior), -1, -1), upper=False)
    logdet = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    best = (-0.5 * (half**2).sum(1).T - logdet).argmax().reshape(1)  # [c, k]
    place, best = best // len(prior), best % len(prior)
    factor, prior, middle = factor[best][0], prior[best][0], middles[place][0]
    gain = prior.unsqueeze(1) * information
    follows = torch.cholesky_solve(gain.T, factor).T
    beta = middle + follows @ targets.T[place][0]
    covariance = torch.diag(prior) - follows @ gain.T
    return Shrunk(beta, covariance, information, sampling * (follows + follows.T) / 2)


def estimate(
    board: Mapping[str, Tensor],
    information: Tensor,
    score: Tensor,
    tasks: int,
    levels: Tensor | None,
) -> dict[str, Tensor]:
    """The next β from mean information and score that nobody noised: a step to the estimate.

    With `levels`, which says which coefficients are intercepts, the others are shrunk as far as the
    evidence says: to predict with many columns and few rows, that is better than the estimate.
    """
    target, sampling = score + information @ board["beta"], board["rest"] / tasks
    if levels is None:
        inverse = torch.linalg.pinv(information, hermitian=True)
        beta, covariance = board["beta"] + inverse @ score, inverse * sampling
    else:
        prior = torch.where(levels, ANY, PRIORS.to(score).unsqueeze(1))
        rounding = 1e-6 * sampling * information.diagonal().mean()  # columns may be alike
        rounding = rounding * torch.eye(len(target)).to(target)
        middles = board["prior"].unsqueeze(0)
        found = shrunk(information, target, sampling, rounding, prior, middles)
        beta, covariance = found.beta, found.covariance
    return {
        "beta": beta,
        "information": information,
        "target": target,
        "covariance": covariance,
        "correction": covariance / board["rest"],
    }
