"""What all other tasks together make of a release: they know everything but one task.

They know what each of them sent and who of them was in the cohort, so they can take their own part
out of every noisy sum. They do not know whether a task was in a Poisson cohort, because its members
are drawn independently. Under every other rule they do: the cohort is everyone, or public, or the
one place that they did not fill. So a rule that pretends to hide its cohort is found out here.

Where persons are hidden, read "person" for "task": the observer even knows all other persons of the
same task. A person at several tasks is drawn at each by itself, so that what is not known is how
many of them drew it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tacit.privacy.bounds import BITS_SHARE
from tacit.privacy.channel import CLIP_STEP, Channel
from tacit.privacy.sampling import Poisson, Sampler
from tacit.randomness import Randomness, name_key


def moves(channel: Channel, sent: Tensor, tasks: Tensor) -> np.ndarray:
    """How far each of these moves the sums, in clips: [k, size], from what it sends [k, d].

    `sent` is in clips, of any length; `tasks` says where. This is what the channel should do,
    written once more.
    """
    moments, relation = channel.moments, channel.relation
    sent = torch.where(sent.isfinite().all(dim=1, keepdim=True), sent.double(), 0.0)
    d = sent.shape[1] if moments is None else moments.vector(sent.shape[1])
    lengths = torch.linalg.vector_norm(sent[:, :d], dim=1, keepdim=True)
    vectors = sent[:, :d] / lengths.clamp(min=1.0)
    if moments is not None:
        whole = torch.cat([vectors, sent[:, d:]], dim=1)
        vectors = moments.each(whole, torch.ones(len(whole), dtype=torch.double))
    elif relation is not None:
        loadings = relation.loadings[tasks.to(relation.loadings.device)].double().cpu()
        vectors = (loadings.unsqueeze(2) * vectors.unsqueeze(1)).flatten(1)
    return vectors.numpy() / channel.share


def hides(sampler: Sampler) -> bool:
    """Whether the others cannot tell if a task was drawn, whatever the sampler says of itself."""
    return isinstance(sampler, Poisson) and sampler.rate < 1


class Observer:
    """Reads all releases of a run in clips, for contributions of this length."""

    def __init__(self, channel: Channel, length: int, rounds: int) -> None:
        self.channel, self.length = channel, length
        expected, relation = channel.sampler.expected(channel.tasks), channel.relation
        if channel.moments is not None:
            ones = torch.ones(channel.moments.size(length), dtype=torch.double)
            scale = channel.moments.read(ones, channel.moments.vector(length), channel.unit)
        elif relation is not None:
            scale = relation.scale.double().cpu().repeat_interleave(length) * channel.unit
        else:
            scale = torch.full((length,), channel.unit, dtype=torch.double)
        # A clip of the sum, in what is published.
        self._scale = (scale * channel.share / expected).numpy()
        self._clip, self._expected = channel.unit, expected / channel.share
        releases = [channel.release_at(round) for round in range(rounds)]
        noise = np.array([0.0 if one is None else one.noise_multiplier for one in releases])
        self._party = noise / math.sqrt(1 - BITS_SHARE if channel.adapts else 1)
        self._party_bits = noise / (2 * math.sqrt(BITS_SHARE))
        self.hiding = 1 if relation is not None else min(channel.share, len(channel.noisy_tasks))
        """How many tasks with noise of their own a person is at, whom all of it hides."""
        times = math.sqrt(max(1, self.hiding))
        self.spread, self.bits_spread = self._party * times, self._party_bits * times
        """[rounds]: of the noise on a sum that nobody else knows, in clips."""

    def sums(self, published: Tensor, clips: np.ndarray) -> np.ndarray:
        """The noisy sums in clips, from what was published [rounds, size] under these clips."""
        return published.double().cpu().numpy() / np.outer(clips / self._clip, self._scale)

    def bits(self, before: np.ndarray, after: np.ndarray) -> np.ndarray | None:
        """The noisy sums of the bits, read off how the clip moved; NaN where it hit its stop."""
        if not self.channel.adapts or self.channel.quantile is None:
            return None
        within = np.log(before / after) / CLIP_STEP + self.channel.quantile
        inside = (within > 1e-9) & (within < 1 - 1e-9)
        return np.where(inside, (within - 0.5) * self._expected, np.nan)

    def noises(
        self, randomness: Randomness, rounds: Sequence[int], size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What every party that adds noise of its own (a server, or a task) adds to sums and bits:
        [parties, rounds, size] and [parties, rounds]. Nobody does where one machine sums."""
        channel, adapts = self.channel, self.channel.adapts
        purpose, numbers = "noise", [name_key(name) for name in channel.noisy_tasks]
        if channel.curator is not None:
            purpose, numbers = "server noise", list(range(channel.curator.servers))
        drawn = np.zeros((len(numbers), len(rounds), size + adapts))
        for party, number in zip(drawn, numbers, strict=True):
            for row, round in zip(party, rounds, strict=True):
                row[:] = randomness.normal(purpose, round, size + adapts, number=number)
        on_sums = drawn[..., :size] * self._party[rounds, None]
        return on_sums, drawn[..., -1] * self._party_bits[rounds]

    def chance(self, inside: np.ndarray) -> np.ndarray:
        """How likely the others think that a task was in the cohorts that it was (not) in."""
        sampler = self.channel.sampler
        return np.full(len(inside), sampler.rate) if isinstance(sampler, Poisson) else inside


def mixed(
    chance: np.ndarray | float, along: np.ndarray, energy: np.ndarray | float, places: int = 1
) -> np.ndarray:
    """The log likelihood of one who is drawn at each of so many places at this chance.

    Drawn j times it is j · along − j² · energy / 2, beside that of one who is not there.
    """
    total = np.full(np.broadcast_shapes(np.shape(chance), np.shape(along)), -np.inf)
    with np.errstate(divide="ignore"):
        drawn, left = np.log(chance), np.log1p(-np.asarray(chance))
    for j in range(places + 1):
        ways = math.log(math.comb(places, j)) + _times(j, drawn) + _times(places - j, left)
        total = np.logaddexp(total, ways + j * along - j * j * energy / 2)
    return total


def _times(number: int, log: np.ndarray) -> np.ndarray | float:
    """The logarithm of so many chances at once; none at all is certain."""
    return number * log if number else 0.0
