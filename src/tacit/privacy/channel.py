"""The billboard channel: the only way from tasks to the billboard, and where privacy is proved.

    contributions ─► drop non-finite ─► clip to γ ─► sum ─► book ─► + N(0, (zγ)² I) ─► ÷ q̄ ─► mean

With a relation, a clipped contribution is spread over r sums by public loadings of length at most
one: the r sums together still move by at most γ, so everything below holds for them as one vector.

With `moments`, what is summed of a clipped contribution is not itself but its place among the
moments, again one vector of bounded length: `privacy.moments` has the bound.

Who sums is a setting. By default it is this machine, which sees the clipped contributions. With a
`curator` (`secure.curator`) each task's vector is bounded here and handed over; what comes back is
a noisy sum that is still sealed, then the release is booked, then it is opened. The noise that is
booked is what one honest server adds; an opened sum has that of all of them.

With an adaptive clip (Andrew et al., "Differentially Private Learning with Adaptive Clipping",
2021) each task also says whether it was within the clip, as +½ or −½, and γ follows a quantile of
the norms. The bit is one more coordinate of the same release: noise z√(1/(1−s)) on the update and
z/(2√s) on the bits is together exactly a Gaussian release with multiplier z, for any share s.

**Claim.** Let every round release `mean` as above and let everything else (the next billboard, the
personal models of the other tasks) be computed from releases and from each task's own data. Then
all that the other tasks see together, in all rounds, is (ε, δ)-differentially private with respect
to one task, with ε as `accounting.spent` computes it from the ledger.

**Proof.** A contribution has norm at most γ, a non-finite one counts as zero; so adding or removing
a task moves the sum by at most γ, replacing it by at most 2γ. Gaussian noise of standard deviation
zγ on a sum over a sampled cohort is the (subsampled) Gaussian mechanism that the sampler's event
describes. The divisor q̄ is a constant. Rounds compose adaptively; the billboard is post-processing.
Each task's model is a function of the billboard and its own data, so by the billboard lemma (Hsu et
al. 2014) the models of all other tasks are jointly (ε, δ)-private for the task left out. ∎

| edge case                            | what happens                                            |
|--------------------------------------|---------------------------------------------------------|
| NaN or infinity in a contribution    | the whole contribution counts as zero, and is counted   |
| norm overflows single precision      | the same                                                |
| zero contribution, empty cohort      | the release is noise around zero; booked all the same   |
| noise 0                              | runs, and the guarantee says ε = ∞                      |
| no privacy asked                     | no clip, no noise, nothing booked; non-finite dropped |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.accounting import Release, affordable
from tacit.privacy.bounds import BITS_SHARE, Bounded
from tacit.privacy.covariance import flatten, printed_scale, wishart_noise
from tacit.privacy.curator import Curator
from tacit.privacy.ledger import Ledger
from tacit.privacy.moments import Moments
from tacit.privacy.sampling import Neighbours, Sampler
from tacit.randomness import Randomness
from tacit.relation import Relation

CLIP_STEP = 0.2
"""How fast an adaptive clip moves, in logarithm."""


class BudgetSpent(TacitError):
    """The next release would pass the budget; the run ends here, with what it has."""


@dataclass(frozen=True)
class Budget:
    """What must not be passed."""

    epsilon: float
    delta: float
    neighbours: Neighbours


@dataclass(frozen=True)
class PrintedWishart:
    """The noise of MP-MTL as printed; `privacy.covariance` says why it promises nothing."""

    epsilons: tuple[float, ...]
    sensitivity: Literal["2K", "K2"]

    def noise(self, d: int, clip: float, randomness: Randomness, round: int) -> Tensor:
        """For a covariance measured in clips, flattened."""
        scale = printed_scale(clip, self.epsilons[round], self.sensitivity)
        return flatten(wishart_noise(d, scale, randomness, round)) / clip**2


@dataclass
class Channel:
    """Collects the contributions of a cohort and lets out their noisy mean.

    `release` is None for a run without privacy: then nothing is clipped, noised or booked.
    """

    sampler: Sampler
    tasks: int
    randomness: Randomness
    clip: float = math.inf
    release: Release | None = None
    budget: Budget | None = None
    ledger: Ledger = field(default_factory=Ledger)
    dropped: int = 0
    relation: Relation | None = None
    quantile: float | None = None
    """Share of contributions that should be within the clip; None keeps the clip as it is."""
    moments: Moments | None = None
    """What is summed; None for the contributions themselves."""
    weights: tuple[float, ...] | None = None
    """How precise each round's release is, relative to `release`; None for all alike."""
    printed: PrintedWishart | None = None
    """A refuted mechanism in the place of the noise: nothing is booked, nothing is promised."""
    curator: Curator | None = None
    """Who sums in the place of this machine."""
    _room: int | None = None

    def release_at(self, round: int) -> Release | None:
        """The release of this round."""
        if self.release is None:
            return None
        weight = 1.0 if self.weights is None else self.weights[round]
        sampler = self.sampler.at(round, self.randomness.run_key)
        noise = self.release.noise_multiplier / weight
        return replace(self.release, sampler=sampler, noise_multiplier=noise)

    @property
    def unit(self) -> float:
        """What contributions are measured in: the clip, or plain numbers where there is none."""
        return self.clip if math.isfinite(self.clip) else 1.0

    def noise_at(self, round: int) -> float:
        """Standard deviation of the noise in a coordinate of this round's mean, in units."""
        release = self.release_at(round)
        multiplier = 0.0 if release is None else release.noise_multiplier
        louder = 1.0 if self.curator is None else self.curator.louder
        return multiplier * louder / self.sampler.expected(self.tasks)

    def bounded_size(self, length: int) -> int:
        """How many numbers a task adds to the sums, for contributions of this length."""
        size = length if self.moments is None else self.moments.size(length)
        size *= 1 if self.relation is None else self.relation.sums
        return size + self.adapts

    @property
    def adapts(self) -> bool:
        """Whether tasks also say if they were within the clip."""
        return self.quantile is not None and self.release is not None

    def cohort(self, round: int) -> np.ndarray:
        return self.sampler.draw(self.tasks, self.randomness, round)

    def open(self, round: int, rounds: int) -> Collection:
        """Begin a round; raises `BudgetSpent` before any work if its release cannot be paid."""
        repeats = self.ledger.has(round) and not self.randomness.secret
        if self.release is not None and self.budget is not None and not repeats:
            if self._room is None:
                coming = [self.release_at(t) or self.release for t in range(round, rounds)]
                self._room = len(self.ledger) + affordable(
                    self.ledger.releases(),
                    coming or [self.release],
                    self.budget.epsilon,
                    self.budget.delta,
                    self.budget.neighbours,
                )
            if len(self.ledger) >= self._room:
                raise BudgetSpent(
                    f"round {round + 1} would pass the budget ε={self.budget.epsilon:g} after "
                    f"{len(self.ledger)} releases; the run stops here"
                )
        return Collection(self, round)


class Collection:
    """The contributions of one round. What was added cannot be read, only released with noise."""

    def __init__(self, channel: Channel, round: int) -> None:
        self.__channel, self.__round = channel, round
        self.__sum: Tensor | None = None
        self.__within = 0.0
        self.__vectors: dict[int, np.ndarray] = {}

    def add(self, contributions: Tensor, tasks: Tensor | None = None) -> None:
        """Take the contributions [k, d] of part of the cohort: drop, clip, sum.

        `tasks` says whose they are; only a relation and a curator need to know.
        """
        channel = self.__channel
        bounded = Bounded.of(contributions, channel.clip, channel.moments)
        channel.dropped += bounded.dropped
        if channel.curator is not None:
            assert tasks is not None
            vectors = bounded.vectors(
                channel.unit, channel.moments, channel.relation, tasks,
                with_bits=channel.quantile is not None,
            )  # fmt: skip
            self.__vectors.update(zip(tasks.tolist(), vectors.cpu().numpy(), strict=True))
            return
        total = bounded.total(channel.unit, channel.moments, channel.relation, tasks)
        self.__within += float(bounded.bits.sum())
        self.__sum = total if self.__sum is None else self.__sum + total

    def add_bounded(self, vectors: Tensor) -> None:
        """Take vectors [k, size] that tasks bounded themselves: each at most one clip long.

        Nobody is trusted with that: what is longer is shortened here, what is not finite is zero.
        """
        channel = self.__channel
        lengths = torch.linalg.vector_norm(vectors.double(), dim=1, keepdim=True)
        finite = lengths.isfinite()
        channel.dropped += int((~finite).sum())
        scale = (1 / lengths).clamp(max=1.0) if channel.release is not None else 1.0
        vectors = torch.where(finite, vectors.double() * scale, 0.0)
        if channel.adapts:
            self.__within += float(vectors[:, -1].sum()) / (2 * math.sqrt(BITS_SHARE))
            vectors = vectors[:, :-1] / math.sqrt(1 - BITS_SHARE)
        total = vectors.sum(dim=0) * (channel.unit if channel.moments is None else 1)
        self.__sum = total.float() if self.__sum is None else self.__sum + total.float()

    def publishable(self, size: int) -> Tensor:
        """Book the release, then make it: the noisy sum over the expected cohort size.

        `size` is the length of one contribution; with a relation there are as many per sum.
        """
        channel, length = self.__channel, size
        relation, expected = channel.relation, channel.sampler.expected(channel.tasks)
        moments, release = channel.moments, channel.release_at(self.__round)
        unit = channel.unit  # an adaptive clip moves below, for the next round
        size *= 1 if relation is None else relation.sums
        size = size if moments is None else moments.size(length)
        if channel.curator is not None:
            assert release is not None  # `prepare` gives no run without privacy a curator
            total, bits = self.__curated(channel.curator, release, size)
        else:
            total, bits = self.__noised(release, size, length)
        if channel.quantile is not None and release is not None:
            # Too many within the clip: it is larger than asked for, and must shrink.
            excess = min(max(bits / expected + 0.5, 0.0), 1.0) - channel.quantile
            channel.clip *= math.exp(-CLIP_STEP * excess)
        if relation is not None:
            total = (total.reshape(relation.sums, -1) * relation.scale.unsqueeze(1)).reshape(-1)
        if moments is not None:
            total = moments.read(total, moments.vector(length), unit)
        return total / expected

    def __noised(self, release: Release | None, size: int, length: int) -> tuple[Tensor, float]:
        """The sum (moments: in units) and that of the bits, with noise of this machine's own."""
        channel, round = self.__channel, self.__round
        total = torch.zeros(size) if self.__sum is None else self.__sum
        self.__sum = None  # one collection, one release
        if channel.printed is not None:
            noise = channel.printed.noise(length, channel.clip, channel.randomness, round)
            total = total + noise.to(total)
        if release is None:
            return total, 0.0
        self.__book(release, size)
        adapts = channel.quantile is not None
        noise = channel.randomness.normal("noise", round, size + adapts)
        spread = release.noise_multiplier / math.sqrt(1 - BITS_SHARE if adapts else 1)
        spread *= channel.unit if channel.moments is None else 1  # moments are of units
        noisy = total.double().cpu() + torch.from_numpy(noise[:size]) * spread
        total = noisy.to(total.dtype).to(total.device)
        if not adapts:
            return total, 0.0
        louder = release.noise_multiplier / (2 * math.sqrt(BITS_SHARE))
        return total, self.__within + noise[size] * louder

    def __curated(self, curator: Curator, release: Release, size: int) -> tuple[Tensor, float]:
        """The same from a curator, which puts noise inside before anybody sees a sum."""
        channel, adapts = self.__channel, self.__channel.quantile is not None
        vectors, self.__vectors = self.__vectors, {}  # one collection, one release
        sealed = curator.sealed(vectors, size + adapts, release.noise_multiplier, self.__round)
        self.__book(release, size, **sealed.details)
        opened = torch.from_numpy(sealed.open())
        total, bits = opened[:size], 0.0
        if adapts:
            total = total / math.sqrt(1 - BITS_SHARE)
            bits = float(opened[size]) / (2 * math.sqrt(BITS_SHARE))
        total = total * (channel.unit if channel.moments is None else 1)
        place = "cpu" if channel.relation is None else channel.relation.scale.device
        return total.float().to(place), bits

    def __book(self, release: Release, size: int, **details: Any) -> None:
        channel = self.__channel
        channel.ledger.book(
            self.__round,
            release,
            repeatable=not channel.randomness.secret,
            clip=channel.clip,
            size=size,
            **details,
        )
