"""What an outcome says of a row's scores η [k]: its likelihood is exp(yᵀη − A(η)), up to a factor.

| kind       | k       | y                  | A(η)        | mean μ     | weight       |
|------------|---------|--------------------|-------------|------------|--------------|
| binary     | 1       | 0 or 1             | log(1 + eᵑ) | 1/(1+e⁻ᵑ)  | μ(1 − μ)     |
| count      | 1       | 0, 1, 2 …          | eᵑ          | eᵑ         | μ            |
| multiclass | classes | 1 at the right one | log Σ eᵑ    | eᵑ/Σeᵑ     | diag μ − μμᵀ |

An outcome over time is a count for each interval, 1 where the event came, over how much of the
interval the row lived through; that part is also what the row counts (`local.bayes.design`).

Mean and weight are the first and the second derivative of A, so Newton's method, Laplace's
approximation and Fisher's information are written once for all of them. Numbers with Gaussian
errors are no family here: they have a variance of their own, and closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tacit.data.federation import Kind

HALF = 0.5
"""Added to what was seen, so that a level is finite where nothing was."""
HIGHEST = 20.0
"""Beyond e²⁰ an expected count grows by its Taylor series: one wild row must not overflow."""


@dataclass(frozen=True)
class Family:
    """An outcome with its natural link; scores are [.., n, k]."""

    normaliser: Callable[[Tensor], Tensor]
    """A: [.., n]."""
    mean: Callable[[Tensor], Tensor]
    """What is expected: [.., n, k]."""
    variance: Callable[[Tensor], Tensor]
    """Of an outcome whose expectation is this; so much of η a row tells: [.., n, k, k]."""
    coded: Callable[[Tensor, int], Tensor]
    """Targets [n] as y [n, k]."""
    level: Callable[[Tensor, Tensor], Tensor]
    """The scores [k] of a constant model, from sums of y [k] over so many rows."""

    def weight(self, scores: Tensor) -> Tensor:
        """How much of η rows with these scores tell: [.., n, k, k]."""
        return self.variance(self.mean(scores))

    def likelihood(self, scores: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        """Logarithm, over the rows that count: [..]."""
        counts, y = counts.to(scores), y.to(scores)
        told = scores.flatten(-2) @ (counts.unsqueeze(1) * y).flatten()
        return told - self.normaliser(scores) @ counts


def expected_count(scores: Tensor) -> Tensor:
    """e to the score, as far as that can be written down."""
    near, beyond = _parted(scores)
    return near.exp() * (1 + beyond)


def count_normaliser(scores: Tensor) -> Tensor:
    """What `expected_count` is the derivative of."""
    near, beyond = _parted(scores)
    return near.exp() * (1 + beyond + beyond * beyond / 2)


def _parted(scores: Tensor) -> tuple[Tensor, Tensor]:
    near = scores.clamp(max=HIGHEST)
    return near, scores - near


def _chosen(mean: Tensor) -> Tensor:
    return torch.diag_embed(mean) - mean.unsqueeze(-1) * mean.unsqueeze(-2)


def _doubted(mean: Tensor) -> Tensor:
    return (mean * (1 - mean)).unsqueeze(-1)


def _centred(scores: Tensor) -> Tensor:
    return scores - scores.mean()


def _column(y: Tensor, outputs: int) -> Tensor:
    return y.unsqueeze(-1)


def _one_of(y: Tensor, outputs: int) -> Tensor:
    return (y.unsqueeze(-1) == torch.arange(outputs).to(y)).to(y.dtype)


FAMILIES: dict[Kind, Family] = {
    "binary": Family(
        normaliser=lambda scores: softplus(scores).squeeze(-1),
        mean=torch.sigmoid,
        variance=_doubted,
        coded=_column,
        level=lambda sums, rows: torch.log((sums + HALF) / (rows - sums + HALF)),
    ),
    "count": Family(
        normaliser=lambda scores: count_normaliser(scores).squeeze(-1),
        mean=expected_count,
        variance=lambda mean: mean.clamp(max=math.exp(HIGHEST)).unsqueeze(-1),
        coded=_column,
        level=lambda sums, rows: torch.log((sums + HALF) / (rows + HALF)),
    ),
    "multiclass": Family(
        normaliser=lambda scores: scores.logsumexp(-1),
        mean=lambda scores: scores.softmax(-1),
        variance=_chosen,
        coded=_one_of,
        level=lambda sums, rows: _centred(torch.log(sums + HALF)),
    ),
}
FAMILIES["survival"] = FAMILIES["count"]
