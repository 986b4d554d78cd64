"""Linear, logistic and Poisson regression of one task under a Gaussian prior, solved exactly.

The prior is w ~ N(mean, r·σ²·RRᵀ): a shape R that others agreed on, and a strength r that the task
finds out by itself, from its evidence p(y | X, r) on its own rows. Strengths are named by t, the
decimal logarithm of how much more of the target the prior explains than the noise (others: of the
prior variance of a row's score); so a grid of t suits data of any scale.

    squared    evidence ∝ |I + rK|^(−½) (eᵀ(I + rK)⁻¹e)^(−n/2)      K = XRRᵀXᵀ, e = y − X·mean
    families   the same by Laplace's approximation around the maximum, found by Newton steps

The noise variance σ² is integrated out. Written for one task (`torch.func.vmap` lifts it), without
branches on data, in double precision: a ratio of 10³ leaves single precision no digits for quad.
Systems that have no solution are solved by numbers that are not finite (`solve_ex`), and never by
an error: that would end everybody's run, and so tell of a single task's rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.errors import TacitError
from tacit.families import FAMILIES
from tacit.local.batches import Batches
from tacit.local.newton import by_newton, logdet_of
from tacit.local.wide import Priors, by_gradients

WHOLE = 100
"""Up to so many coefficients a Newton step is solved as one system, beyond by gradients."""
KNOWN = 0.5
"""How many rows a published residual variance is worth to a task: noise may have made it absurd."""
AT_ONCE = 1 << 17
"""Numbers of one task that are in work at a time, where several solutions can be found at once."""


def design(
    batches: Batches, size: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """All rows of a task [n, size], the targets [n], which rows count; the others are zero.

    A model with one weight more than there are features has an intercept: a feature that is 1.
    """
    x, y, weight = batches.x[0], batches.y[0], batches.weight[0]
    counts, x = (weight > 0).to(dtype), x.reshape(x.shape[0], -1)
    if y.ndim == 2:
        return _by_interval(x, y, counts, size)
    if size > x.shape[1]:
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    return x * counts.unsqueeze(1), y.to(dtype) * counts, counts


def _by_interval(x: Tensor, y: Tensor, counts: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of an outcome over time, once for each interval: [n · intervals, size].

    The features, then an indicator of each interval but the first, then the intercept. An interval
    counts as much as was lived through of it, and its target is a rate: the event over that part.
    """
    intervals = y.shape[1]
    if size != x.shape[1] + intervals:
        raise TacitError(
            "exact methods need hazards that are proportional: use model='linear', or another "
            "method, like pmtl"
        )
    lived = torch.where(y.isnan(), 0.0, y.abs()).to(counts) * counts.unsqueeze(1)
    rate = torch.where(y < 0, 1 / torch.where(lived > 0, lived, 1.0), 0.0)
    steps = torch.eye(intervals).to(lived).roll(-1, dims=1)
    steps[:, -1] = 1.0
    there = (lived > 0).to(lived)
    each = torch.cat(
        [
            x.to(lived).unsqueeze(1).expand(-1, intervals, -1),
            steps.expand(len(x), -1, -1),
        ],
        dim=2,
    )
    each = (each * there.unsqueeze(2)).flatten(0, 1)
    return each, (rate * there).flatten(), lived.flatten()


def posterior(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    mean: Tensor,
    root: Tensor | None,
    strengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """Most likely weights [s, d] and logarithm of the evidence [s], for each of the strengths.

    `root` is R [d, d]; None stands for the identity.
    """
    x, y, counts = rows
    x = x * (counts > 0).unsqueeze(1)
    z = x if root is None else x @ root
    number = counts.sum().clamp(min=1.0)
    scale = (counts.unsqueeze(1) * z * z).sum() / number
    ratio = 10.0 ** strengths.to(z.dtype) / scale.clamp(min=1e-30)
    if kind == "regression":
        u, evidence = _squared(z, x @ mean, y * counts, counts, ratio)
        return mean + (u if root is None else u @ root.T), evidence
    scores, y = _coded(kind, rows, mean.unsqueeze(0))
    family, outputs = FAMILIES[kind], scores.shape[-1]
    if _is_narrow(z, outputs):
        u, evidence = by_newton(family, z, None, scores, y, counts, ratio)
    else:
        many, ones = len(ratio), torch.ones_like(z[0])
        none, means = torch.zeros_like(ratio), mean.expand(many, -1)
        priors = Priors(means, z[:0].mT, ones, none, ratio, [1] * many)
        scores = scores.expand(many, -1, -1)
        u, evidence = by_gradients(family, z, y, counts, scores, priors)
    likely = mean + (u if root is None else u @ root.T).flatten(1)
    return likely, evidence


def solve(
    rows: tuple[Tensor, Tensor, Tensor],
    mean: Tensor,
    root: Tensor,
    variance: Tensor,
    prior_rows: float = KNOWN,
) -> tuple[Tensor, Tensor]:
    """Most likely weights [d] of numbers under N(mean, σ²RRᵀ) and the logarithm of the evidence.

    σ² is about `variance`: its prior is worth so many rows. R is [d, k], with any k.
    """
    x, y, counts = rows
    x, ratio = x * counts.unsqueeze(1), torch.ones(1).to(x)
    u, evidence = _squared(x @ root, x @ mean, y * counts, counts, ratio, prior_rows, variance)
    return mean + root @ u[0], evidence[0]


def solve_each(
    kind: Kind, rows: tuple[Tensor, Tensor, Tensor], priors: Priors
) -> tuple[Tensor, Tensor]:
    """The same under each of these priors [c, ..] and [c], for all that has no σ²."""
    x, _, counts = rows
    x, family, found = x * (counts > 0).unsqueeze(1), FAMILIES[kind], []
    scores, y = _coded(kind, rows, priors.means)
    bare, outputs, others = priors.bare, scores.shape[-1], priors.sloping()
    if bare:  # models of a few own effects
        z, factors = x @ priors.effects, priors.factors[:bare]
        u, evidence = by_newton(family, z, None, scores[:bare], y, counts, factors)
        found.append((u @ priors.effects.T, evidence))
    scores = scores[bare:]
    if _is_narrow(x, outputs):
        at_once = max(1, AT_ONCE // (outputs**2 * x.numel()))
        for some, offset in zip(others.roots().split(at_once), scores.split(at_once), strict=True):
            ratio = torch.ones(len(some)).to(x)
            u, evidence = by_newton(family, x, some, offset, y, counts, ratio)
            found.append((u @ some.mT, evidence))
    else:
        found.append(by_gradients(family, x, y, counts, scores, others))
    weights, evidence = (torch.cat(side) for side in zip(*found, strict=True))
    return priors.means + weights.flatten(1), evidence


def _is_narrow(x: Tensor, outputs: int) -> bool:
    return outputs * min(x.shape) <= WHOLE


def _coded(kind: Kind, rows: tuple[Tensor, Tensor, Tensor], means: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [c, n, outputs] that means [c, ..] give, and targets [n, outputs]."""
    x, y, counts = rows
    each = means.unflatten(1, (-1, x.shape[1]))
    there = (counts > 0).unsqueeze(1)
    return there * (x @ each.mT), there * FAMILIES[kind].coded(y, each.shape[1])


def average(weights: Tensor, evidence: Tensor) -> Tensor:
    """The mean of the weights [s, d], each as likely as its evidence says."""
    return torch.softmax(evidence, dim=0) @ weights


def _squared(
    z: Tensor,
    offset: Tensor,
    y: Tensor,
    counts: Tensor,
    ratio: Tensor,
    prior_rows: float = 0.0,
    variance: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor]:
    error = y - offset
    n, d = z.shape
    if n <= d:
        kernel, known = z @ z.T, error
    else:
        kernel, known = z.T @ z, z.T @ error
    eye = torch.eye(len(kernel), dtype=z.dtype, device=z.device)
    factor = torch.linalg.cholesky_ex(eye + ratio[:, None, None] * kernel)[0]
    half = torch.linalg.solve_triangular(
        factor, known.expand(len(ratio), -1)[..., None], upper=False
    )
    inverse = torch.linalg.solve_triangular(factor.mT, half, upper=True)[..., 0]
    explained = (half[..., 0] ** 2).sum(dim=1)
    total = (error * error).sum()
    quad = explained if n <= d else total - ratio * explained
    u = ratio[:, None] * (inverse @ z if n <= d else inverse)
    return u, evidence_of(logdet_of(factor), quad, total, counts, prior_rows, variance)


def evidence_of(
    logdet: Tensor,
    quad: Tensor,
    total: Tensor,
    counts: Tensor,
    prior_rows: float,
    variance: Tensor | float,
) -> Tensor:
    """From |V| and eᵀV⁻¹e, which is at least a tiny part of the total eᵀe."""
    quad = torch.maximum(quad, 1e-12 * total).clamp(min=1e-30)
    rows = counts.sum() + prior_rows
    evidence = -0.5 * logdet - 0.5 * rows * (quad + prior_rows * variance).log()
    if prior_rows:  # what makes priors of different worth comparable
        scale = torch.as_tensor(prior_rows * variance).to(quad)
        half = torch.as_tensor(prior_rows / 2).to(quad)
        evidence = evidence + half * scale.log() + torch.lgamma(rows / 2) - torch.lgamma(half)
    return evidence


def grid(centre: Tensor | float, spread: float, points: int, width: float = 2.0) -> Tensor:
    """Strengths around a centre, `width` spreads to either side."""
    steps = torch.linspace(-width, width, points, dtype=torch.float64)
    return centre + spread * steps


def bell(points: int, width: float = 2.0) -> Tensor:
    """Logarithm of a normal prior over `grid`."""
    steps = torch.linspace(-width, width, points, dtype=torch.float64)
    return torch.log_softmax(-0.5 * steps**2, dim=0)
