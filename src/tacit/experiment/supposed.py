"""What a forecast supposes about rows that nobody has seen, and tables made up accordingly.

A target has variance one. Part of it is what all tasks share (slopes β), part is a task's own level
and part its own slopes; the rest nobody can predict. Columns are correlated, as those of tables
are: the k-th direction has 1/k of the variance of the first. Classes have such scores inside a
softmax, a yes or no inside a logistic function, and numbers are what they are.

These constants are a prior, and public: they are fitted to no data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.data.arrays import from_arrays
from tacit.data.federation import Federation, Kind, OwnUnits, Rows
from tacit.data.persons import Unscaled
from tacit.data.sets.synthetic import NumberedNames
from tacit.privacy import Privacy
from tacit.privacy.sampling import Unit

PREDICTABLE = 0.5
"""Of the variance of the target, or of the scores of classes."""
LEVELS = 0.15
"""Of that variance: levels of tasks."""
JUDGE = 0.2
"""Part of a task's rows that methods which need it judge by, as `from_table` has it."""
LOGISTIC = math.pi**2 / 3
"""Variance of what a logistic function adds to a score."""


@dataclass(frozen=True)
class Facts:
    """What is public about a federation."""

    tasks: int
    rows: int
    features: int
    kind: Kind
    outputs: int = 1
    numbers: int | None = None
    """How many of the features are numbers, which need a common unit; None for all of them."""
    unit: Unit = "task"
    """Who is hidden."""
    persons: int | None = None
    """About how many persons (or rows) all tasks have, where those are hidden."""

    @property
    def crowd(self) -> int:
        """How many there are to hide among."""
        return self.tasks if self.persons is None else self.persons

    def of_tasks(self, tasks: int) -> Facts:
        """The same with so many tasks, and as many persons at each as before."""
        persons = None if self.persons is None else max(2, round(self.persons * tasks / self.tasks))
        return replace(self, tasks=tasks, persons=persons)

    def privacy(self, epsilon: float | None) -> Privacy | None:
        """The promise."""
        if epsilon is None:
            return None
        return Privacy(epsilon=epsilon, unit=self.unit, persons=self.persons)

    @property
    def scores(self) -> int:
        """Numbers that a model says of a row; of several classes one says what the others leave."""
        return max(1, self.outputs - 1)

    def outline(self) -> Federation:
        """Such a federation without any row, for all that is decided by public facts."""
        nobody = None if self.persons is None else torch.zeros(0, dtype=torch.int64)
        none = Rows(
            torch.zeros(0, self.features),
            torch.zeros(0),
            torch.zeros(1, dtype=torch.int64).expand(self.tasks + 1),
            nobody,
        )
        numbers = self.features if self.numbers is None else self.numbers
        voted = numbers + (self.kind == "regression")
        unit = torch.ones(1, dtype=torch.float64).expand(self.tasks, voted)
        unscaled = (*range(numbers), *((-1,) if self.kind == "regression" else ()))
        return Federation(
            names=NumberedNames(self.tasks),
            kind=self.kind,
            outputs=self.outputs,
            train=none,
            validation=none,
            test=none,
            units=OwnUnits(tuple(range(numbers)), unit, unit) if nobody is None else None,
            unscaled=None if nobody is None or not unscaled else Unscaled(unscaled),
        )


@dataclass(frozen=True)
class World:
    """How much tasks have in common."""

    common: float
    """Share of the slopes' variance that all tasks have in common."""

    @property
    def shared(self) -> float:
        return self.common * (PREDICTABLE - LEVELS)

    @property
    def own(self) -> float:
        return (1 - self.common) * (PREDICTABLE - LEVELS)

    def unit(self, kind: Kind) -> float:
        """Variance of a score or target, of which the rest are shares."""
        return 1.0 if kind == "regression" else LOGISTIC / (1 - PREDICTABLE)


WORLDS = {"little": World(0.25), "half": World(0.5), "much": World(0.75)}
"""Worlds that are thought possible, the middle one most."""


def directions(features: int) -> np.ndarray:
    """Variances of the directions of columns that have variance one each."""
    found = 1 / np.arange(1, features + 1)
    return found * (features / found.sum())


def made_up(facts: Facts, world: World, seed: int, test_rows: int = 40) -> Federation:
    """A federation of this world, with so many test rows besides."""
    rng = np.random.default_rng(seed)
    m, d, k = facts.tasks, facts.features, facts.scores
    count = facts.rows + test_rows
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    x = (rng.standard_normal((m, count, d)) * np.sqrt(directions(d))) @ turn.T
    unit = world.unit(facts.kind) / d
    beta = rng.standard_normal((1, d, k))
    size = ((turn.T @ beta) ** 2 * directions(d)[:, None]).sum(axis=1, keepdims=True)
    beta *= np.sqrt(unit * d * world.shared / size)  # as much as is supposed, in every draw
    own = math.sqrt(unit * world.own) * rng.standard_normal((m, d, k))
    level = math.sqrt(unit * d * LEVELS) * rng.standard_normal((m, 1, k))
    score = x @ (beta + own) + level
    if facts.kind == "regression":
        y = (score + math.sqrt(1 - PREDICTABLE) * rng.standard_normal(score.shape))[..., 0]
    else:
        scores = np.concatenate([np.zeros((m, count, 1)), score], axis=2)
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=2)
    task = np.repeat(np.arange(m), count)
    judge, test = JUDGE * facts.rows / count, test_rows / count
    persons: Any = None
    if facts.persons is not None:
        each = max(1, round(facts.persons / m * count / facts.rows))  # with those to test on
        persons = facts.unit == "row" or task * each + np.tile(np.arange(count) % each, m)
    flat = x.reshape(-1, d), y.reshape(-1), task
    return from_arrays(*flat, kind=facts.kind, validation=judge, test=test, persons=persons)
