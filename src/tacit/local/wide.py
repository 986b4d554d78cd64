"""Most likely weights of families under several Gaussian priors, where columns are many.

    w ~ N(m, f·BBᵀ + s·D²)     own effects B of r dimensions beside slopes of everything

With w = m + √f·Bp + √s·Dq and u = (p, q) ~ N(0, I), rows are Z = [XB, XD], the same under all
priors. Newton's steps are found by conjugate gradients in a metric that all priors have in common:
the curvature at the scores which the middle one of them leads to, as a system of q for each s, and
of p in what is left of it (its Schur complement). Of several classes it is the curvature within
each of them: the whole is at most twice these blocks (of a row, its difference to them is that of
the Laplacian of a graph of the classes to its degrees), and they cost a part outputs² of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.families import Family
from tacit.local.newton import curvature_of, logdet_of, step_lengths

MIDDLE_STEPS, STEPS, GRADIENTS = 3, 8, 5
"""Newton's steps of the middle prior in each of its two metrics, and of all around what it leads
to; gradients in a step."""
TOGETHER = 300
"""Up to so many coefficients of several classes evidence knows the whole curvature."""


class Priors(NamedTuple):
    """Of one task's weights; those with the same s follow each other, and before them those that
    are `bare`: without slopes."""

    means: Tensor
    """[c, outputs · d] of each prior."""
    effects: Tensor
    """B [d, r]."""
    spread: Tensor
    """The diagonal of D [d]."""
    factors: Tensor
    """f [c]."""
    slopes: Tensor
    """s [k], of which each belongs to `sizes` priors."""
    sizes: list[int]
    bare: int = 0

    def sloping(self) -> Priors:
        """The others."""
        bare = self.bare
        return self._replace(means=self.means[bare:], factors=self.factors[bare:], bare=0)

    @property
    def slope(self) -> Tensor:
        """The s of each prior [c]."""
        return torch.cat([s.expand(n) for s, n in zip(self.slopes, self.sizes, strict=True)])

    def roots(self) -> Tensor:
        """R [c, d, d] with RRᵀ the covariance of each."""
        own, diagonal = self.effects, self.spread.diag()
        f, s = (each.sqrt().reshape(-1, 1, 1) for each in (self.factors, self.slope))
        wide = torch.cat([f * own, s * diagonal], dim=2)
        return torch.linalg.qr(wide.mT, mode="r")[1].mT


@dataclass(frozen=True)
class _Rows:
    """One task's rows as every prior sees them."""

    family: Family
    z: Tensor
    """[n, m]."""
    scale: Tensor
    """[c, 1, m]: √f of the effects, √s of the slopes."""
    offset: Tensor
    """[c, n, outputs]: scores of the means."""
    y: Tensor
    counts: Tensor
    """[n, 1]."""

    def along(self, u: Tensor) -> Tensor:
        """What u [c, outputs, m] adds to scores: one product, or rows would be read for each."""
        return ((u * self.scale).flatten(0, 1) @ self.z.T).unflatten(0, u.shape[:2]).mT

    def inside(self, each: Tensor) -> Tensor:
        """What numbers of each score say of u."""
        each = (each * self.counts).mT
        return (each.flatten(0, 1) @ self.z).unflatten(0, each.shape[:2]) * self.scale

    def slope(self, u: Tensor, scores: Tensor) -> Tensor:
        return self.inside(self.family.mean(scores) - self.y) + u

    def moves(self, scores: Tensor) -> Callable[[Tensor], Tensor]:
        """How the means move when scores do, from there: a weight times what is added to them."""
        if scores.shape[-1] == 1:
            weight = self.family.weight(scores)[..., 0]
            return lambda along: weight * along
        mean = self.family.mean(scores)
        return lambda along: mean * (along - (mean * along).sum(-1, keepdim=True))

    def objective(self, u: Tensor, scores: Tensor) -> Tensor:
        """[.., c]: minus the logarithm of likelihood times prior."""
        told = self.family.likelihood(scores, self.y, self.counts[:, 0])
        return (u * u).flatten(-2).sum(-1) / 2 - told

    def after(self, u: Tensor, scores: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Less this step, as far as it leads downwards."""
        along = self.along(step)  # scores are linear in the length
        lengths = step_lengths(along)[..., None, None]
        found = self.objective(u - lengths * step, scores - lengths * along)
        taken = lengths.gather(0, found.argmin(dim=0)[None, :, None, None])[0]
        return u - taken * step, scores - taken * along

    def by_class(self, scores: Tensor) -> Tensor:
        """The curvature within each class [outputs, m, m] at scores [n, outputs]."""
        if scores.shape[-1] == 1:
            weight = self.family.weight(scores)[..., 0]
        else:
            mean = self.family.mean(scores)
            weight = mean * (1 - mean)
        return self.z.T @ ((weight * self.counts).T.unsqueeze(2) * self.z)


@dataclass(frozen=True)
class _Metric:
    """Near the curvature under each prior."""

    factors: list[Tensor]
    """Of each s the Cholesky factor [outputs, d, d] of I + s·H, H the curvature of slopes."""
    across: Tensor
    """[c, outputs, d, r]: where effects lead slopes."""
    left: Tensor
    """[c, outputs, r, r]: the inverse of what is left of the effects."""
    sizes: list[int]

    @classmethod
    def at(cls, rows: _Rows, scores: Tensor, priors: Priors) -> _Metric:
        """The curvature at these scores [n, outputs], under all of these priors."""
        r = priors.effects.shape[1]
        found = rows.by_class(scores)
        own, cross, slopes = found[:, :r, :r], found[:, r:, :r], found[:, r:, r:]
        eye = torch.eye(slopes.shape[-1]).to(found)
        factors = [torch.linalg.cholesky_ex(eye + s * slopes)[0] for s in priors.slopes.unbind()]
        led = torch.stack([torch.cholesky_solve(cross, factor) for factor in factors])
        beyond = own - priors.slopes.reshape(-1, 1, 1, 1) * (cross.mT @ led)
        place = [k for k, size in enumerate(priors.sizes) for _ in range(size)]
        f, s = (each.reshape(-1, 1, 1, 1) for each in (priors.factors, priors.slope))
        left = torch.linalg.inv_ex(torch.eye(r).to(found) + f * beyond[place])[0]
        return cls(factors, torch.sqrt(f * s) * led[place], left, priors.sizes)

    def __call__(self, side: Tensor) -> Tensor:
        """The step that leads there [c, outputs, m]."""
        r = self.left.shape[-1]
        p, q = side[..., :r, None], side[..., r:, None]
        p = self.left @ (p - self.across.mT @ q)
        parts = []
        for factor, some in zip(self.factors, q[..., 0].split(self.sizes), strict=True):
            parts.append(torch.cholesky_solve(some.movedim(0, -1), factor).movedim(-1, 0))
        q = torch.cat(parts) - (self.across @ p)[..., 0]
        found = torch.cat([p[..., 0], q], dim=2)
        if side.shape[1] > 1:  # what moves all classes alike changes nothing but the prior
            found = found - found.mean(dim=1, keepdim=True)
        return found


def by_gradients(
    family: Family, x: Tensor, y: Tensor, counts: Tensor, offset: Tensor, priors: Priors
) -> tuple[Tensor, Tensor]:
    """Weights around the means [c, outputs, d], and the evidence [c] by Laplace's approximation.

    `offset` [c, n, outputs] are the scores that the means give.
    """
    back, z = None, x * priors.spread
    if len(z) < z.shape[1]:  # the slopes lie in the span of the rows
        back, triangle = torch.linalg.qr(z.mT)
        z = triangle.mT
    effects = x @ priors.effects
    sides = ((priors.factors, effects), (priors.slope, z))
    scale = torch.cat([f.sqrt().unsqueeze(1).expand(-1, s.shape[1]) for f, s in sides], dim=1)
    z, scale = torch.cat([effects, z], dim=1), scale.unsqueeze(1)
    rows = _Rows(family, z, scale, offset, y, counts.unsqueeze(1))
    u, scores, metric = _begun(rows, priors)
    for _ in range(STEPS):
        u, scores = rows.after(u, scores, _step(rows, u, scores, metric))
    evidence = -rows.objective(u, scores) - 0.5 * _logdet(rows, scores)
    p, q = (scale * u).split([effects.shape[1], z.shape[1] - effects.shape[1]], dim=2)
    q = q if back is None else q @ back.mT
    return p @ priors.effects.T + q * priors.spread, evidence


def _begun(rows: _Rows, priors: Priors) -> tuple[Tensor, Tensor, _Metric]:
    """Where all priors begin: at what is the best of a likelihood that is a quadratic function
    around the scores which the middle one leads to; and the metric there."""
    at = len(rows.scale) // 2
    one = slice(at, at + 1)
    alone = replace(rows, scale=rows.scale[one], offset=rows.offset[one])
    single = Priors(
        priors.means[one],
        priors.effects,
        priors.spread,
        priors.factors[one],
        priors.slope[one],
        [1],
    )
    u, scores = torch.zeros_like(alone.inside(alone.offset)), alone.offset
    for _ in range(2):
        metric = _Metric.at(alone, scores[0], single)
        for _ in range(MIDDLE_STEPS):
            u, scores = alone.after(u, scores, _step(alone, u, scores, metric))
    metric = _Metric.at(rows, scores[0], priors)
    ahead = rows.moves(scores)(scores - rows.offset) + rows.y - rows.family.mean(scores)
    begin = metric(rows.inside(ahead))
    return *rows.after(torch.zeros_like(begin), rows.offset, -begin), metric


def _step(rows: _Rows, u: Tensor, scores: Tensor, metric: _Metric) -> Tensor:
    """A Newton step by conjugate gradients."""
    left, moved = rows.slope(u, scores), rows.moves(scores)
    step, towards = torch.zeros_like(left), metric(left)
    ahead, much = towards, _inner(left, towards)
    for _ in range(GRADIENTS):
        bent = rows.inside(moved(rows.along(ahead))) + ahead
        along = _inner(ahead, bent)
        length = torch.where(along > 0, much / along, 0.0)
        step, left = step + length * ahead, left - length * bent
        towards = metric(left)
        after = _inner(left, towards)
        ahead = towards + torch.where(much > 0, after / much, 0.0) * ahead
        much = after
    return step


def _inner(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum((1, 2), keepdim=True)


def _logdet(rows: _Rows, scores: Tensor) -> Tensor:
    """Of the curvature under each prior [c], one after the other: together they would not fit near
    the cache."""
    outputs, found = scores.shape[-1], []
    for scale, each in zip(rows.scale.unbind(), scores.unbind(), strict=True):
        both = scale.mT * scale
        if outputs == 1 or outputs * len(both) <= TOGETHER:
            mean = rows.family.mean(each)
            whole = curvature_of(rows.family, rows.z, mean, rows.counts[:, 0])
            found.append(_logdet_beside_one((whole * both.unsqueeze(1)).flatten(2).flatten(0, 1)))
        else:
            # What moves all classes alike only meets the prior; the rest is about what blocks say.
            blocks = _logdet_beside_one(rows.by_class(each) * both).sum()
            found.append(blocks * (outputs - 1) / outputs)
    return torch.stack(found)


def _logdet_beside_one(found: Tensor) -> Tensor:
    """Of I + H."""
    return logdet_of(torch.linalg.cholesky_ex(torch.eye(found.shape[-1]).to(found) + found)[0])
