"""What a release holds when the mean alone is not enough: mean and covariance of the contributions.

A contribution is a vector v, clipped to length K and measured in clips (x = v/K, so ‖x‖ ≤ 1), and
perhaps one more number u in [−1, 1]. What is summed of it is one vector,

    φ(x, u) = (√a · x,  √s · u,  √b · flat(x xᵀ)),      a + s + b = 1,

with `flat` the isometry of `privacy.covariance`. Its length is at most √(a + s + b) = 1, so
Gaussian noise of standard deviation z on all of its coordinates is one Gaussian release with
multiplier z, whatever the shares: more for the one is less for the other. With b = 1 the noise on
the covariance is the symmetric Gaussian with K²z on the diagonal and K²z/√2 beside it.

Replacing a task moves the sum by at most √(4a + 4s + 2b): two vectors of length one are at most 2
apart, but two covariances x xᵀ at most √2, because their inner product (xᵀx')² is not negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.covariance import flatten


@dataclass(frozen=True)
class Moments:
    """Shares of the release (in inverse variance) for covariance, mean, and one extra number."""

    covariance: float = 1.0
    mean: float = 0.0
    extra: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.covariance, self.mean, self.extra)
        if min(shares) < 0 or not math.isclose(sum(shares), 1):  # the bound above rests on it
            raise TacitError(f"shares {shares} must be zero or more and add up to 1")

    @property
    def replaced(self) -> float:
        """How far replacing a task moves the sum, where removing it moves it by one."""
        return math.sqrt(4 * (self.mean + self.extra) + 2 * self.covariance)

    def vector(self, length: int) -> int:
        """How many of the numbers of a contribution are the vector that is clipped."""
        return length - (self.extra > 0)

    def size(self, length: int) -> int:
        """How many numbers are released for contributions of this length."""
        d = self.vector(length)
        parts = ((self.mean, d), (self.extra, 1), (self.covariance, d * (d + 1) // 2))
        return sum(numbers for share, numbers in parts if share > 0)

    def each(self, contributions: Tensor, scale: Tensor) -> Tensor:
        """φ of each contribution [k, length], before anything is summed: [k, size]."""
        d = self.vector(contributions.shape[1])
        x = contributions[:, :d] * scale.unsqueeze(1)
        parts = []
        if self.mean > 0:
            parts.append(math.sqrt(self.mean) * x)
        if self.extra > 0:
            parts.append(math.sqrt(self.extra) * contributions[:, d:].clamp(-1.0, 1.0))
        if self.covariance > 0:
            parts.append(math.sqrt(self.covariance) * flatten(x.unsqueeze(2) * x.unsqueeze(1)))
        return torch.cat(parts, dim=1)

    def read(self, released: Tensor, d: int, unit: float) -> Tensor:
        """Mean, extra and covariance in the contributions' own units, one after the other."""
        scales = []
        if self.mean > 0:
            scales.append(torch.full((d,), unit / math.sqrt(self.mean)))
        if self.extra > 0:
            scales.append(torch.full((1,), 1 / math.sqrt(self.extra)))
        if self.covariance > 0:
            scales.append(torch.full((d * (d + 1) // 2,), unit**2 / math.sqrt(self.covariance)))
        return released * torch.cat(scales).to(released)
