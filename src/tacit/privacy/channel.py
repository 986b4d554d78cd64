"""The billboard channel: the only way from tasks to the billboard, and where privacy is proved.

    contributions ─► drop non-finite ─► clip to γ ─► sum ─► book ─► + N(0, (zγ)² I) ─► ÷ q̄ ─► mean

With a relation, a clipped contribution is spread over r sums by public loadings of length at most
one: the r sums together still move by at most γ, so everything below holds for them as one vector.

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
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.privacy.accounting import Release, affordable
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Neighbours, Sampler
from tacit.randomness import Randomness
from tacit.relation import Relation

ROUNDING = 1e-5
"""Clipping aims this much below the clip, so that single-precision rounding cannot pass it."""

BITS_SHARE = 0.05
"""Part of an adaptive release (in inverse variance) that pays for the bits about the clip."""
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
    _room: int | None = None

    def cohort(self, round: int) -> np.ndarray:
        return self.sampler.draw(self.tasks, self.randomness, round)

    def open(self, round: int, rounds: int) -> Collection:
        """Begin a round; raises `BudgetSpent` before any work if its release cannot be paid."""
        repeats = self.ledger.has(round) and not self.randomness.secret
        if self.release is not None and self.budget is not None and not repeats:
            if self._room is None:
                self._room = len(self.ledger) + affordable(
                    self.ledger.releases(),
                    self.release,
                    self.budget.epsilon,
                    self.budget.delta,
                    self.budget.neighbours,
                    max(rounds - round, 1),
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

    def add(self, contributions: Tensor, tasks: Tensor | None = None) -> None:
        """Take the contributions [k, d] of part of the cohort: drop, clip, sum.

        `tasks` says whose they are; only a relation needs to know.
        """
        norms = torch.linalg.vector_norm(contributions, dim=1)
        finite = norms.isfinite()
        bound = self.__channel.clip * (1 - ROUNDING)
        scale = torch.where(finite, (bound / norms).clamp(max=1.0), 0.0)
        kept = torch.where(finite.unsqueeze(1), contributions, 0.0)
        weights = scale.to(kept.dtype).unsqueeze(0)
        if self.__channel.relation is not None:
            assert tasks is not None
            weights = weights * self.__channel.relation.loadings[tasks].T
        total = (weights @ kept).reshape(-1)
        within = (norms <= self.__channel.clip)[finite]
        self.__within += float(within.sum()) - len(within) / 2
        self.__sum = total if self.__sum is None else self.__sum + total
        self.__channel.dropped += int((~finite).sum())

    def publishable(self, size: int) -> Tensor:
        """Book the release, then make it: the noisy sum over the expected cohort size.

        `size` is the length of one contribution; with a relation there are as many per sum.
        """
        channel = self.__channel
        relation, expected = channel.relation, channel.sampler.expected(channel.tasks)
        size *= 1 if relation is None else relation.sums
        total = torch.zeros(size) if self.__sum is None else self.__sum
        self.__sum = None  # one collection, one release
        if channel.release is not None:
            channel.ledger.book(
                self.__round,
                channel.release,
                repeatable=not channel.randomness.secret,
                clip=channel.clip,
                size=size,
            )
            multiplier = channel.release.noise_multiplier
            adapts = channel.quantile is not None
            noise = channel.randomness.normal("noise", self.__round, size + adapts)
            spread = multiplier * channel.clip / math.sqrt(1 - BITS_SHARE if adapts else 1)
            noisy = total.double().cpu() + torch.from_numpy(noise[:size]) * spread
            total = noisy.to(total.dtype).to(total.device)
            if channel.quantile is not None:
                bits = self.__within + noise[size] * multiplier / (2 * math.sqrt(BITS_SHARE))
                # Too many within the clip: it is larger than asked for, and must shrink.
                excess = min(max(bits / expected + 0.5, 0.0), 1.0) - channel.quantile
                channel.clip *= math.exp(-CLIP_STEP * excess)
        if relation is not None:
            total = (total.reshape(relation.sums, -1) * relation.scale.unsqueeze(1)).reshape(-1)
        return total / expected
