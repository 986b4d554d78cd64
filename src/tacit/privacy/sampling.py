"""Who takes part in a round, together with what that is worth in privacy.

The sampler and its accountant are one object: a sampler says which accountants are valid for it
under which neighbours, and refuses every other pair. It also knows how one noisy release over its
cohort is written as a `dp_accounting` event.

The promise is joint, so the observer is all other tasks together, and each of them knows whether it
was asked. What that tells about the one task left out decides what sampling is worth:

| sampling | the others know of the one task    | add-remove | replace  | it pays for             |
|----------|------------------------------------|------------|----------|-------------------------|
| poisson  | nothing: it is drawn independently | PLD, RDP   | PLD      | all rounds, at a chance |
| in-turn  | in which rounds it is, exactly     | PLD, RDP   | PLD, RDP | its own rounds, in full |
| everyone | that it is in every round          | PLD, RDP   | PLD, RDP | all rounds, in full     |

Poisson is the default; accountants are tried in this order. Random cohorts of an exact size are not
offered: if k are drawn and the others see that k − 1 of them were asked, then the missing one is
the last. Such cohorts hide nobody, and an ε that is amplified by them is too small.

The number of tasks and the list of them are public. Under add-remove a task that is "removed" stays
on the list, is asked when it is its turn or its draw, and contributes zero; the sum moves by at
most one clip. Under replace it contributes something else; the sum moves by at most two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.errors import TacitError
from tacit.randomness import Randomness

if TYPE_CHECKING:
    import dp_accounting

Neighbours = Literal["add-remove", "replace"]
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace")
Accountant = Literal["PLD", "RDP"]
Unit = Literal["task", "person", "row"]
UNITS: tuple[Unit, ...] = ("task", "person", "row")


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
    def secret(self) -> bool:
        """Whether the promise counts on nobody else knowing who was drawn.

        Then nothing that others see may depend on it, not even how long a round takes.
        """
        return False

    def at(self, round: int, key: int = 0) -> Sampler:
        """The same in this round of the run with this public key, for samplers that take turns."""
        return self

    @abstractmethod
    def said(self, whom: str) -> str:
        """In words, where those who are drawn are called so."""

    def __str__(self) -> str:
        return self.said("task")

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Poisson(Sampler):
    """Each task takes part with probability `rate`, independently.

    A person may be at several tasks, `at_most` so many, and is drawn at each by itself; what each
    task sends of it is bounded by that part of a clip. So a person moves the sum by j/at_most clips
    where j tasks draw it, and by none with probability (1 − rate)^at_most.

    **What that costs** is at most what one draw with the probability of being drawn anywhere costs,
    with a whole clip: from that release, N(0) or N(1), anybody could make the true one by drawing j
    as it is given that it is not zero, multiplying by j/at_most and adding the noise that is then
    missing. That is post-processing, and the same whether or not the person was there. ∎
    """

    rate: float
    at_most: int = 1
    name = "poisson"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise TacitError(f"cohort={self.rate!r}: a rate must be above 0 and at most 1")

    @property
    def anywhere(self) -> float:
        """The probability of being drawn at all."""
        return -math.expm1(self.at_most * math.log1p(-self.rate)) if self.rate < 1 else 1.0

    def to_json(self) -> dict[str, Any]:
        more = {} if self.at_most == 1 else {"at_most": self.at_most}
        return {"name": self.name, "rate": self.rate, **more}

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
    def secret(self) -> bool:
        return self.rate < 1

    def expected(self, tasks: int) -> float:
        return self.rate * tasks

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        # dp-accounting has no RDP bound for Poisson sampling with replace.
        return ("PLD", "RDP") if neighbours == "add-remove" or not self.secret else ("PLD",)

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        import dp_accounting

        gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
        return dp_accounting.PoissonSampledDpEvent(self.anywhere, gaussian)

    def said(self, whom: str) -> str:
        if whom != "task" and self.rate == 1:
            return Everyone().said(whom)
        return f"Poisson cohorts q={self.rate:.4g}"


@dataclass(frozen=True)
class InTurn(Sampler):
    """Exactly `size` of `of` tasks in each round, one after the other along a public order.

    Round t takes the slots t·size … t·size + size − 1, counted around the circle of all `of` tasks;
    the order is a shuffle by the run's public key.

    **What it costs.** Given the order, which rounds a task is in is a constant that everybody
    knows. In these rounds the release is a plain Gaussian mechanism for it; in all others it does
    not depend on the task at all. So a task pays for its own rounds and for no other, and ε is that
    of the task that pays most (`heaviest`). Nothing is amplified. What is saved is that a task is
    in few rounds: n rounds in a row fill n·size slots in a row, each task owns every `of`-th slot,
    and size ≤ of; so it is in at most ⌈n·size/of⌉ of them, once each. ∎

    Orders of different runs are unrelated, so what each run costs at most is added up. A release
    that was booked twice, because a crash came between, is paid twice by those in its round. One
    that does not say its round is paid by every task.
    """

    size: int
    of: int
    round: int | None = None
    key: int = 0
    """Names the order, among those of other runs."""
    name = "in-turn"

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.of:
            raise TacitError(f"a cohort of {self.size} cannot be taken from {self.of} tasks")

    def at(self, round: int, key: int = 0) -> InTurn:
        return replace(self, round=round, key=key)

    def slots(self, round: int) -> np.ndarray:
        return (round * self.size + np.arange(self.size)) % self.of

    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        if tasks != self.of:
            raise TacitError(f"this sampler accounts for {self.of} tasks, but there are {tasks}")
        return np.sort(_order(randomness.key("cohort", 0), tasks)[self.slots(round)])

    def expected(self, tasks: int) -> float:
        return float(self.size)

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        return ("PLD", "RDP")

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        return Everyone().event(noise_multiplier)

    def said(self, whom: str) -> str:
        return f"{self.size} of {self.of} {whom}s in turn"


@lru_cache(maxsize=4)
def _order(key: int, tasks: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key)).permutation(tasks)


@dataclass(frozen=True)
class Everyone(Sampler):
    """All tasks in every round."""

    name = "everyone"

    def draw(self, tasks: int, randomness: Randomness, round: int) -> np.ndarray:
        return np.arange(tasks)

    def expected(self, tasks: int) -> float:
        return float(tasks)

    def accountants(self, neighbours: Neighbours) -> tuple[Accountant, ...]:
        return ("PLD", "RDP")

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        import dp_accounting

        return dp_accounting.GaussianDpEvent(noise_multiplier)

    def said(self, whom: str) -> str:
        return f"all {whom}s in every round"


def heaviest(charges: Iterable[tuple[Sampler, float]]) -> list[float]:
    """The most that one task has paid after each release, if it pays for those that it is in.

    A charge is a release's sampler and what its members pay. Only who takes turns is ever spared.
    """
    everybody, after = 0.0, []
    paid: dict[tuple[int, int, int], np.ndarray] = {}
    most: dict[tuple[int, int, int], float] = {}
    for sampler, charge in charges:
        if isinstance(sampler, InTurn) and sampler.round is not None:
            order, slots = (sampler.size, sampler.of, sampler.key), sampler.slots(sampler.round)
            own = paid.setdefault(order, np.zeros(sampler.of))
            own[slots] += charge
            most[order] = max(most.get(order, 0.0), float(own[slots].max()))
        else:
            everybody += charge
        after.append(everybody + math.fsum(most.values()))
    return after


Sampling = Literal["poisson", "in-turn", "everyone"]
SAMPLERS: tuple[Sampling, ...] = ("poisson", "in-turn", "everyone")


def check_sampling(sampling: str) -> None:
    if sampling == "fixed-size":
        raise TacitError(
            "sampling='fixed-size' promised too small an ε, because all other tasks together know "
            "whether the missing one was drawn: use 'in-turn' for cohorts of an exact size, or "
            "'poisson' for cohorts that hide who is in them"
        )
    if sampling not in SAMPLERS:
        raise TacitError(f"sampling={sampling!r}: choose one of {', '.join(SAMPLERS)}")


def sampler_for(sampling: str, cohort: float | int, tasks: int, at_most: int = 1) -> Sampler:
    """`cohort` is a rate in (0, 1], or a whole number of tasks (expected, or exact); a person may
    be at so many tasks."""
    check_sampling(sampling)
    whole = isinstance(cohort, int) and not isinstance(cohort, bool) and cohort > 1
    if not whole and not 0 < cohort <= 1:
        raise TacitError(f"cohort={cohort!r}: pass a rate in (0, 1] or a whole number of tasks")
    if whole and cohort > tasks:
        raise TacitError(f"cohort={cohort}: there are only {tasks} tasks")
    if sampling == "poisson":
        return Poisson(cohort / tasks if whole else float(cohort), at_most)
    if sampling == "in-turn":
        return InTurn(int(cohort) if whole else max(1, round(cohort * tasks)), tasks)
    if cohort not in (1.0, tasks):
        raise TacitError(f"cohort={cohort!r} with sampling='everyone': leave cohort out, or sample")
    return Everyone()


def sampler_from_json(data: dict[str, Any]) -> Sampler:
    """As booked; what nobody can account for any more is refused, never read as something else."""
    check_sampling(data["name"])
    kinds: dict[str, type[Sampler]] = {s.name: s for s in (Poisson, InTurn, Everyone)}
    fields = {key: value for key, value in data.items() if key != "name"}
    return kinds[data["name"]](**fields)
