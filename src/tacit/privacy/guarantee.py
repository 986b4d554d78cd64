"""What a run promises, to whom, and under which assumptions: in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict, Unpack

from tacit.errors import TacitError
from tacit.privacy.accounting import B, of_tasks, spent
from tacit.privacy.asked import Privacy
from tacit.privacy.curator import Curated
from tacit.privacy.sampling import Everyone, Neighbours, Sampler, Unit
from tacit.privacy.selection import Repeated
from tacit.shown import as_html

NOT_COVERED = "not covered by the guarantee"
IN_WORDS = {
    "add-remove": "any one {party} added or removed",
    "replace": "any one {party}'s data replaced",
}
BETWEEN = "protects nothing between clients"
EXCHANGE = f"{BETWEEN}; the curator sees all models"
"""What the exchange promises."""
GIVEN = (
    "settings were given; if they were chosen by comparing runs on these data, that choice is not "
    "covered by this ε"
)
"""About the choice of settings, wherever `tune` did not make it."""
SEEDED = "reproducible, not private: the noise comes from a seed"
OTHERS = "all others together, whatever they share among themselves"
KEPT = "personal models stay with their {party}s and must not be handed to others"
"""What is asked of tasks, whoever sums."""


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
    tasks_epsilon: float | None = None
    """Of whole tasks, at the same δ, where they are promised something beside their persons."""

    @property
    def private(self) -> bool:
        """Whether the promise holds as printed: finite ε, secret noise, nothing leaked beside."""
        every = (self.epsilon, self.tasks_epsilon or 0.0)
        return all(map(math.isfinite, every)) and not self.seeded and not self.leaks

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
            whom = OTHERS
        return f"protects each {self.hidden} from {whom}"

    @property
    def of_tasks(self) -> str:
        """What is promised to whole tasks beside their persons, in words; empty if nothing is."""
        if self.tasks_epsilon is None or self.neighbours is None or self.delta is None:
            return ""
        return (
            f"ε={epsilon_up(self.tasks_epsilon)} at δ={delta_up(self.delta)}, "
            f"{differs(self.neighbours, self.party)}, {Everyone().said(self.party)}, "
            f"{self.releases} releases, {self.accountant} accountant; "
            f"protects each {self.party} from {OTHERS}"
        )

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
        beside = (f"and beside that {self.of_tasks}",) if self.of_tasks else ()
        return "; ".join((head, *beside, *self.marks))

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        finite = math.isfinite(self.epsilon)
        both: dict[str, Any] = {}
        if self.tasks_epsilon is not None:
            known = math.isfinite(self.tasks_epsilon)
            both["tasks_epsilon"] = self.tasks_epsilon if known else None
            both["tasks_in_words"] = self.of_tasks
        return both | {
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
    tasks_epsilon: float | None


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
    if privacy.tasks_epsilon is not None:
        whole = spent(of_tasks(booked), delta, privacy.neighbours)
        beside["tasks_epsilon"] = whole.epsilon
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
