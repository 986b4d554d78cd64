"""The integers that are summed: bounded vectors on a grid, with rounded Gaussian noise.

A vector of length at most one, measured in clips, is multiplied by 2^m and rounded towards zero.
Sums of such integers are exact, in any order, on any number of machines.

**Claim.** Let every task hand in an integer vector vₖ with ‖vₖ‖ ≤ 2^m, and let s = Σ vₖ. Then
s + round(η) with η ~ N(0, (z·2^m)² I) is a post-processing of the Gaussian mechanism with noise
multiplier z on Σ vₖ/2^m. Every accountant that is valid for that mechanism is valid here as it
stands, after a sampled cohort too, with nothing to add.

**Proof.** s is an integer vector, so s + round(η) = round(s + η), except for ties, which have
probability zero. s + η is the Gaussian mechanism: a task moves s by at most 2^m, and the noise has
standard deviation z·2^m in each coordinate. Rounding is post-processing. ∎

Rounding towards zero makes no coordinate larger in magnitude, so ‖vₖ‖/2^m is at most the length of
what was rounded: the grid costs no sensitivity. Lengths are computed in double precision and kept
below `LONGEST`, so that their own rounding (relative 10⁻¹³ for a billion numbers) cannot pass one.
What is said here is about the numbers as the machine holds them, with one exception: η itself is
made in double precision. Its own grid is at least 2¹³ times finer than the integers (`LOUDEST`).

**Why not a discrete Gaussian?** It is as accurate (Canonne, Kamath & Steinke 2020), but several of
them do not add up to one: the sum of P is only close to discrete Gaussian (Kairouz, Liu & Steinke
2021), and in many dimensions its privacy loss depends on the direction in which a task moves the
sum, so there is no exact loss distribution for it, least of all after sampling. The rounded
Gaussian inherits the continuous one's accountants, and needs no sampler of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.errors import TacitError

LONGEST = 1 - 2.0**-20
"""Vectors are brought to this length at most: rounding in double precision cannot pass 1."""
TAILS = 12.0
"""Standard deviations of noise that must fit: it passes them with probability below 10⁻³²."""
LOUDEST = 2.0**40
"""Noise stays below this many steps: doubles are then far finer than the grid, and hide it all."""
FRACTIONS = {32: (20, 16), 64: (30, 4)}
"""Bits of a clip, at most and at least; more would be far below any noise."""


@dataclass(frozen=True)
class Grid:
    """A clip is 2^fraction steps of integers modulo 2^bits.

    A coordinate of a contribution is off by less than 2^−fraction clips (10⁻⁶ with 20 bits), always
    towards zero; a mean over a cohort of the expected size by less than that.
    """

    bits: int
    fraction: int

    @property
    def steps(self) -> int:
        """In one clip."""
        return 2**self.fraction

    @classmethod
    def of(cls, tasks: int, servers: int, noise: float) -> Grid:
        """The finest grid in the smallest ring that holds all tasks, and noise of all servers.

        One machine that sums in the clear has no bytes to save: it takes the larger ring.
        """
        widest = tasks + TAILS * math.sqrt(servers) * noise
        for bits in (64,) if servers == 1 else FRACTIONS:
            finest, coarsest = FRACTIONS[bits]
            for fraction in range(finest, coarsest - 1, -1):
                quiet = TAILS * noise * 2**fraction < LOUDEST
                if quiet and widest * 2**fraction < 2 ** (bits - 1):
                    return cls(bits, fraction)
        raise TacitError(
            f"{tasks} tasks with noise {noise:.3g} do not fit into sums of 64 bits: ask for less "
            "noise (a larger epsilon, or fewer rounds)"
        )

    def integers(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors [.., size] of length at most one as integers of length at most 2^fraction.

        Who hands them in bounds them already. The proof should not rest on that: what is longer is
        shortened here, and what is not finite counts as zero.
        """
        vectors = vectors.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
            shortened = vectors * np.minimum(LONGEST / lengths, 1.0)
        kept = np.where(lengths > LONGEST, shortened, vectors)
        kept = np.where(np.isfinite(lengths), kept, 0.0)
        return np.trunc(kept * self.steps).astype(np.int64)

    def within(self, total: np.ndarray, vectors: int) -> np.ndarray:
        """A sum of so many vectors at most; numbers that no such sum has are brought to the edge.

        Two sums are not further apart after that than before, so nobody's bound grows.
        """
        return np.clip(total, -vectors * self.steps, vectors * self.steps)

    def shortened(self, total: np.ndarray, clips: float) -> np.ndarray:
        """A sum of length at most so many clips: the nearest such one, rounded towards zero.

        Two sums are not further apart after that than before, but for `off`.
        """
        exact = total.astype(np.float64)
        length, most = float(np.linalg.norm(exact)), clips * self.steps * LONGEST
        return total if length <= most else np.trunc(exact * (most / length)).astype(np.int64)

    def off(self, size: int, clips: float) -> float:
        """How much further apart two sums [size] can be once they are shortened, in clips.

        The nearest points of a ball are no further apart than what they are nearest to. Rounding
        towards zero brings numbers of unlike signs together, and takes those of like signs less
        than a step further apart: √size steps in all. The rest is that of double precision: a
        length of n squares is off by n/2 roundings at most, whatever the order they are added in.
        """
        return math.sqrt(size) / self.steps + clips * (size + 8) * 2.0**-52

    def noise(self, normal: np.ndarray, multiplier: float) -> np.ndarray:
        """Standard normal numbers as rounded noise of this many clips."""
        scaled = normal * (multiplier * self.steps)
        return np.rint(scaled, out=scaled).astype(np.int64)
