"""Ways to break the promise on purpose. Each must be caught by an audit, here and in benchmarks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

import dp_accounting
import numpy as np

from tacit.attacks import audit
from tacit.data import assemble
from tacit.data.split import PartRows, SplitRule, _share
from tacit.privacy.bounds import Bounded
from tacit.privacy.channel import Collection
from tacit.privacy.sampling import Sampler
from tacit.randomness import Randomness


@contextlib.contextmanager
def half_the_noise() -> Iterator[None]:
    draw = Randomness.normal

    def halved(self, purpose, *given, **named):
        drawn = draw(self, purpose, *given, **named)
        return drawn / 2 if purpose == "noise" else drawn

    with mock.patch.object(Randomness, "normal", halved):
        yield


@contextlib.contextmanager
def no_clip() -> Iterator[None]:
    bounded = Bounded.of

    def unbounded(contributions, clip, moments):
        found = bounded(contributions, clip, moments)
        return dataclasses.replace(found, scale=(found.scale > 0) / clip)

    with mock.patch.object(Bounded, "of", unbounded):
        yield


@contextlib.contextmanager
def no_noise() -> Iterator[None]:
    draw = Randomness.normal

    def forgotten(self, purpose, *given, **named):
        return draw(self, purpose, *given, **named) * (purpose != "noise")

    with mock.patch.object(Randomness, "normal", forgotten):
        yield


@contextlib.contextmanager
def clip_of_tasks() -> Iterator[None]:
    """Clip what the persons of a task say on average, instead of what each of them says."""
    add = Collection.add

    def together(self, contributions, tasks=None, count=None, reach=None):
        assert tasks is not None and reach is None
        kept = contributions[:count]
        for task in tasks[:count].unique():
            own = kept[tasks[:count] == task]
            add(self, own.mean(dim=0).expand_as(own), task.expand(len(own)))

    with mock.patch.object(Collection, "add", together):
        yield


@contextlib.contextmanager
def counted_twice() -> Iterator[None]:
    """Whoever contributes does so in two places."""
    add = Collection.add

    def twice(self, *given):
        add(self, *given)
        add(self, *given)

    with mock.patch.object(Collection, "add", twice):
        yield


@contextlib.contextmanager
def whole_clips_everywhere() -> Iterator[None]:
    """A person at several tasks has a whole clip at each of them."""
    with mock.patch.object(Bounded, "over", lambda self, parts: self):
        yield


@contextlib.contextmanager
def realised_cohort() -> Iterator[None]:
    """Divide by who came, instead of by how many are expected."""
    start, add, publish = Collection.__init__, Collection.add, Collection.publishable
    came: dict[int, int] = {}
    expected: dict[int, float] = {}

    def started(self, channel, round, *more):
        start(self, channel, round, *more)
        came[id(self)], expected[id(self)] = 0, channel.sampler.expected(channel.tasks)

    def counted(self, contributions, tasks=None, count=None):
        add(self, contributions, tasks, count)
        came[id(self)] += len(contributions) if count is None else count

    def divided(self, size):
        return publish(self, size) * expected.pop(id(self)) / max(1, came.pop(id(self)))

    with (
        mock.patch.object(Collection, "__init__", started),
        mock.patch.object(Collection, "add", counted),
        mock.patch.object(Collection, "publishable", divided),
    ):
        yield


@dataclass(frozen=True)
class Amplified(Sampler):
    """A random cohort of exactly `size`, accounted as if its members were drawn independently."""

    size: int
    of: int
    name = "amplified"

    def draw(self, tasks, randomness, round):
        generator = np.random.default_rng([randomness.run_key, round])
        return np.sort(generator.choice(tasks, self.size, replace=False))

    def expected(self, tasks):
        return float(self.size)

    @property
    def secret(self):
        return True  # this is the lie

    def accountants(self, neighbours):
        return ("PLD",)

    def event(self, noise_multiplier):
        gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
        return dp_accounting.PoissonSampledDpEvent(self.size / self.of, gaussian)

    def said(self, whom):
        return f"{self.size} of {self.of} tasks at random"


@contextlib.contextmanager
def amplified_fixed_size(size: int) -> Iterator[None]:
    def amplified(sampling, cohort, tasks, each=1):
        return Amplified(size, tasks)

    with mock.patch.object(audit, "sampler_for", amplified):
        yield


def split_by_position(
    codes: np.ndarray, names: Sequence[str], rule: SplitRule, held: np.ndarray | None = None
) -> dict[str, PartRows]:
    """Rows are shuffled by their place in the whole table: one more row shuffles all after it."""
    assert held is None
    tasks = len(names)
    counts = np.bincount(codes, minlength=tasks)
    test = _share(counts, rule.test, counts - 1 - (rule.validation > 0))
    away = test + _share(counts, rule.validation, counts - 1 - test)
    keys = np.random.default_rng(rule.split_seed).random(len(codes))
    shuffled = np.lexsort((keys, codes))
    place = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes[shuffled]]
    of = codes[shuffled]
    part = np.empty(len(codes), dtype=np.int8)
    part[shuffled] = 2 - (place < away[of]).astype(np.int8) - (place < test[of])
    found = {}
    for number, name in enumerate(("test", "validation", "train")):
        rows = np.flatnonzero(part == number)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        sizes = np.bincount(codes[rows], minlength=tasks)
        found[name] = PartRows(rows, codes[rows], np.concatenate([[0], np.cumsum(sizes)]))
    return found


@contextlib.contextmanager
def the_old_split() -> Iterator[None]:
    with mock.patch.object(assemble, "split", split_by_position):
        yield
