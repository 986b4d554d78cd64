"""A sum of contributions that is opened with noise inside: no party ever holds it without.

    task k ──► shares of vₖ (integers) ──► server i: Σₖ share + its own noise ──► coordinator
               16 bytes to all servers                                           puts P noisy
               but one                                                           shares together

Contributions vₖ are integer vectors of length at most 2^m (`tacit.privacy.grid`). Server i draws
ηᵢ ~ N(0, (z·2^m)² I) and adds it, rounded to integers. Words wrap around.

**Claim.** Let ‖vₖ‖ ≤ 2^m for every task. Then what up to P − 1 servers (who know their own noise)
and all readers of the billboard see together is a post-processing of one Gaussian mechanism with
noise multiplier z on Σ vₖ/2^m.

**Proof.** All but one of a vector's shares are uniform words and independent of it, so the shares
that P − 1 servers hold tell nothing. What is opened is s + Σᵢ round(ηᵢ) modulo 2^bits, s = Σ vₖ.
Let server h be honest. By the claim of `privacy.grid`, s + round(η_h) is a post-processing of the
Gaussian mechanism. Adding the other servers' noises (independent of s, given to the observer) and
wrapping around are post-processing. ∎

**The same job again.** A server draws its noise from a secret of its own and the digest of the job
(`Job.digest`), so the same job has the same noise whenever it is asked for. A silo hands the same
vector to the same job (`deploy.shares`). So what an honest server h sends in any attempt is
its share of the same Σ vₖ with the same η_h, moved by what others hand in, who know it: masks are
fresh, and uniform. Whoever was shown one attempt learns nothing from another. What differs in
anything public, the clients for example, has another digest, and other noise.

**Persons.** Where persons contribute, a client hands in the sum of its persons' vectors, each of
length at most 2^m, and all of the above holds for a person in the place of a task. The ring holds
`members` of them from every client, which clients keep to (`privacy.subtotal`).

Tasks outside the cohort share zeros, so that shares, lengths and counts of messages are alike for
everybody: no server learns the cohort, and what sampling is worth holds towards servers as well.

**What is assumed.** All parties follow the protocol. The coordinator does not pool what it is sent
with servers: of a round that failed it may hold noisy shares, which were not booked, and which it
throws away. A client that hands in more than it may spoils the sum, and nobody sees which one it
was; the privacy of others does not rest on it. A sum that is longer than all clips and the noise
can make it is noticed (`Spoiled`). To bound each client by itself, servers would have to square
shares: that takes a dealer, or proofs as long as the vectors in a field in place of this ring.
"""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.privacy.grid import FRACTIONS, LOUDEST, TAILS
from tacit.randomness import Randomness, normal_from
from tacit.secure.jobs.job import COORDINATOR, MOST_NUMBERS, Job, server_name
from tacit.secure.net.links import Links
from tacit.secure.ring.sharing import Words, hide, mask, reconstruct
from tacit.secure.ring.stream import SEED_BYTES, Stream, fresh_seed


class Spoiled(TacitError):
    """A sum that honest clients and servers do not make."""


@dataclass(frozen=True, kw_only=True)
class SumJob(Job):
    """One noisy sum of integer vectors."""

    kind = "sum"
    repeatable = True
    size: int
    """Length of a vector."""
    bits: int
    bound: int
    """Steps of the grid in a clip: the largest magnitude of a number in one vector."""
    noise: float
    """Standard deviation of each server's noise, in steps of the grid."""
    members: int = 1
    """How many vectors a client may hand in the sum of."""

    def __post_init__(self) -> None:
        if self.servers < 2 or self.size < 1 or self.bits not in FRACTIONS or self.bound < 1:
            raise TacitError("a sum needs two servers, one number, 32 or 64 bits, and a bound")
        if self.members < 1:
            raise TacitError(f"members={self.members!r}: a client hands in one vector at least")
        if self.size > MOST_NUMBERS:
            raise TacitError(f"a sum has at most {MOST_NUMBERS} numbers")
        if not (self.noise > 0 and TAILS * self.noise < LOUDEST):
            raise TacitError(
                f"noise={self.noise!r}: servers open sums with noise only, below {LOUDEST:.3g}"
            )
        if len(self.clients) * self.most >= 2 ** (self.bits - 1):
            raise TacitError(
                f"{len(self.clients)} numbers up to {self.most} do not fit into {self.bits} bits: "
                "use 64 bits, or a smaller bound"
            )

    @property
    def most(self) -> int:
        """Largest magnitude of a number that a client hands in."""
        return self.members * self.bound

    @property
    def word(self) -> Words:
        return np.uint32 if self.bits == 32 else np.uint64

    def upload(self, links: Links, secret: Any) -> None:
        values = np.asarray(secret)
        if values.shape != (self.size,) or values.dtype != np.int64:
            raise TacitError(f"{links.name} must hand in {self.size} integers (int64)")
        largest = max(int(values.max()), -int(values.min()))
        if largest > self.most:  # before anything is sent
            raise TacitError(
                f"{links.name} hands in {largest}, but numbers up to {self.most} were agreed: "
                "bound the contribution first"
            )
        seeds = [fresh_seed() for _ in range(self.servers - 1)]
        for index, seed in enumerate(seeds, start=1):
            links.send(server_name(index), "mask", seed)
        links.send(server_name(0), "share", hide(self._words(values), seeds))

    def serve(self, links: Links, index: int) -> None:
        total = np.zeros(self.size, self.word)
        room = np.empty(self.size, self.word)
        for client in self.clients:
            if index == 0:
                total += links.receive(client, "share", (self.size,), self.word, out=room)
            else:
                seed = links.receive(client, "mask", (SEED_BYTES,))
                total += mask(seed.tobytes(), (self.size,), self.word)
        drawn = np.rint(self.normal(index, links.secret) * self.noise).astype(np.int64)
        total += self._words(drawn)
        links.send(COORDINATOR, "noisy share", total)

    def conclude(self, links: Links) -> list[np.ndarray]:
        """The noisy shares. Putting them together is the release, which is booked before."""
        return [
            links.receive(server_name(i), "noisy share", (self.size,), self.word)
            for i in range(self.servers)
        ]

    def combine(self, shares: list[np.ndarray]) -> np.ndarray:
        """The noisy sum, as signed integers."""
        words = reconstruct(shares)
        return words.view(np.int32 if self.bits == 32 else np.int64).astype(np.int64)

    def check_length(self, total: np.ndarray) -> None:
        """Refuse a sum that is too long for vectors of such a length and their noise."""
        rounded = 0.5 * self.servers * math.sqrt(self.size)
        noise = math.sqrt(self.servers) * self.noise * (math.sqrt(self.size) + TAILS)
        most = len(self.clients) * self.most + noise + rounded
        if np.linalg.norm(total.astype(np.float64)) > most:
            raise Spoiled(
                f"the sum is longer than what {len(self.clients)} clients of the agreed length can "
                "make it: one of them, or a server, does not follow the protocol"
            )

    def normal(self, index: int, secret: bytes) -> np.ndarray:
        """Standard normal numbers of the server that has this secret."""
        seed = hmac.digest(secret, f"noise of {self.digest}".encode(), "sha256")
        return normal_from(Stream(seed[:SEED_BYTES]).draw, self.size)

    def _words(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.uint64).astype(self.word)


@dataclass(frozen=True, kw_only=True)
class SeededSum(SumJob):
    """A sum with reproducible noise, for simulation. It cannot leave its process.

    Real servers read their jobs as JSON, and this one has none: no message can make a server draw
    noise that somebody else knows.
    """

    randomness: Randomness
    round: int

    def normal(self, index: int, secret: bytes = b"") -> np.ndarray:
        return self.randomness.normal("server noise", self.round, self.size, number=index)

    def to_json(self) -> dict[str, Any]:
        raise TacitError(
            "servers draw their own noise, which no seed can decide: leave seed out, or peers"
        )
