"""One run with canaries: extra tasks without rows, put in by fair coins and guessed afterwards.

A canary sends the most that the clip lets through whenever the sampler draws it, along a coordinate
and with a sign that are drawn anew in each round and known to everybody. It enters at the channel,
so it goes through the same clip, sum, noise and books as a real task, whatever the method and the
model. All else is the run itself: tasks train, releases move the billboard.

The observer knows what all real tasks sent (a channel of its own without noise tells) and takes it
out of every release; what is left of a canary is a likelihood ratio for each round. Other canaries
are noise to it: their signs are random, so they do not add up over rounds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.data.relation import Relation
from tacit.privacy import Release
from tacit.privacy.attack import SENT, opposite
from tacit.privacy.channel import Channel, Collection
from tacit.privacy.observer import Observer, mixed, moves
from tacit.privacy.sampling import Neighbours

NUMBERS = 1 << 22
"""Numbers of canaries' vectors in memory at a time."""


@dataclass
class WithCanaries(Channel):
    """A channel in which the last `canaries` tasks are canaries."""

    canaries: int = 0
    coins: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """For each canary: whether it takes part (replace: which of its two contributions it makes)."""
    length: int = 0
    """Of a contribution."""
    neighbours: Neighbours = "add-remove"
    rounds: int = 0
    device: torch.device | str = "cpu"
    """Where contributions are."""
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """For each canary: the log odds of its coin, after all releases so far."""
    members: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The cohort of the round that is open, canaries included."""

    @classmethod
    def of(
        cls,
        channel: Channel,
        coins: np.ndarray,
        length: int,
        neighbours: Neighbours,
        rounds: int,
        device: torch.device,
    ) -> WithCanaries:
        """A run's channel whose sampler counts the canaries among its tasks already."""
        canaries, curator = len(coins), channel.curator
        given: dict[str, Any] = {
            part.name: getattr(channel, part.name) for part in dataclasses.fields(channel)
        }
        if channel.relation is not None:
            given["relation"] = _joined(channel.relation, channel.tasks, canaries)
        if curator is not None:
            every: Any = curator
            names = (*every.names, *(f"canary {number}" for number in range(canaries)))
            given["curator"] = dataclasses.replace(every, names=names)
        given |= {"tasks": channel.tasks + canaries, "canaries": canaries, "coins": coins}
        given |= {"length": length, "neighbours": neighbours, "rounds": rounds}
        given |= {"device": device}
        return cls(**given, scores=np.zeros(canaries))

    @property
    def real(self) -> int:
        return self.tasks - self.canaries

    def cohort(self, round: int) -> np.ndarray:
        """The real tasks of the cohort; `open` has drawn it."""
        return self.members[self.members < self.real]

    def open(self, round: int, rounds: int, stage: str = "") -> Collection:
        collection = super().open(round, rounds, stage)
        self.members = super().cohort(round)
        drawn = self.members[self.members >= self.real] - self.real
        here = drawn if self.neighbours == "replace" else drawn[self.coins[drawn]]
        for numbers in self.chunks(here):
            one, other = self.sent(round, numbers)
            sends = torch.where(torch.from_numpy(self.coins[numbers]).unsqueeze(1), one, other)
            whose = torch.from_numpy(numbers + self.real).to(self.device)
            collection.add((sends * self.unit).to(self.device), whose)
        return Watched(self, collection, round)

    def sent(self, round: int, canaries: np.ndarray) -> tuple[Tensor, Tensor]:
        """What these canaries send in this round, in clips, for either side of their coins."""
        d = self.length if self.moments is None else self.moments.vector(self.length)
        public = np.random.default_rng([round, self.canaries])
        turns = -(-self.canaries // d)
        places = np.concatenate([public.permutation(d) for _ in range(turns)])[: self.canaries]
        signs = public.choice([-1.0, 1.0], self.canaries)
        one = torch.zeros(len(canaries), d)
        towards = torch.from_numpy(signs[canaries]).float()
        one[torch.arange(len(canaries)), torch.from_numpy(places[canaries])] = SENT * towards
        other = opposite(one, self.moments)
        if self.length > d:
            extra = towards.unsqueeze(1)
            one, other = torch.cat([one, extra], dim=1), torch.cat([other, -extra], dim=1)
        return one, other

    def moved(self, round: int, canaries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far these canaries move the sums, in clips, for either side of their coins."""
        whose = torch.from_numpy(canaries + self.real)
        one, other = (moves(self, side, whose) for side in self.sent(round, canaries))
        return one, other if self.neighbours == "replace" else np.zeros_like(other)

    def chunks(self, canaries: np.ndarray) -> list[np.ndarray]:
        size = max(self.length, self.place.size(self.length))
        most = max(1, NUMBERS // size)
        return [canaries[at : at + most] for at in range(0, len(canaries), most)]


class Watched(Collection):
    """A round that is released as ever, with an observer who knows all about the real tasks."""

    def __init__(self, channel: WithCanaries, inner: Collection, round: int) -> None:
        self._channel, self._inner, self._round = channel, inner, round
        silent = Channel(
            channel.sampler,
            channel.tasks,
            channel.randomness,
            clip=channel.clip,
            release=Release(channel.sampler, 0.0),
            relation=channel.relation,
            moments=channel.moments,
        )
        self._known = silent.open(round, channel.rounds)
        self._clip = channel.unit

    def add(
        self, contributions: Tensor, tasks: Tensor | None = None, count: int | None = None
    ) -> None:
        self._inner.add(contributions, tasks, count)
        self._known.add(contributions, tasks, count)

    def publishable(self, size: int) -> Tensor:
        published = self._inner.publishable(size)
        self._look(published - self._known.publishable(size).to(published))
        return published

    def _look(self, left: Tensor) -> None:
        """Bring the log odds of all canaries up to date with what is left of a release."""
        channel, round = self._channel, self._round
        observer = Observer(channel, channel.length, channel.rounds)
        sums = observer.sums(left.unsqueeze(0), np.array([self._clip]))[0]
        if channel.curator is not None:
            noise, _ = observer.known_noise(channel.randomness, [round], len(sums))
            sums = sums - noise[0]
        every = np.arange(channel.canaries)
        inside = np.isin(every + channel.real, channel.members).astype(float)
        chance = observer.chance(inside)[:, None]
        energy = 0.0
        for numbers in channel.chunks(every):
            one, other = channel.moved(round, numbers)
            sums = sums - (chance[numbers] * (one + other) / 2).sum(axis=0)
            energy += float((chance[numbers] * (one**2 + other**2)).sum()) / 2
        precision = 1 / (float(observer.spread[round]) ** 2 + energy / channel.length)
        for numbers in channel.chunks(every):
            one, other = channel.moved(round, numbers)
            rest = sums + chance[numbers] * (one + other) / 2  # all but this canary's own share
            likely = (((rest - side / 2) * side).sum(axis=1) * precision for side in (one, other))
            odds = [mixed(chance[numbers, 0], side) for side in likely]
            channel.scores[numbers] += odds[0] - odds[1]


def _joined(relation: Relation, tasks: int, canaries: int) -> Relation:
    """Canaries take places that tasks have, one after the other."""
    whose = torch.arange(canaries) % tasks
    loadings = torch.cat([relation.loadings, relation.loadings[whose.to(relation.loadings.device)]])
    return dataclasses.replace(relation, loadings=loadings)
