"""What a run promises, to whom, and under which assumptions: in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict, Unpack

from tacit.errors import TacitError
from tacit.privacy.accounting import B, check_neighbours, spent
from tacit.privacy.calibration import noise_for
from tacit.privacy.curator import Curated
from tacit.privacy.sampling import UNITS, Neighbours, Sampler, Sampling, Unit, check_sampling
from tacit.privacy.selection import Repeated
from tacit.shown import as_html

NOT_COVERED = "not covered by the guarantee"
IN_WORDS = {
    "add-remove": "any one {party} added or removed",
    "replace": "any one {party}'s data replaced",
}
FEW_TASKS = 1e-3
"""δ is never more than this, unless it is asked for."""
BETWEEN = "protects nothing between clients"
EXCHANGE = f"{BETWEEN}; the curator sees all models"
"""What the exchange promises."""
GIVEN = (
    "settings were given; if they were chosen by comparing runs on these data, that choice is not "
    "covered by this ε"
)
"""About the choice of settings, wherever `tune` did not make it."""
SEEDED = "reproducible, not private: the noise comes from a seed"
KEPT = "personal models stay with their {party}s and must not be handed to others"
"""What is asked of tasks, whoever sums."""


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


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ) with neighbours, sampling, accountant, and who is protected from whom."""

    channel: Literal["billboard", "exchange", "nothing"]
    """What tasks learned from each other through."""
    epsilon: float
    """The bound; infinite where nothing is promised."""
    delta: float | None
    """The chance that the bound does not hold."""
    neighbours: Neighbours | None
    """What two sets of data may differ in."""
    sampling: str | None
    """Who took part in a round, in words."""
    accountant: str | None
    """By which accounting ε was computed."""
    releases: int
    """How many noisy sums were published."""
    noise_multiplier: float | None
    """The standard deviation of the noise, in clips."""
    clip: float | None
    """The greatest length of a contribution."""
    seeded: bool
    """Whether the noise came from a seed; then nothing is promised."""
    assumptions: tuple[str, ...] = ()
    """What is taken to be public, a sentence each."""
    leaks: tuple[str, ...] = field(default=())
    """What was computed over several tasks without noise; any of it voids the promise."""
    personal_is_public: bool = False
    """Plain privacy of all models together (naive) instead of privacy from the others (joint)."""
    refuted: str = ""
    """Why the noise that was added promises nothing, if a published mechanism does not hold."""
    booked_runs: float = 0.0
    """How many runs on average chose the settings, all of them covered by ε; 0 if none did."""
    curator: Curated | None = None
    """Who summed, if it was not one machine that sees everything."""
    party: str = "task"
    """What tasks call themselves."""
    unit: Unit = "task"
    """Who is protected: whole tasks, or every person (or row) of them."""
    noise_by_task: bool = False
    """Whether every task adds all the noise that its own persons need."""

    @property
    def private(self) -> bool:
        """Whether the promise holds as printed: finite ε, secret noise, nothing leaked beside."""
        return math.isfinite(self.epsilon) and not self.seeded and not self.leaks

    @property
    def hidden(self) -> str:
        """What those who are protected are called."""
        return self.party if self.unit == "task" else self.unit

    @property
    def protects(self) -> str:
        if self.channel == "nothing":
            return f"nothing leaves a {self.party}"
        if self.channel == "exchange":
            return EXCHANGE if self.curator is None else f"{BETWEEN}; {self.curator.hides}"
        if self.refuted:
            return f"protects nobody: {self.refuted}"
        if not math.isfinite(self.epsilon):
            return "protects nobody: sums are published without noise"
        if self.personal_is_public:
            whom = "everybody, even from whoever is handed its own model"
        elif self.unit != "task":
            whom = f"everybody outside its {self.party}, all of them together"
        else:
            whom = "all others together, whatever they share among themselves"
        return f"protects each {self.hidden} from {whom}"

    @property
    def trusts(self) -> str:
        """What is not protected, and from whom."""
        if self.channel == "nothing":
            return "nobody has to be trusted"
        if self.channel == "exchange" and self.curator is None:
            return (
                "the curator must be trusted with every model, and every client with what its own "
                "answers tell about the others' models; rows stay with their clients"
            )
        kept = KEPT.format(party=self.party)
        if self.curator is not None:
            return f"{self.curator.words}{f'; {kept}' if self.channel == 'billboard' else ''}"
        if self.noise_by_task:
            return f"nobody has to be trusted with more than noisy sums; {kept}"
        seen = "clipped contribution" if self.clip is not None else "contribution, unclipped"
        if self.unit != "task":
            seen = f"{self.party}'s sum over its bounded {self.unit}s"
        alone = (
            ", and makes all runs of the tuning by itself: it must not show how many there were, "
            "nor anything of those that lost"
            if self.tuned
            else ""
        )
        return f"the machine that sums sees each {seen}{alone}; {kept}"

    @property
    def tuned(self) -> bool:
        """Whether ε covers the choice of settings."""
        return self.booked_runs > 0

    @property
    def tuning(self) -> str:
        """How the settings came about, and whether ε covers it."""
        runs = f"settings were chosen by {self.booked_runs:g} booked runs on average"
        return f"{runs}; ε covers that choice" if self.tuned else GIVEN

    @property
    def marks(self) -> tuple[str, ...]:
        """Labels that must stand wherever this guarantee is shown."""
        shown = (SEEDED,) if self.seeded and self.channel == "billboard" else ()
        return shown + tuple(f"not private: {leak}" for leak in self.leaks)

    def __str__(self) -> str:
        if self.channel == "nothing":
            head = f"nothing was released: every {self.party} trained alone (ε=0)"
        elif self.channel == "exchange":
            head = f"exchange (no ε): {self.protects}"
        elif not math.isfinite(self.epsilon):
            head = f"no privacy (ε=∞): {self.protects}"
        else:
            assert self.neighbours is not None and self.delta is not None
            tuned = ", including the tuning" if self.tuned else ""
            servers = f", by noise that {self.curator.noise_of}" if self.curator else ""
            head = (
                f"ε={epsilon_up(self.epsilon)} at δ={delta_up(self.delta)}, "
                f"{differs(self.neighbours, self.hidden)}, {self.sampling}, "
                f"{self.releases} releases, "
                f"{self.accountant} accountant{tuned}{servers}; {self.protects}"
            )
        return "; ".join((head, *self.marks))

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        finite = math.isfinite(self.epsilon)
        return {
            "epsilon": self.epsilon if finite else None,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "sampling": self.sampling,
            "accountant": self.accountant,
            "releases": self.releases,
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip if self.clip is not None and math.isfinite(self.clip) else None,
            "private": self.private,
            "channel": self.channel,
            "seeded": self.seeded,
            "protects": self.protects,
            "trusts": self.trusts,
            "curator": None if self.curator is None else self.curator.to_json(),
            "refuted": self.refuted,
            "tuning": self.tuning,
            "assumptions": list(self.assumptions),
            "leaks": list(self.leaks),
            "party": self.party,
            "unit": self.unit,
            "in_words": str(self),
        }

    def _repr_html_(self) -> str:
        return as_html("guarantee", self.to_json())


@dataclass(frozen=True)
class Promise:
    """A guarantee as a run wrote it down: read back, and not computed anew.

    Whatever `Guarantee.to_json` holds is an attribute.
    """

    written: Mapping[str, Any]

    @property
    def epsilon(self) -> float:
        found = self.written["epsilon"]
        return math.inf if found is None else float(found)

    @property
    def private(self) -> bool:
        """Only where the run itself says so."""
        return self.written.get("private") is True

    def to_json(self) -> dict[str, Any]:
        return dict(self.written)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.written:
            raise AttributeError(f"a guarantee that was read back has no {name!r}")
        return self.written[name]

    def __str__(self) -> str:
        return str(self.written["in_words"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html("guarantee", self.written)


class Circumstances(TypedDict, total=False):
    """What a guarantee says beside ε, which does not depend on it: see its fields."""

    seeded: Required[bool]
    assumptions: tuple[str, ...]
    leaks: tuple[str, ...]
    personal_is_public: bool
    curator: Curated | None
    unit: Unit
    noise_by_task: bool


def guarantee(
    booked: Mapping[B, int],
    *,
    channel: Literal["billboard", "exchange", "nothing"],
    privacy: Privacy | None,
    tasks: int,
    sampler: Sampler,
    clip: float,
    **beside: Unpack[Circumstances],
) -> Guarantee:
    """Read the promise off the booked releases: they, and nothing else, decide ε."""
    if channel == "nothing":
        return Guarantee(channel, 0.0, None, None, None, None, 0, None, None, **beside)
    if privacy is None:
        # Nothing was booked because nothing was bounded: every published sum is exact.
        return Guarantee(channel, math.inf, None, None, str(sampler), None, 0, 0.0, None, **beside)
    delta = privacy.delta_for(tasks)
    if any(entry.unit != privacy.unit for entry in booked):
        raise TacitError(f"the ledger holds releases of another unit than {privacy.unit!r}")
    beside["unit"] = privacy.unit
    beside["noise_by_task"] = privacy.noise_by == "task"
    if privacy.unit == "person":
        places = "one task" if privacy.at_most == 1 else f"{privacy.at_most} tasks"
        once = f"nobody is at more than {places}"
        beside["assumptions"] = (*beside.get("assumptions", ()), once)
    if privacy.is_large(tasks):
        beside["leaks"] = (*beside.get("leaks", ()), _large(privacy, tasks))
    total = spent(booked, delta, privacy.neighbours)
    # The score of a tuning has noise of its own; what is shown is the noise of the rounds.
    runs = [entry.mean for entry in booked if isinstance(entry, Repeated)]
    least = min((entry.noise_multiplier for entry in booked), default=privacy.noise)
    return Guarantee(
        channel,
        total.epsilon,
        delta,
        privacy.neighbours,
        sampler.said(privacy.unit),
        total.accountant,
        sum(entry.published * count for entry, count in booked.items()),
        privacy.noise if runs else least,
        clip,
        booked_runs=sum(runs),
        **beside,
    )


def marks_of(privacy: Privacy, tasks: int, *, seeded: bool) -> tuple[str, ...]:
    """What must stand beside an ε that is shown while there is no guarantee yet."""
    large = (f"not private: {_large(privacy, tasks)}",) if privacy.is_large(tasks) else ()
    return ((SEEDED,) if seeded else ()) + large


def _large(privacy: Privacy, tasks: int) -> str:
    many = privacy.crowd(tasks) * privacy.delta_for(tasks)
    return f"δ is {many:.3g} / {privacy.unit}s, which can be a whole {privacy.unit}"


def differs(neighbours: Neighbours, party: str = "task") -> str:
    """What two neighbours differ in."""
    return IN_WORDS[neighbours].format(party=party)


def delta_up(delta: float) -> str:
    """Three significant digits, never rounded down."""
    scale = 10.0 ** (2 - math.floor(math.log10(delta)))
    return f"{math.ceil(delta * scale * (1 - 1e-9)) / scale:.3g}"


def epsilon_up(epsilon: float) -> str:
    """Two decimals (three significant below 0.1), never rounded down."""
    if not math.isfinite(epsilon):
        return "∞"
    digits = 2 if epsilon >= 0.1 else 2 - math.floor(math.log10(epsilon)) if epsilon > 0 else 2
    scale = 10**digits
    return f"{math.ceil(epsilon * scale - 1e-6) / scale:.{digits}f}"
