"""What all other tasks together make of a release: they know everything but one task.

They know what each of them sent and who of them was in the cohort, so they can take their own part
out of every noisy sum. They do not know whether a task was in a Poisson cohort, because its members
are drawn independently. Under every other rule they do: the cohort is everyone, or public, or the
one place that they did not fill. So a rule that pretends to hide its cohort is found out here.
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
from tacit.randomness import Randomness


def moves(channel: Channel, sent: Tensor, tasks: Tensor) -> np.ndarray:
    """How far each of these tasks moves the sums, in clips: [k, size], from what it sends [k, d].

    `sent` is in clips, of any length. This is what the channel should do, written once more.
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
    return vectors.numpy()


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
        self._scale = (scale / expected).numpy()  # a clip of the sum, in what is published
        self._clip, self._expected = channel.unit, expected
        releases = [channel.release_at(round) for round in range(rounds)]
        noise = np.array([0.0 if one is None else one.noise_multiplier for one in releases])
        self.spread = noise / math.sqrt(1 - BITS_SHARE if channel.adapts else 1)
        """[rounds]: of the noise on a sum that one honest party adds, in clips."""
        self.bits_spread = noise / (2 * math.sqrt(BITS_SHARE))

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

    def known_noise(
        self, randomness: Randomness, rounds: Sequence[int], size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What all servers but one know of the noise on sums and bits."""
        adapts, curator = self.channel.adapts, self.channel.curator
        assert curator is not None
        drawn = np.zeros((len(rounds), size + adapts))
        for row, round in zip(drawn, rounds, strict=True):
            for server in range(1, curator.servers):
                row += randomness.normal("server noise", round, size + adapts, number=server)
        on_sums = drawn[:, :size] * self.spread[rounds, None]
        return on_sums, drawn[:, -1] * self.bits_spread[rounds]

    def chance(self, inside: np.ndarray) -> np.ndarray:
        """How likely the others think that a task was in the cohorts that it was (not) in."""
        sampler = self.channel.sampler
        return np.full(len(inside), sampler.rate) if isinstance(sampler, Poisson) else inside


def mixed(chance: np.ndarray | float, likelihood: np.ndarray) -> np.ndarray:
    """log of (1 − chance) + chance · e^likelihood."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log1p(-np.asarray(chance)), np.log(chance) + likelihood)
