"""One task's part in a mixed model y = x'β + z'b + e, b ~ N(0, Σ), with b integrated out.

Written for one task (`torch.func.vmap` lifts it), in double precision, without branches on data.
`design` gives the rows: x [n, d], y [n], and which of them count.

    squared    V = I + ZΣZᵀ in units of σ²; information XᵀV⁻¹X, score XᵀV⁻¹(y − Xβ): exact
    logistic   the posterior of b by adaptive Gauss–Hermite quadrature around its mode (Pinheiro &
               Bates 1995); the score is E[Xᵀ(y − μ) | y], by Fisher's identity; the information is
               that of the working model with variances 1/μ'(η) at the mode

Own effects are b = Lv with σ²LLᵀ = Σ, v ~ N(0, σ²I). Variances are asked for relative to the
present ones: LLᵀ becomes LTLᵀ/s and σ² becomes sσ². Their moment equations are linear,

    Σₖ Aₖ (T, s) = Σₖ qₖ,     A: Fisher's information,  q = A·(I, 1) + the score of the likelihood

Solved again and again they end at the REML estimate (Goldstein 1986, 1989). Solved once, from
anywhere, they are unbiased already: that is what a release or two can pay for. Row i of A and q may
carry any weight that does not depend on y; `evenly` gives every task the same say about σ².
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from tacit.federation import Kind

NEWTON_STEPS = 10
NODES = {1: 9, 2: 5}
"""Quadrature nodes for each of so many own effects; with more of them the mode stands for all."""


class Said(NamedTuple):
    """What a task has to say about the parameters."""

    information: Tensor
    """[d, d] about β."""
    score: Tensor
    """[d] at the present β; its variance is σ² times the information."""
    equations: Tensor
    """[t, t]: A, about the relative variances."""
    moments: Tensor
    """[t]: q."""
    own: Tensor
    """[r]: the expected own effects b."""


def basis(effects: int) -> Tensor:
    """The symmetric matrices [r(r + 1)/2, r, r] that T is a combination of."""
    pairs = [(i, j) for i in range(effects) for j in range(i + 1)]
    found = torch.zeros(len(pairs), effects, effects, dtype=torch.float64)
    for number, (i, j) in enumerate(pairs):
        found[number, i, j] = found[number, j, i] = 1.0
    return found


def said(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    own: list[int],
    beta: Tensor,
    root: Tensor,
    rest: Tensor,
    correction: Tensor,
    *,
    evenly: bool = False,
    limit: float = math.inf,
) -> Said:
    """Of one task at these parameters (`root` is L, `rest` is σ²); `own` are the columns of z.

    Residuals are smaller than errors by what was learnt of β from the same rows, and larger by the
    noise in β: `correction` [d, d] is the covariance of the one less that of the other, over σ².
    Residuals count as at most `limit` standard deviations.
    """
    x, y, counts = rows
    x, y = x * counts.unsqueeze(1), y * counts
    z = x[:, own] @ root
    if kind == "regression":
        error = _limited(y - x @ beta, z, rest, limit)
        found = _squared(x, error, counts, z, rest, correction, evenly)
    else:
        found = _by_quadrature(x, y, counts, z, x @ beta)
    return found._replace(own=root @ found.own)


def own_effects(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    own: list[int],
    beta: Tensor,
    root: Tensor,
    rest: Tensor,
    *,
    limit: float = math.inf,
) -> Tensor:
    """The expected own effects b [r] alone: of what is `said`, all that a task keeps to itself."""
    if kind != "regression":
        return said(kind, rows, own, beta, root, rest, torch.zeros_like(beta)).own
    x, y, counts = rows
    z = (x[:, own] * counts.unsqueeze(1)) @ root
    error = _limited((y - x @ beta) * counts, z, rest, limit)
    return root @ (z.T @ _whitened(error, z))


def _limited(error: Tensor, z: Tensor, rest: Tensor, limit: float) -> Tensor:
    """Residuals of at most so many standard deviations."""
    most = limit * torch.sqrt(rest * (1 + (z * z).sum(1)))
    return torch.maximum(torch.minimum(error, most), -most)


def score(
    rows: tuple[Tensor, Tensor, Tensor], own: list[int], beta: Tensor, root: Tensor
) -> Tensor:
    """XᵀV⁻¹(y − Xβ) [d] alone of what is `said` in a regression: it needs least work."""
    x, y, counts = rows
    x, y = x * counts.unsqueeze(1), y * counts
    return x.T @ _whitened(y - x @ beta, x[:, own] @ root)


def information(rows: tuple[Tensor, Tensor, Tensor], own: list[int], root: Tensor) -> Tensor:
    """XᵀV⁻¹X [d, d] alone, likewise."""
    x, _, counts = rows
    x = x * counts.unsqueeze(1)
    return _information(x, x[:, own] @ root)[0]


def _information(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """XᵀV⁻¹X, ZᵀV⁻¹X and (I + ZᵀZ)⁻¹."""
    cross, middle = z.T @ x, torch.linalg.inv(torch.eye(z.shape[1]).to(z) + z.T @ z)
    across = middle @ cross
    return x.T @ x - cross.T @ across, across, middle


def _whitened(error: Tensor, z: Tensor) -> Tensor:
    """V⁻¹e."""
    eye = torch.eye(z.shape[1]).to(z)
    return error - z @ (torch.linalg.inv(eye + z.T @ z) @ (z.T @ error))


def _squared(
    x: Tensor, error: Tensor, counts: Tensor, z: Tensor, rest: Tensor, correction: Tensor,
    evenly: bool,
) -> Said:  # fmt: skip
    effects = z.shape[1]
    eye, shapes = torch.eye(effects).to(z), basis(effects).to(z)
    known, across, middle = _information(x, z)
    known_twice = known - across.T @ across  # XᵀV⁻²X
    white = _whitened(error, z)
    toward = z.T @ white
    about = eye - middle  # ZᵀV⁻¹Z: how much of v the rows tell
    twice = middle @ about  # ZᵀV⁻²Z
    trace = counts.sum() - 2 * about.trace() + (about @ about).trace()  # of V⁻²
    side = torch.einsum("ab,iba->i", twice, shapes)
    weight = 1 / trace.clamp(min=1e-9) if evenly else torch.ones_like(trace)
    corner = torch.einsum("ab,ibc,cd,jda->ij", about, shapes, about, shapes)
    top = torch.cat([corner, side.unsqueeze(1)], dim=1)
    last = torch.cat([side, trace.reshape(1)]) * weight
    seen = toward.outer(toward) / rest + across @ correction @ across.T
    squares = white @ white / rest + (correction * known_twice).sum()
    moments = torch.cat([torch.einsum("ab,iba->i", seen, shapes), (weight * squares).reshape(1)])
    equations = torch.cat([top, last.unsqueeze(0)])
    return Said(known, x.T @ white, equations, moments, toward)


def _by_quadrature(x: Tensor, y: Tensor, counts: Tensor, z: Tensor, fixed: Tensor) -> Said:
    effects = z.shape[1]
    eye, shapes = torch.eye(effects).to(z), basis(effects).to(z)
    mode, factor, weight = _mode(fixed, z, y, counts)
    nodes, chances = _posterior(fixed, z, y, counts, mode, factor)
    expected = chances @ torch.sigmoid(fixed + nodes @ z.T)
    second = torch.einsum("j,ja,jb->ab", chances, nodes, nodes)
    covariance = torch.cholesky_inverse(factor)
    if effects not in NODES:  # one node has no spread of its own
        second = second + covariance
    known = (z * weight.unsqueeze(1)).T @ x
    information = (x * weight.unsqueeze(1)).T @ x - known.T @ covariance @ known
    about = eye - covariance
    equations = torch.einsum("ab,ibc,cd,jda->ij", about, shapes, about, shapes)
    present = torch.einsum("ab,ibc,ca->i", about, shapes, about)
    moments = present + torch.einsum("ab,iba->i", second - eye, shapes)
    score = x.T @ (counts * (y - expected))
    return Said(information, score, equations, moments, chances @ nodes)


def _likelihood(scores: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """Logarithm, of scores [.., n]."""
    return (counts * (y * scores - softplus(scores))).sum(-1)


def _weight(scores: Tensor, counts: Tensor) -> Tensor:
    chance = torch.sigmoid(scores)
    return counts * chance * (1 - chance)


def _mode(fixed: Tensor, z: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The most likely v, the factor of minus the second derivative there, and the rows' weights."""
    eye = torch.eye(z.shape[1]).to(z)
    lengths = torch.tensor((1.0, 0.5, 0.2, 0.05, 0.0)).to(z)
    v = z.new_zeros(z.shape[1])

    def value(v: Tensor) -> Tensor:
        return _likelihood(fixed + v @ z.T, y, counts) - (v * v).sum(-1) / 2

    for _ in range(NEWTON_STEPS):
        scores = fixed + z @ v
        curve = eye + (z * _weight(scores, counts).unsqueeze(1)).T @ z
        slope = z.T @ (counts * (y - torch.sigmoid(scores))) - v
        step = torch.linalg.solve(curve, slope)
        best = value(v + lengths.unsqueeze(1) * step).argmax()
        v = v + lengths[best] * step
    weight = _weight(fixed + z @ v, counts)
    factor = torch.linalg.cholesky_ex(eye + (z * weight.unsqueeze(1)).T @ z)[0]
    return v, factor, weight


def _posterior(
    fixed: Tensor, z: Tensor, y: Tensor, counts: Tensor, mode: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    """Values of v [j, r] and how likely each is, given the rows."""
    effects = len(mode)
    if effects not in NODES:
        return mode.unsqueeze(0), torch.ones(1).to(mode)
    points, weights = np.polynomial.hermite_e.hermegauss(NODES[effects])
    grid = torch.cartesian_prod(*[torch.from_numpy(points)] * effects).reshape(-1, effects)
    chance = torch.cartesian_prod(*[torch.from_numpy(weights)] * effects).reshape(-1, effects)
    grid, chance = grid.to(mode), chance.log().sum(1).to(mode)
    nodes = mode + torch.linalg.solve_triangular(factor.T, grid.T, upper=True).T
    height = _likelihood(fixed + nodes @ z.T, y, counts) - (nodes * nodes).sum(1) / 2
    return nodes, torch.softmax(height + (grid * grid).sum(1) / 2 + chance, dim=0)
