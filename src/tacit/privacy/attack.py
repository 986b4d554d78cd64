"""Attack a channel: two worlds that differ in one task (or person), many runs of each.

    world A: the target sends all it can        world B: it is not there, or sends the opposite
                        │                                        │
                        └─► the run's own channel, all rounds ◄──┘
                                          │
                all others together: log P(releases | A) − log P(releases | B)
                                          │
                            `guesses.told_apart`: ε is at least …

Nothing is trained. Cohorts, clip, sum, noise and books are the channel's own code; only the vectors
are short, because the noise has no favourite direction. Everybody sends far more than the clip lets
through, and the others send against the target: if the clip is not kept, or a sum is divided by who
came, that shows most. The score is the likelihood ratio of all releases, which no other test beats
(Neyman-Pearson), for a channel that does what it promises; for one that does not, it is a test like
any other, and a bound is a bound.

Where persons are hidden, the target is one of them. At its own task one other person sends as much
as it may, against the target, and a few send nothing: if the task's sum is bounded and not each
person, the target moves it by far more than a clip. A person at several tasks goes to the limit at
each.

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
BESIDE = 10
"""Other persons at the target's own task."""


@dataclass(frozen=True)
class Worlds:
    """What every contributor sends in both worlds, in clips; only the target should differ."""

    a: Tensor
    b: Tensor
    """[contributors, length]"""
    homes: Tensor
    """[contributors]: the task that each is at; where tasks are hidden, each is its own."""
    target: int
    there: bool
    """Whether the target takes part in world B."""
    places: int = 1
    """At how many tasks the target is: so many contributors from `target` on are the same one."""

    @property
    def targets(self) -> slice:
        return slice(self.target, self.target + self.places)


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
    observer = Observer(channel, worlds.a.shape[1], rounds)
    for run in range(runs):
        on_run(run)
        one = again(channel, _randomness(channel, seed, run))
        seen = _run(one, observer, a if coins[run] else b, rounds)
        found[run] = a.likelihood(seen) - b.likelihood(seen)
    return found, coins


def worst_worlds(channel: Channel, neighbours: Neighbours) -> Worlds:
    """One task (or person) that goes to the limit, and others that go the other way."""
    extra = channel.moments is not None and channel.moments.extra > 0
    towards = torch.tensor([[SENT, 0.0][: _dimensions(channel.moments, neighbours)]])
    against = opposite(towards, channel.moments) if neighbours == "replace" else -towards
    if extra:
        towards = torch.cat([towards, torch.ones(1, 1)], dim=1)
        against = torch.cat([against, -torch.ones(1, 1)], dim=1)
    sent = -towards.expand(channel.tasks, -1).clone()
    if channel.adapts:  # half of them within the clip, so that the clip hardly moves
        sent[::2] *= 0.5 / SENT
    homes, target, places = torch.arange(channel.tasks), _most_visible(channel), 1
    if channel.of_persons:
        places, tasks = channel.share, _tasks(channel)
        homes = torch.full_like(homes, (target + places) % tasks)
        homes[:places] = homes_of(channel, torch.full((places,), target), torch.arange(places))
        homes[places : places + BESIDE], target = target, 0
        sent[places] = -towards[0] / SENT
        sent[places + 1 : places + BESIDE] = 0.0
    a, b = sent.clone(), sent.clone()
    a[target : target + places], b[target : target + places] = towards[0], against[0]
    return Worlds(a, b, homes, target, neighbours == "replace", places)


def homes_of(channel: Channel, first: Tensor, place: Tensor) -> Tensor:
    """The task where persons, at home in these tasks, are at their place-th place.

    Where every task has a sum of its own, all places are at one task: then they add up most.
    """
    return first if channel.relation is not None else (first + place) % _tasks(channel)


def _tasks(channel: Channel) -> int:
    """How many tasks there are, where persons contribute; as many as are needed if any will do."""
    curator: Any = channel.curator
    if channel.relation is not None:
        return len(channel.relation.loadings)
    if curator is not None:
        return len(curator.names[: channel.tasks])
    return len(channel.noisy_tasks) or channel.share + 1


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
    tasks = min(channel.tasks, most) if alike or channel.of_persons else channel.tasks
    if channel.of_persons:  # the guess of their number may be small
        tasks = max(tasks, channel.share + BESIDE + 1)
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
    if seed is None and channel.curator is None and not channel.noisy_tasks:
        return Randomness.of(None)
    # Those who pool what they know need noise that can be recomputed.
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
        self.worlds, self.own = worlds, worlds.target
        d = sent.shape[1] if channel.moments is None else channel.moments.vector(sent.shape[1])
        bits = (torch.linalg.vector_norm(sent[:, :d].double(), dim=1) <= 1).double() - 0.5
        self.moves, self.bits = moves(channel, sent, worlds.homes), bits.numpy() / channel.share

    def likelihood(self, seen: _Seen) -> float:
        """log P(what was seen in all rounds), up to what both worlds have in common."""
        rest = seen.sums - seen.others @ self.moves
        precision = seen.spread**-2
        without = -(rest**2).sum(axis=1) * precision / 2
        own = self.moves[self.own]
        along, energy = (rest @ own) * precision, (own @ own) * precision
        if seen.bits is not None:
            left, bit = seen.bits - seen.others @ self.bits, float(self.bits[self.own])
            precision = seen.bits_spread**-2
            read = np.isfinite(left)  # where the clip hit its stop, nothing can be read off it
            without -= np.where(read, left**2 * precision / 2, 0.0)
            along = along + np.where(read, left * bit * precision, 0.0)
            energy = energy + np.where(read, bit**2 * precision, 0.0)
        chance = seen.chance * self.there
        return float((without + mixed(chance, along, energy, self.worlds.places)).sum())


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


def _run(channel: Channel, observer: Observer, known: _Knowledge, rounds: int) -> _Seen:
    """One run in one of the worlds."""
    worlds, others = known.worlds, np.zeros((rounds, channel.tasks))
    inside = np.zeros(rounds)
    published, clips = [], [channel.unit]
    for round in range(rounds):
        collection = channel.open(round, rounds)
        cohort = channel.cohort(round)
        others[round, cohort] = 1
        inside[round], others[round, worlds.targets] = others[round, worlds.target], 0
        who = cohort if known.there else np.flatnonzero(others[round])
        collection.add(known.sent[who] * clips[-1], worlds.homes[who])
        published.append(collection.publishable(observer.length))
        clips.append(channel.unit)
    before, after = np.array(clips[:-1]), np.array(clips[1:])
    sums, bits = observer.sums(torch.stack(published), before), observer.bits(before, after)
    on_sums, on_bits = observer.noises(channel.randomness, range(rounds), sums.shape[1])
    if len(on_sums):  # of one server nobody knows it, or of those tasks that the target is at
        own = worlds.homes[worlds.targets].numpy() if channel.noisy_tasks else 0
        sums = sums - np.delete(on_sums, own, axis=0).sum(axis=0)
        bits = None if bits is None else bits - np.delete(on_bits, own, axis=0).sum(axis=0)
    chance = observer.chance(inside)
    return _Seen(sums, bits, observer.spread, observer.bits_spread, others, chance)
