"""Attack a channel: two worlds that differ in one task, many runs of each, nothing trained.

    world A: the target sends all it can        world B: it is not there, or sends the opposite
                        │                                        │
                        └─► the run's own channel, all rounds ◄──┘
                                          │
                all others together: log P(releases | A) − log P(releases | B)
                                          │
                            `guesses.told_apart`: ε is at least …

Cohorts, clip, sum, noise and books are the channel's own code; only the vectors are short, because
the noise has no favourite direction. Everybody sends far more than the clip lets through, and the
others send against the target: if the clip is not kept, or a sum is divided by who came, that shows
most. The score is the likelihood ratio of all releases, which no other test beats (Neyman-Pearson),
for a channel that does what it promises; for one that does not, it is a test like any other, and a
bound is a bound.

| neighbours                        | the target in world A | in world B                |
|-----------------------------------|-----------------------|---------------------------|
| add-remove                        | v                     | nothing                   |
| replace                           | v                     | −v                        |
| replace, mostly covariances       | v                     | u, at right angles to v   |
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.privacy.channel import Channel
from tacit.privacy.ledger import Ledger
from tacit.privacy.moments import Moments
from tacit.privacy.observer import Observer, mixed, moves
from tacit.privacy.sampling import Everyone, Neighbours, Poisson
from tacit.randomness import Randomness

SENT = 100.0
"""Clips that are sent by whoever goes to the limit."""
MOST = 1000
"""Tasks in a world; more would only take longer where each is drawn for itself."""
ON_SHARES = 8
"""Tasks in a world where servers sum: every one of them is shared in every round."""


@dataclass(frozen=True)
class Worlds:
    """What every task sends in both worlds, in clips [tasks, length]; only one task should differ.

    `there` says whether the target takes part in world B.
    """

    a: Tensor
    b: Tensor
    target: int
    there: bool


def scores(
    channel: Channel,
    worlds: Worlds,
    rounds: int,
    runs: int,
    seed: int | None = None,
    on_run: Callable[[int], None] = lambda run: None,
) -> tuple[np.ndarray, np.ndarray]:
    """The observer's score of so many runs, and whether each was made in world A: by a fair coin.

    Without a seed noise and cohorts come from where a private run has them, the operating system.
    """
    coins = np.random.default_rng(seed).random(runs) < 0.5
    found = np.empty(runs)
    a, b = (_Knowledge(channel, worlds, second=second) for second in (False, True))
    observer, target = Observer(channel, worlds.a.shape[1], rounds), worlds.target
    for run in range(runs):
        on_run(run)
        one = again(channel, _randomness(channel, seed, run))
        seen = _run(one, observer, a if coins[run] else b, target, rounds)
        found[run] = a.likelihood(seen, target) - b.likelihood(seen, target)
    return found, coins


def worst_worlds(channel: Channel, neighbours: Neighbours) -> Worlds:
    """One task that goes to the limit, and others that go the other way."""
    extra = channel.moments is not None and channel.moments.extra > 0
    target = _most_visible(channel)
    towards = torch.tensor([[SENT, 0.0][: _dimensions(channel.moments, neighbours)]])
    against = opposite(towards, channel.moments) if neighbours == "replace" else -towards
    if extra:
        towards = torch.cat([towards, torch.ones(1, 1)], dim=1)
        against = torch.cat([against, -torch.ones(1, 1)], dim=1)
    sent = -towards.expand(channel.tasks, -1).clone()
    if channel.adapts:  # half of them within the clip, so that the clip hardly moves
        sent[::2] *= 0.5 / SENT
    a, b = sent.clone(), sent.clone()
    a[target], b[target] = towards[0], against[0]
    return Worlds(a, b, target, there=neighbours == "replace")


def opposite(vectors: Tensor, moments: Moments | None) -> Tensor:
    """What is farthest from these vectors once it is summed."""
    if moments is None or moments.mean > moments.covariance:
        return -vectors
    return vectors.roll(1, dims=1)


def _dimensions(moments: Moments | None, neighbours: Neighbours) -> int:
    """The shortest vectors in which two neighbours can be as far apart as they may be."""
    aside = moments is not None and moments.mean <= moments.covariance
    return 2 if aside and neighbours == "replace" else 1


def stage(channel: Channel) -> Channel:
    """The channel of a run with as many tasks as the attack needs, and no budget to stop it."""
    alike = isinstance(channel.sampler, Everyone | Poisson) and channel.relation is None
    most = MOST if channel.curator is None else ON_SHARES
    tasks = min(channel.tasks, most) if alike else channel.tasks
    relation = None if channel.relation is None else channel.relation.to("cpu")
    return dataclasses.replace(channel, tasks=tasks, relation=relation, budget=None)


def again(channel: Channel, randomness: Randomness) -> Channel:
    """The same channel at its start, with random numbers of its own and empty books."""
    curator: Any = channel.curator
    if curator is not None:
        names = curator.names[: channel.tasks]
        curator = dataclasses.replace(curator, names=names, randomness=randomness)
    return dataclasses.replace(
        channel, randomness=randomness, ledger=Ledger(), curator=curator, dropped=0
    )


def _randomness(channel: Channel, seed: int | None, number: int) -> Randomness:
    if seed is None and channel.curator is None:
        return Randomness.of(None)
    # Servers that pool what they know need noise that can be recomputed.
    words = [seed, number] if seed is not None else list(os.urandom(16))
    key = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return Randomness(key, key)


def _most_visible(channel: Channel) -> int:
    if channel.relation is None:
        return 0
    return int(torch.linalg.vector_norm(channel.relation.loadings, dim=1).argmax())


class _Knowledge:
    """What the others think that happens in one of the worlds."""

    def __init__(self, channel: Channel, worlds: Worlds, *, second: bool) -> None:
        self.sent = sent = worlds.b if second else worlds.a
        self.there = worlds.there if second else True
        d = sent.shape[1] if channel.moments is None else channel.moments.vector(sent.shape[1])
        bits = (torch.linalg.vector_norm(sent[:, :d].double(), dim=1) <= 1).double() - 0.5
        self.moves, self.bits = moves(channel, sent, torch.arange(channel.tasks)), bits.numpy()

    def likelihood(self, seen: _Seen, target: int) -> float:
        """log P(what was seen in all rounds), up to what both worlds have in common."""
        rest = seen.sums - seen.others @ self.moves
        precision = seen.spread**-2
        without = -(rest**2).sum(axis=1) * precision / 2
        own = self.moves[target]
        gain = (rest @ own - own @ own / 2) * precision
        if seen.bits is not None:
            left, bit = seen.bits - seen.others @ self.bits, float(self.bits[target])
            precision = seen.bits_spread**-2
            read = np.isfinite(left)  # where the clip hit its stop, nothing can be read off it
            without -= np.where(read, left**2 * precision / 2, 0.0)
            gain += np.where(read, (left * bit - bit**2 / 2) * precision, 0.0)
        return float((without + mixed(seen.chance * self.there, gain)).sum())


@dataclass(frozen=True)
class _Seen:
    """One run as all others together see it, a row for each round."""

    sums: np.ndarray
    """[rounds, size]: the noisy sums in clips, less the noise that is known."""
    bits: np.ndarray | None
    spread: np.ndarray
    bits_spread: np.ndarray
    others: np.ndarray
    """[rounds, tasks]: who of the others was in the cohort."""
    chance: np.ndarray
    """[rounds]: how likely they think that the target was."""


def _run(
    channel: Channel, observer: Observer, known: _Knowledge, target: int, rounds: int
) -> _Seen:
    """One run in one of the worlds."""
    others = np.zeros((rounds, channel.tasks))
    inside = np.zeros(rounds)
    published, clips = [], [channel.unit]
    for round in range(rounds):
        collection = channel.open(round, rounds)
        cohort = channel.cohort(round)
        others[round, cohort] = 1
        inside[round], others[round, target] = others[round, target], 0
        who = torch.from_numpy(cohort if known.there else cohort[cohort != target])
        collection.add(known.sent[who] * clips[-1], who)
        published.append(collection.publishable(observer.length))
        clips.append(channel.unit)
    before, after = np.array(clips[:-1]), np.array(clips[1:])
    sums, bits = observer.sums(torch.stack(published), before), observer.bits(before, after)
    if channel.curator is not None:
        noise, on_bits = observer.known_noise(channel.randomness, range(rounds), sums.shape[1])
        sums, bits = sums - noise, None if bits is None else bits - on_bits
    chance = observer.chance(inside)
    return _Seen(sums, bits, observer.spread, observer.bits_spread, others, chance)
