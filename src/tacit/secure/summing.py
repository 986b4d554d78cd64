"""A sum of contributions that is opened with noise inside: no party ever holds it without.

    task k ──► shares of vₖ (integers) ──► server i: Σₖ share + its own noise ──► coordinator
               16 bytes to all servers                                           puts P noisy
               but one                                                           shares together

Contributions vₖ are integer vectors: what a task bounds to length one, times 2^m, rounded towards
zero. Server i draws ηᵢ ~ N(0, (z·2^m)² I) and adds it, rounded to integers. Words wrap around.

**Claim.** Let ‖vₖ‖ ≤ 2^m for every task. Then what up to P − 1 servers (who know their own noise)
and all readers of the billboard see together is a post-processing of one Gaussian mechanism with
noise multiplier z on Σ vₖ/2^m. Every accountant that is valid for the Gaussian mechanism is valid
here as it stands, after a sampled cohort too, with nothing to add.

**Proof.** All but one of a vector's shares are uniform words and independent of it, so the shares
that P − 1 servers hold tell nothing. What is opened is s + Σᵢ round(ηᵢ) modulo 2^bits, s = Σ vₖ.
Let server h be honest. s is an integer vector, so s + round(η_h) = round(s + η_h), except for ties,
which have probability zero. s + η_h is the Gaussian mechanism: a task moves s by at most 2^m, and
the noise has standard deviation z·2^m in each coordinate. Rounding it, adding the other servers'
noises (independent of s, given to the observer) and wrapping around are post-processing. ∎

Rounding towards zero makes no coordinate larger in magnitude, so ‖vₖ‖/2^m is at most the length of
what was rounded: quantisation costs no sensitivity. Tasks outside the cohort share zeros, so that
shares, lengths and counts of messages are alike for everybody: no server learns the cohort, and
what sampling is worth holds towards servers as well.

**Why not a discrete Gaussian?** It is as accurate (Canonne, Kamath & Steinke 2020), but several of
them do not add up to one: the sum of P is only close to discrete Gaussian (Kairouz, Liu & Steinke
2021), and in many dimensions its privacy loss depends on the direction in which a task moves the
sum, so there is no exact loss distribution for it, least of all after sampling. The rounded
Gaussian inherits the continuous one's accountants, and needs no sampler of its own.

**What is assumed.** All parties follow the protocol. The coordinator does not pool what it is sent
with servers: of a round that failed it may hold noisy shares, which were not booked, and which it
throws away. The proof is about real numbers: in double precision noise has a grid of its own, which
`LOUDEST` keeps at least 2¹³ times finer than the integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.randomness import Randomness
from tacit.secure.job import COORDINATOR, Job, server_name
from tacit.secure.links import Links
from tacit.secure.sharing import Words, hidden, mask, reconstruct
from tacit.secure.stream import SEED_BYTES, fresh_seed

TAILS = 12.0
"""Standard deviations of noise that must fit: it passes them with probability below 10⁻³²."""
LOUDEST = 2.0**40
"""Noise stays below this many steps: doubles are then far finer than the grid, and hide it all."""
FINEST = {32: 20, 64: 30}
"""Bits of a clip, at most; more would be far below any noise."""
COARSEST = 16


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
        """The finest grid in the smallest ring that holds all tasks, and noise of all servers."""
        widest = tasks + TAILS * math.sqrt(servers) * noise
        for bits, finest in FINEST.items():
            for fraction in range(finest, COARSEST - 1, -1):
                quiet = TAILS * noise * 2**fraction < LOUDEST
                if quiet and widest * 2**fraction < 2 ** (bits - 1):
                    return cls(bits, fraction)
        raise TacitError(
            f"{tasks} tasks with noise {noise:.3g} do not fit into shares of 64 bits: ask for less "
            "noise (a larger epsilon, or fewer rounds)"
        )


@dataclass(frozen=True, kw_only=True)
class SumJob(Job):
    """One noisy sum of integer vectors."""

    kind = "sum"
    size: int
    """Length of a vector."""
    bits: int
    bound: int
    """Largest magnitude of a number that a client hands in."""
    noise: float
    """Standard deviation of each server's noise, in steps of the grid."""

    def __post_init__(self) -> None:
        if self.servers < 2 or self.size < 1 or self.bits not in FINEST or self.bound < 1:
            raise TacitError("a sum needs two servers, one number, 32 or 64 bits, and a bound")
        if not (self.noise > 0 and TAILS * self.noise < LOUDEST):
            raise TacitError(
                f"noise={self.noise!r}: servers open sums with noise only, below {LOUDEST:.3g}"
            )
        if len(self.clients) * self.bound >= 2 ** (self.bits - 1):
            raise TacitError(
                f"{len(self.clients)} numbers up to {self.bound} do not fit into {self.bits} bits: "
                "use 64 bits, or a smaller bound"
            )

    @property
    def word(self) -> Words:
        return np.uint32 if self.bits == 32 else np.uint64

    def upload(self, links: Links, secret: Any) -> None:
        values = np.asarray(secret)
        if values.shape != (self.size,) or values.dtype != np.int64:
            raise TacitError(f"{links.name} must hand in {self.size} integers (int64)")
        largest = max(int(values.max()), -int(values.min()))
        if largest > self.bound:  # before anything is sent
            raise TacitError(
                f"{links.name} hands in {largest}, but numbers up to {self.bound} were agreed: "
                "bound the contribution first"
            )
        seeds = [fresh_seed() for _ in range(self.servers - 1)]
        for index, seed in enumerate(seeds, start=1):
            links.send(server_name(index), "mask", seed)
        links.send(server_name(0), "share", hidden(self._words(values), seeds))

    def serve(self, links: Links, index: int) -> None:
        total = np.zeros(self.size, self.word)
        room = np.empty(self.size, self.word)
        for client in self.clients:
            if index == 0:
                total += links.receive(client, "share", (self.size,), self.word, out=room)
            else:
                seed = links.receive(client, "mask", (SEED_BYTES,))
                total += mask(seed.tobytes(), (self.size,), self.word)
        drawn = np.rint(self.normal(index) * self.noise).astype(np.int64)
        total += self._words(drawn)
        links.send(COORDINATOR, "noisy share", total)

    def conclude(self, links: Links) -> list[np.ndarray]:
        """The noisy shares, not put together: that is the release, and must be booked before."""
        return [
            links.receive(server_name(i), "noisy share", (self.size,), self.word)
            for i in range(self.servers)
        ]

    def combine(self, shares: list[np.ndarray]) -> np.ndarray:
        """The noisy sum, as signed integers."""
        words = reconstruct(shares)
        return words.view(np.int32 if self.bits == 32 else np.int64).astype(np.int64)

    def normal(self, index: int) -> np.ndarray:
        """Standard normal numbers of this server, from the operating system."""
        return Randomness().normal("server noise", 0, self.size)

    def _words(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.uint64).astype(self.word)


@dataclass(frozen=True, kw_only=True)
class SeededSum(SumJob):
    """A sum with reproducible noise, for simulation. It cannot leave its process.

    What real servers are asked to do is made from JSON, which this has none of: no message can make
    a server draw noise that somebody else knows.
    """

    randomness: Randomness
    round: int

    def normal(self, index: int) -> np.ndarray:
        return self.randomness.normal("server noise", self.round, self.size, number=index)

    def to_json(self) -> dict[str, Any]:
        raise TacitError(
            "servers draw their own noise, which no seed can decide: leave seed out, or peers"
        )
