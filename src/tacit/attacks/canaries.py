"""One run with canaries: extra tasks (or persons) without rows, put in by fair coins, and guessed.

A canary sends the most that the clip lets through whenever the sampler draws it, along a coordinate
and with a sign that are drawn anew in each round and known to everybody. It enters at the channel,
so it goes through the same clip, sum, noise and books as a real task, whatever the method and the
model. All else is the run itself: tasks train, releases move the billboard.

Where persons are hidden, a canary is a person who is made up: at home in one of the tasks, and at
as many others as a person may be, drawn at each by itself. The observer is then everybody outside,
who knows all other persons, and what every other task added as noise.

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
from tacit.privacy.attack import SENT, homes_of, opposite
from tacit.privacy.channel import ROOM, Channel, Collection
from tacit.privacy.observer import Observer, mixed, moves
from tacit.privacy.reach import Reach
from tacit.privacy.sampling import Neighbours

NUMBERS = 1 << 22
"""Numbers of canaries' vectors in memory at a time."""


@dataclass
class WithCanaries(Channel):
    """A channel whose last contributors are canaries."""

    canaries: int = 0
    coins: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """For each canary: whether it takes part (replace: which of its two contributions it makes)."""
    lengths: tuple[int, ...] = ()
    """Of a contribution in each round."""
    neighbours: Neighbours = "add-remove"
    homes: int = 0
    """How many tasks there are, where canaries are persons."""
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
        lengths: tuple[int, ...],
        neighbours: Neighbours,
        homes: int,
        device: torch.device,
    ) -> WithCanaries:
        """A run's channel whose sampler counts the canaries among its tasks already."""
        canaries, curator = len(coins), channel.curator
        given: dict[str, Any] = {
            part.name: getattr(channel, part.name) for part in dataclasses.fields(channel)
        }
        if channel.relation is not None and not channel.of_persons:
            given["relation"] = _joined(channel.relation, channel.tasks, canaries)
        contributors = channel.tasks + canaries * channel.share
        if curator is not None:
            every: Any = curator
            more: dict[str, Any] = {"members": ROOM * contributors}
            if not channel.of_persons:
                named = (f"canary {number}" for number in range(canaries))
                more = {"names": (*every.names, *named)}
            given["curator"] = dataclasses.replace(every, **more)
        given |= {"tasks": contributors, "canaries": canaries}
        given |= {"coins": coins, "lengths": lengths, "neighbours": neighbours, "homes": homes}
        given |= {"device": device}
        return cls(**given, scores=np.zeros(canaries))

    @property
    def real(self) -> int:
        return self.tasks - self.canaries * self.share

    @property
    def rounds(self) -> int:
        return len(self.lengths)

    def cohort(self, round: int) -> np.ndarray:
        """The real tasks of the cohort; `open` has drawn it."""
        return self.members[self.members < self.real]

    def open(self, round: int, rounds: int, stage: str = "") -> Collection:
        collection = super().open(round, rounds, stage)
        self.members = super().cohort(round)
        drawn = self.members[self.members >= self.real] - self.real
        here = drawn
        if self.neighbours == "add-remove":
            here = drawn[self.coins[drawn // self.share]]
        for places in self.chunks(round, here):
            numbers = places // self.share
            one, other = self.sent(round, numbers)
            sends = torch.where(torch.from_numpy(self.coins[numbers]).unsqueeze(1), one, other)
            whose = self.whose(numbers, places % self.share).to(self.device)
            collection.add((sends * self.unit).to(self.device), whose)
        return Watched(self, collection, round)

    def whose(self, canaries: np.ndarray, place: np.ndarray | int = 0) -> Tensor:
        """The task that each is at, at this place of its own."""
        numbers = torch.from_numpy(canaries)
        if not self.of_persons:
            return numbers + self.real
        return homes_of(self, numbers % self.homes, torch.as_tensor(place))

    def sent(self, round: int, canaries: np.ndarray) -> tuple[Tensor, Tensor]:
        """What these canaries send in this round, in clips, for either side of their coins."""
        length = self.lengths[round]
        d = length if self.moments is None else self.moments.vector(length)
        public = np.random.default_rng([round, self.canaries])
        turns = -(-self.canaries // d)
        places = np.concatenate([public.permutation(d) for _ in range(turns)])[: self.canaries]
        signs = public.choice([-1.0, 1.0], self.canaries)
        one = torch.zeros(len(canaries), d)
        towards = torch.from_numpy(signs[canaries]).float()
        one[torch.arange(len(canaries)), torch.from_numpy(places[canaries])] = SENT * towards
        other = opposite(one, self.moments)
        if length > d:
            extra = towards.unsqueeze(1)
            one, other = torch.cat([one, extra], dim=1), torch.cat([other, -extra], dim=1)
        return one, other

    def moved(self, round: int, canaries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far these canaries move the sums at one place, in clips, for either side of their
        coins."""
        whose = self.whose(canaries)
        one, other = (moves(self, side, whose) for side in self.sent(round, canaries))
        return one, other if self.neighbours == "replace" else np.zeros_like(other)

    def chunks(self, round: int, canaries: np.ndarray) -> list[np.ndarray]:
        length = self.lengths[round]
        most = max(1, NUMBERS // max(length, self.place.size(length)))
        return [canaries[at : at + most] for at in range(0, len(canaries), most)]


class Watched(Collection):
    """A round that is released as ever, with an observer who knows all about the real tasks."""

    def __init__(self, channel: WithCanaries, inner: Collection, round: int) -> None:
        self._channel, self._inner, self._round = channel, inner, round
        assert channel.release is not None
        silent = Channel(
            channel.sampler,
            channel.tasks,
            channel.randomness,
            clip=channel.clip,
            release=dataclasses.replace(channel.release, noise_multiplier=0.0),
            relation=channel.relation,
            quantile=channel.quantile,
            moments=channel.moments,
            share=channel.share,
        )
        # Without noise a grid may be finer: what is on the other one is brought to it.
        grids = channel.grid_at(round), silent.grid_at(round)
        assert grids[0] is not None and grids[1] is not None
        self._finer = grids[1].steps // grids[0].steps
        self._known = silent.open(round, channel.rounds)
        self._clip = channel.unit

    def expect(self, length: int) -> None:
        self._inner.expect(length)

    def add(
        self,
        contributions: Tensor,
        tasks: Tensor | None = None,
        count: int | None = None,
        reach: Reach | None = None,
    ) -> None:
        self._inner.add(contributions, tasks, count, reach)
        self._known.add(contributions, tasks, count, reach)

    def add_bounded(self, vectors: Tensor) -> None:
        self._inner.add_bounded(vectors)
        self._known.add_bounded(vectors * self._finer)

    def publishable(self, size: int) -> Tensor:
        published = self._inner.publishable(size)
        self._look(published - self._known.publishable(size).to(published))
        return published

    def _look(self, left: Tensor) -> None:
        """Bring the log odds of all canaries up to date with what is left of a release."""
        channel, round, places = self._channel, self._round, self._channel.share
        observer = Observer(channel, channel.lengths[round], channel.rounds)
        sums = observer.sums(left.unsqueeze(0), np.array([self._clip]))[0]
        noise = observer.noises(channel.randomness, [round], len(sums))[0][:, 0]
        sums = sums - (noise if channel.noisy_tasks else noise[1:]).sum(axis=0)
        every = np.arange(channel.canaries)
        inside = np.isin(channel.real + every * places, channel.members).astype(float)
        chance = observer.chance(inside)[:, None]
        # How often a canary is drawn, and the mean square of that.
        often, squared = places * chance, places * chance * (1 + (places - 1) * chance)
        energy = 0.0
        for numbers in channel.chunks(round, every):
            one, other = channel.moved(round, numbers)
            sums = sums - (often[numbers] * (one + other) / 2).sum(axis=0)
            energy += float((squared[numbers] * (one**2 + other**2)).sum()) / 2
        spread = float(observer.spread[round]) ** 2 + energy / channel.lengths[round]
        for numbers in channel.chunks(round, every):
            one, other = channel.moved(round, numbers)
            rest = sums + often[numbers] * (one + other) / 2  # all but this canary's own share
            if channel.noisy_tasks:  # of its own tasks nobody knows the noise
                tasks = [channel.whose(numbers, k).numpy() for k in range(observer.hiding)]
                rest = rest + noise[np.stack(tasks)].sum(axis=0)
            odds = [
                mixed(
                    chance[numbers, 0],
                    (rest * side).sum(axis=1) / spread,
                    (side * side).sum(axis=1) / spread,
                    places,
                )
                for side in (one, other)
            ]
            channel.scores[numbers] += odds[0] - odds[1]


def _joined(relation: Relation, tasks: int, canaries: int) -> Relation:
    """Canaries take places that tasks have, one after the other."""
    whose = torch.arange(canaries) % tasks
    loadings = torch.cat([relation.loadings, relation.loadings[whose.to(relation.loadings.device)]])
    return dataclasses.replace(relation, loadings=loadings)
