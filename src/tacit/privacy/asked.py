"""What is asked of a run: an ε or a noise, for whom, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit.errors import TacitError
from tacit.privacy.accounting import check_neighbours
from tacit.privacy.calibration import noise_for
from tacit.privacy.sampling import (
    UNITS,
    Everyone,
    Neighbours,
    Sampler,
    Sampling,
    Unit,
    check_sampling,
)

FEW_TASKS = 1e-3
"""δ is never more than this, unless it is asked for."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is asked for: an ε (the noise is calibrated) or a noise multiplier (ε is reported).

    Parameters
    ----------
    epsilon, delta : the promise; `delta` defaults to 1 / (10 · tasks), so that even a mechanism
        that exposed each task with probability δ would expose less than a tenth of a task, and to
        1 / 1000 where tasks are few (with another unit, persons count instead of tasks)
    large_delta : takes a `delta` above 1 / tasks, which is refused otherwise: whoever shows one
        whole task, drawn at random, to everybody would keep such a promise
    unit : who is hidden from all others: a whole "task", every "person" of a task, with all rows
        that it has there, or every "row"
    persons : about how many persons (or rows) all tasks have together, as everybody may know. It
        sets how far a step goes and need not be right; it is needed for any unit but the task,
        because their true number is as private as they are
    at_most : how many tasks a person may be at; all of them are paid for
    noise_by : who adds the noise that hides persons. "curator": whoever sums, once; "task": every
        task adds all of it to what it sends, so that nobody has to be trusted, and the sum has more
    tasks_epsilon : a second promise beside that for persons (or rows): whole tasks are hidden at
        this ε, at the same δ. Each task's sum is shortened until the same noise hides it
    noise : standard deviation of the noise on the sum of contributions, in units of the clip
    neighbours : "add-remove" (a task takes part or not) or "replace" (its data are others)
    sampling : "poisson" (secret cohorts), "in-turn" (cohorts of an exact size, along a public
        order) or "everyone"
    """

    epsilon: float | None = None
    delta: float | None = None
    noise: float | None = None
    neighbours: Neighbours = "add-remove"
    sampling: Sampling = "poisson"
    large_delta: bool = False
    unit: Unit = "task"
    persons: int | None = None
    at_most: int = 1
    noise_by: Literal["curator", "task"] = "curator"
    tasks_epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise is None):
            raise TacitError("Privacy needs epsilon (noise is calibrated) or noise, one of the two")
        if self.epsilon is not None and not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise TacitError(f"epsilon={self.epsilon!r}: a positive number is needed")
        if self.noise is not None and not (self.noise >= 0 and math.isfinite(self.noise)):
            raise TacitError(f"noise={self.noise!r}: zero or a positive number is needed")
        if self.delta is not None and not 0 < self.delta < 1:
            raise TacitError(f"delta={self.delta!r}: a probability between 0 and 1 is needed")
        check_neighbours(self.neighbours)
        check_sampling(self.sampling)
        self._check_unit()

    def _check_unit(self) -> None:
        if self.unit not in UNITS:
            raise TacitError(f"unit={self.unit!r}: choose one of {', '.join(UNITS)}")
        if self.noise_by not in ("curator", "task"):
            raise TacitError(f"noise_by={self.noise_by!r}: choose curator or task")
        if self.unit == "task":
            given = {"persons": self.persons is not None, "at_most": self.at_most != 1}
            given["noise_by"] = self.noise_by != "curator"
            given["tasks_epsilon"] = self.tasks_epsilon is not None
            for name in (name for name, there in given.items() if there):
                raise TacitError(f"{name} is about persons: pass unit='person' (--unit person) too")
            return
        if self.persons is None or self.persons < 2:
            raise TacitError(
                f"unit={self.unit!r} needs persons= (--persons), about how many {self.unit}s all "
                "tasks have together, as everybody may know: it sets how far a step goes, and need "
                "not be right"
            )
        if self.at_most < 1:
            raise TacitError(f"at_most={self.at_most!r}: a person is at one task at least")
        if self.sampling == "in-turn":
            raise TacitError(
                f"sampling='in-turn' goes along a public list, but nobody knows the {self.unit}s "
                "of other tasks: use 'poisson' or 'everyone'"
            )
        self._check_both()

    def _check_both(self) -> None:
        epsilon = self.tasks_epsilon
        if epsilon is None:
            return
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise TacitError(f"tasks_epsilon={epsilon!r}: a positive number is needed")
        if self.noise == 0:
            raise TacitError("tasks_epsilon with noise=0: without noise no task is hidden")
        if self.noise_by == "task" and self.neighbours == "add-remove":
            raise TacitError(
                "a task that is not there adds no noise, and everybody sees that: with "
                "noise_by='task' and tasks_epsilon pass neighbours='replace'"
            )

    def task_clip(
        self, noise: float, rounds: int, tasks: int, weights: tuple[float, ...] | None
    ) -> float | None:
        """How long a task's sum may be so that this noise hides tasks, too, as was asked for."""
        if self.tasks_epsilon is None:
            return None
        promise = self.tasks_epsilon, self.delta_for(tasks), Everyone(), rounds, self.neighbours
        return noise / noise_for(*promise, weights=weights)

    def to_json(self) -> dict[str, Any]:
        """As plain values. What came later is left out where it says nothing, so that older runs
        can be resumed."""
        later = {"tasks_epsilon"}
        values = asdict(self).items()
        return {name: value for name, value in values if name not in later or value is not None}

    def crowd(self, tasks: int) -> int:
        """How many there are to hide among, as everybody knows."""
        return tasks if self.persons is None else self.persons

    def delta_for(self, tasks: int) -> float:
        tasks = self.crowd(tasks)
        if self.delta is None:
            return min(FEW_TASKS, 1 / (10 * tasks))
        if self.is_large(tasks) and not self.large_delta:
            raise TacitError(
                f"delta={self.delta:g} is more than 1 / {self.unit}s, {1 / tasks:.3g}: showing one "
                f"whole {self.unit} to everybody would keep that promise; pass a smaller one, or "
                "leave it out "
                "(large_delta=True, --large-delta, takes it as it is, and calls it not private)"
            )
        return self.delta

    def is_large(self, tasks: int) -> bool:
        """Whether δ alone could pay for a whole task."""
        return self.delta is not None and self.delta * self.crowd(tasks) > 1 + 1e-9

    def check_crowd(self, found: int) -> None:
        """Refuse a δ that is large for so many persons: more than `persons` says may be there."""
        delta = self.delta_for(found)
        if delta * found > 1 + 1e-9 and not self.is_large(found):
            raise TacitError(
                f"delta={delta:.3g} would let one whole {self.unit} be shown to everybody, because "
                f"there are more {self.unit}s than persons={self.persons} says: set that to a "
                "larger number, or delta to a smaller one"
            )

    def noise_multiplier(
        self,
        sampler: Sampler,
        rounds: int,
        tasks: int,
        *,
        weights: tuple[float, ...] | None = None,
        replaced: float = 2.0,
        again: int = 0,
    ) -> float:
        sampler.accountants(self.neighbours)  # refuses a pair that nobody can account for
        if self.noise is not None:
            return self.noise
        assert self.epsilon is not None
        delta = self.delta_for(tasks)
        promise = self.epsilon, delta, sampler, rounds, self.neighbours
        return noise_for(*promise, weights=weights, replaced=replaced, again=again)


@dataclass(frozen=True, kw_only=True)
class Prepaid(Privacy):
    """The privacy of a run that a tuning has booked as a whole: its own ledger need not survive."""
