"""Where groups begin: read off two noisy releases, the moments of what tasks found and their votes.

`methods.grouping` says what tasks send for it. The spectrum of the moments says in how many
directions groups lie apart (`standing_out`), points around the middle in these directions are voted
on (`points`), and the peaks of the votes are where groups begin (`placed`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.privacy.covariance import flatten, unflatten

MOST = 6
"""As many groups are looked for where nobody says how many there are."""
POINTS = 32
"""What tasks vote on."""
NUMBERS = 64
"""Of what a task found by itself, so many numbers are told of at most."""
ABOVE_NOISE, ABOVE_OTHERS = (1.1, 1.0), (2.2, 1.8)
"""A direction stands out if its variance is beyond what noise alone may reach, and so many times
that of the first direction that cannot be one between groups. For the first direction, and for more
of them: one too many only spreads the votes, one too few hides a group."""
ALIKE = 0.9
"""Points are thinned out where the cosine between them is larger (26 degrees): in few directions a
few of them are enough, and each has noise."""
NEAR = 0.5
"""Cosine between directions that belong to one peak: 60 degrees."""
FEWEST, CLEAR = 0.05, 3.0
"""A group has at least this share of the tasks, and so many standard deviations of noise."""


def sketched(vector: Tensor, signs: Tensor) -> Tensor:
    """A long vector in `NUMBERS`, a short one as it is.

    Numbers with random signs are added up in turn: lengths and angles stay about what they were.
    """
    if len(vector) <= NUMBERS:
        return vector
    signed = torch.nn.functional.pad(vector * signs, (0, -len(vector) % NUMBERS))
    return signed.reshape(-1, NUMBERS).sum(dim=0)


def signs_for(like: Tensor) -> Tensor:
    """Public signs for `sketched`, always the same."""
    chance = torch.Generator().manual_seed(len(like))
    return (2.0 * torch.randint(2, (len(like),), generator=chance) - 1).to(like)


def direction(vector: Tensor) -> Tensor:
    """Of length one, so that no clip matters to who is alike; zero stays zero."""
    return vector / torch.linalg.vector_norm(vector).clamp(min=1e-30)


def moments_of(x: Tensor, mean: float, covariance: float) -> Tensor:
    """(√a x, √b flat(xxᵀ)), for ‖x‖ ≤ 1."""
    return torch.cat([math.sqrt(mean) * x, math.sqrt(covariance) * flatten(torch.outer(x, x))])


def told_of(
    released: Tensor, mean: float, covariance: float, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance of x from the mean over tasks of `moments_of`, and the latter's noise."""
    size = round((math.sqrt(9 + 8 * len(released)) - 3) / 2)
    middle = released[:size].double() / math.sqrt(mean)
    second = unflatten(released[size:].double(), size) / math.sqrt(covariance)
    eye = torch.eye(size).to(second)
    # The noise in the mean, squared, is no part of its square.
    spread = second - torch.outer(middle, middle) + eye * noise**2 / mean
    return middle, spread, noise / math.sqrt(covariance)


def points(
    directions: Tensor, middle: Tensor, spread: Tensor, noise: Tensor, *, auto: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What tasks vote on: points [`POINTS`, k], the cosines between them, and whether they differ.

    `spread` is a covariance [k, k] with noise of this standard deviation on its diagonal. Groups in
    r directions of variance λ are √(rλ) away from the middle, like the corners of a simplex.
    """
    values, vectors = torch.linalg.eigh(spread)
    values, vectors, r = values.flip(0), vectors.flip(1), directions.shape[1]
    stands_out = standing_out(values, noise)[:r] if auto else values[:r] > 0
    values, vectors = values[:r], vectors[:, :r]
    directions = directions.to(values) * stands_out
    length = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    directions = directions / length.clamp(min=1e-30)
    found = stands_out.sum()
    radii = torch.sqrt(found * values.clamp(min=0.0))
    cosines = directions @ directions.T
    kept = thinned(cosines)
    # Points that are left out lie where the first one is, which is nearest before them.
    directions = torch.where(kept.unsqueeze(1), directions, directions[0])
    return (
        middle + (directions * radii) @ vectors.T,
        torch.where(torch.outer(kept, kept), cosines, -1.0),
        stands_out.any(),
    )


def thinned(cosines: Tensor) -> Tensor:
    """Which points stay: one after the other, unless one that stays is like it."""
    kept = [torch.ones_like(cosines[0, 0], dtype=torch.bool)]
    for row in range(1, len(cosines)):
        kept.append(~(torch.stack(kept) & (cosines[row, :row] > ALIKE)).any())
    return torch.stack(kept)


def standing_out(values: Tensor, noise: Tensor) -> Tensor:
    """Which of these eigenvalues, largest first, are of directions between groups.

    Noise is taken off first, as if it and what all tasks differ in were both semicircles: then
    squares of widths add up, and a value θ above the middle is seen at θ + (edge / 2)² / θ.
    """
    size = len(values)
    edge = noise * math.sqrt(2 * size)  # of a symmetric matrix of noise alone
    middle = values.median().clamp(min=0.0)
    beyond = (values - middle).clamp(min=0.0)
    # As many directions as groups have at most, and the next is what all tasks differ in.
    rank = min(MOST, size // 2)
    reached = edge * (1 - (3 * math.pi / math.sqrt(32) * (rank + 0.5) / size) ** (2 / 3))
    usual = middle + torch.sqrt((beyond[rank] ** 2 - reached**2).clamp(min=0.0))
    clean = middle + (beyond + torch.sqrt((beyond**2 - edge**2).clamp(min=0.0))) / 2
    first, more = (
        (beyond > noises * edge) & (clean > times * usual)
        for noises, times in zip(ABOVE_NOISE, ABOVE_OTHERS, strict=True)
    )
    return first[0] & more


def all_around(r: int) -> Tensor:
    """Public directions [`POINTS`, r], always the same."""
    chance = torch.Generator().manual_seed(r)
    drawn = torch.randn(POINTS, r, generator=chance)
    return drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True).clamp(min=1e-30)


def nearest(x: Tensor, among: Tensor) -> Tensor:
    """One-hot: which of the points [n, k] is nearest; the first of several."""
    return one_hot(((x.to(among) - among) ** 2).sum(dim=1).neg())


def one_hot(scores: Tensor) -> Tensor:
    """Where the largest score is; the first of several."""
    return (torch.arange(len(scores)).to(scores) == scores.argmax()).to(scores.dtype)


def placed(
    votes: Tensor, noise: Tensor, points: Tensor, cosines: Tensor, apart: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Where groups begin [most, k], and the share of votes around each; 0 for a group that is none.

    Peak after peak: the point with the most votes around it, weighted by how near they are; votes
    within 60 degrees of it are then spoken for. The first group there always is.
    """
    weights = ((cosines - NEAR) / (1 - NEAR)).clamp(min=0.0)
    weights = torch.where(apart > 0, weights, 1.0)  # all points are the same one
    left, centres, shares = votes.double(), [], []
    for number in range(most):
        peak = one_hot(weights @ left)
        around = peak @ weights
        cap = (around > 0).to(left)
        share = cap @ left
        pulled = around * left.clamp(min=0.0)
        centres.append(pulled @ points / pulled.sum().clamp(min=1e-30))
        enough = torch.clamp(CLEAR * noise * torch.sqrt(cap.sum()), min=FEWEST)
        there = (share > enough) & (apart > 0)
        shares.append(torch.where(there, share, 0.0) if number else share.clamp(min=1e-3))
        left = left * (1 - cap)
    shares = torch.stack(shares)
    return torch.stack(centres), shares / shares.sum()
