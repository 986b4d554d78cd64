"""Who takes part in a round, together with what that is worth in privacy.

The sampler and its accountant are one object: a sampler says which accountants are valid for it
under which neighbours, and refuses every other pair. It also knows how one noisy release over its
cohort is written as a `dp_accounting` event.

Offered pairs, with the accountants tried in this order:

| sampling   | neighbours   | accountant | remark |
|------------|--------------|------------|--------|
| poisson    | add-remove   | PLD, RDP   | the default |
| poisson    | replace      | PLD        | |
| fixed-size | replace      | RDP        | noise halved for the accountant (see `FixedSize.event`) |
| fixed-size | add-remove   | none       | refused: the cohort's size would change with the task |
| everyone   | add-remove   | PLD, RDP   | plain Gaussian mechanism |
| everyone   | replace      | PLD        | PAPERS: Theorem 1 |
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.errors import TacitError
from tacit.randomness import Randomness

if TYPE_CHECKING:
    import dp_accounting

Neighbours = Literal["add-remove", "replace"]
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace")
Accountant = Literal["PLD", "RDP"]


@dataclass(frozen=True)
class Sampler(ABC):
    """Draws cohorts and knows how to account for them."""

    name: ClassVar[str]

    @abstractmethod
    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        """The cohort of this round: task numbers in ascending order."""

    @abstractmethod
    def expected(self, tasks: int) -> float:
        """The expected cohort size: the constant that sums are divided by."""

    @abstractmethod
    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        """Accountants whose figure is an upper bound for this pair, the tightest first."""

    @abstractmethod
    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        """One release: Gaussian noise of `noise_multiplier` times the clip on the cohort's sum."""

    @property
    def everyone(self) -> bool:
        """Whether every cohort is all tasks, so that nothing is hidden by sampling."""
        return False

    @property
    def secret(self) -> bool:
        """Whether the promise counts on nobody else knowing who was drawn.

        Then nothing that others see may depend on it, not even how long a round takes.
        """
        return not self.everyone

    @abstractmethod
    def __str__(self) -> str: ...

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Poisson(Sampler):
    """Each task takes part with probability `rate`, independently."""

    rate: float
    name = "poisson"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise TacitError(f"cohort={self.rate!r}: a rate must be above 0 and at most 1")

    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        """Gaps between members are geometric, so the cost grows with the cohort, not the tasks."""
        if self.rate == 1:
            return np.arange(tasks)
        members, last, block = [], -1, 0
        size = int(self.expected(tasks) + 6 * math.sqrt(self.expected(tasks)) + 16)
        while last < tasks:
            uniform = randomness.uniform("cohort", round, block, size)
            # P(gap = g) = rate (1 - rate)^(g - 1); capped so that the running sum cannot overflow
            gaps = np.floor(np.log(uniform) / math.log1p(-self.rate)) + 1
            positions = last + np.cumsum(np.minimum(gaps, tasks + 1).astype(np.int64))
            members.append(positions)
            last, block = int(positions[-1]), block + 1
        drawn = np.concatenate(members)
        return drawn[drawn < tasks]

    @property
    def everyone(self) -> bool:
        return self.rate == 1

    def expected(self, tasks: int) -> float:
        return self.rate * tasks

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        return ("PLD", "RDP") if neighbours == "add-remove" else ("PLD",)

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        import dp_accounting

        gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
        return dp_accounting.PoissonSampledDpEvent(self.rate, gaussian)

    def __str__(self) -> str:
        return f"Poisson cohorts q={self.rate:.4g}"


@dataclass(frozen=True)
class FixedSize(Sampler):
    """Exactly `size` of `of` tasks, uniformly without replacement."""

    size: int
    of: int
    name = "fixed-size"

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.of:
            raise TacitError(f"a fixed cohort of {self.size} cannot be drawn from {self.of} tasks")

    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        if tasks != self.of:
            raise TacitError(f"this sampler accounts for {self.of} tasks, but there are {tasks}")
        secret = randomness.secret
        source = random.SystemRandom() if secret else random.Random(randomness.key("cohort", round))
        return np.sort(np.array(source.sample(range(tasks), self.size), dtype=np.int64))

    def expected(self, tasks: int) -> float:
        return float(self.size)

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        if neighbours == "add-remove":
            raise TacitError(
                "fixed-size cohorts have no valid accountant for add-remove neighbours (adding a "
                "task changes every other task's chance): use neighbours='replace' or "
                "sampling='poisson'"
            )
        return ("RDP",)

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        import dp_accounting

        # Replacing a task moves the sum by up to twice the clip. dp-accounting's RDP accountant
        # does not apply this factor to samples without replacement (its issue 378); we do.
        gaussian = dp_accounting.GaussianDpEvent(noise_multiplier / 2)
        return dp_accounting.SampledWithoutReplacementDpEvent(self.of, self.size, gaussian)

    def __str__(self) -> str:
        return f"fixed-size cohorts {self.size} of {self.of}"


@dataclass(frozen=True)
class Everyone(Sampler):
    """All tasks in every round."""

    name = "everyone"

    @property
    def everyone(self) -> bool:
        return True

    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        return np.arange(tasks)

    def expected(self, tasks: int) -> float:
        return float(tasks)

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        # dp-accounting's RDP accountant ignores the factor 2 of replace for the Gaussian too.
        return ("PLD", "RDP") if neighbours == "add-remove" else ("PLD",)

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        import dp_accounting

        return dp_accounting.GaussianDpEvent(noise_multiplier)

    def __str__(self) -> str:
        return "all tasks in every round"


SAMPLERS = ("poisson", "fixed-size", "everyone")


def sampler_for(sampling: str, cohort: float | int, tasks: int) -> Sampler:
    """`cohort` is a rate in (0, 1], or a whole number of tasks (expected, or exact)."""
    whole = isinstance(cohort, int) and not isinstance(cohort, bool) and cohort > 1
    if not whole and not 0 < cohort <= 1:
        raise TacitError(f"cohort={cohort!r}: pass a rate in (0, 1] or a whole number of tasks")
    if whole and cohort > tasks:
        raise TacitError(f"cohort={cohort}: there are only {tasks} tasks")
    if sampling == "poisson":
        return Poisson(cohort / tasks if whole else float(cohort))
    if sampling == "fixed-size":
        return FixedSize(int(cohort) if whole else max(1, round(cohort * tasks)), tasks)
    if sampling == "everyone":
        if cohort not in (1.0, tasks):
            raise TacitError(
                f"cohort={cohort!r} with sampling='everyone': leave cohort out, or sample"
            )
        return Everyone()
    raise TacitError(f"sampling={sampling!r}: choose one of {', '.join(SAMPLERS)}")


def sampler_from_json(data: dict[str, Any]) -> Sampler:
    kinds: dict[str, type[Sampler]] = {s.name: s for s in (Poisson, FixedSize, Everyone)}
    fields = {key: value for key, value in data.items() if key != "name"}
    return kinds[data["name"]](**fields)
