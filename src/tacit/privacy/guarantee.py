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
from tacit.privacy.sampling import Neighbours, Sampler, Sampling, check_sampling
from tacit.privacy.selection import Repeated

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
KEPT = "personal models stay with their {party}s and must not be handed to others"
"""What is asked of tasks, whoever sums."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is asked for: an ε (the noise is calibrated) or a noise multiplier (ε is reported).

    Parameters
    ----------
    epsilon, delta : the promise; `delta` defaults to 1 / (10 · tasks), so that even a mechanism
        that exposed each task with probability δ would expose less than a tenth of a task, and to
        1 / 1000 where tasks are few
    large_delta : takes a `delta` above 1 / tasks, which is refused otherwise: whoever shows one
        whole task, drawn at random, to everybody would keep such a promise
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

    def delta_for(self, tasks: int) -> float:
        if self.delta is None:
            return min(FEW_TASKS, 1 / (10 * tasks))
        if self.is_large(tasks) and not self.large_delta:
            raise TacitError(
                f"delta={self.delta:g} is more than 1 / tasks, {1 / tasks:.3g}: showing one whole "
                "task to everybody would keep that promise; pass a smaller one, or leave it out "
                "(large_delta=True, --large-delta, takes it as it is, and calls it not private)"
            )
        return self.delta

    def is_large(self, tasks: int) -> bool:
        """Whether δ alone could pay for a whole task."""
        return self.delta is not None and self.delta * tasks > 1 + 1e-9

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
    epsilon: float
    delta: float | None
    neighbours: Neighbours | None
    sampling: str | None
    accountant: str | None
    releases: int
    noise_multiplier: float | None
    clip: float | None
    seeded: bool
    assumptions: tuple[str, ...] = ()
    leaks: tuple[str, ...] = field(default=())
    personal_is_public: bool = False
    """Plain privacy of all models together (naive) instead of privacy from the others (joint)."""
    refuted: str = ""
    """Why the noise that was added promises nothing, if a published mechanism does not hold."""
    booked_runs: float = 0.0
    """How many runs on average chose the settings, all of them covered by ε; 0 if none did."""
    curator: Curated | None = None
    """Who summed, if it was not one machine that sees everything."""
    party: str = "task"
    """What those who are protected call themselves."""

    @property
    def private(self) -> bool:
        """Whether the promise holds as printed: finite ε, secret noise, nothing leaked beside."""
        return math.isfinite(self.epsilon) and not self.seeded and not self.leaks

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
        else:
            whom = "all others together, whatever they share among themselves"
        return f"protects each {self.party} from {whom}"

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
        seen = "clipped contribution" if self.clip is not None else "contribution, unclipped"
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
        seeded = ("reproducible, not private: the noise comes from a seed",)
        shown = seeded if self.seeded and self.channel == "billboard" else ()
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
                f"{differs(self.neighbours, self.party)}, {self.sampling}, "
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
            "in_words": str(self),
        }


class Circumstances(TypedDict, total=False):
    """What a guarantee says beside ε, which does not depend on it: see its fields."""

    seeded: Required[bool]
    assumptions: tuple[str, ...]
    leaks: tuple[str, ...]
    personal_is_public: bool
    curator: Curated | None


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
    if privacy.is_large(tasks):
        large = f"δ is {tasks * delta:.3g} / tasks, which can be a whole task"
        beside["leaks"] = (*beside.get("leaks", ()), large)
    total = spent(booked, delta, privacy.neighbours)
    # The score of a tuning has noise of its own; what is shown is the noise of the rounds.
    runs = [entry.mean for entry in booked if isinstance(entry, Repeated)]
    least = min((entry.noise_multiplier for entry in booked), default=privacy.noise)
    return Guarantee(
        channel,
        total.epsilon,
        delta,
        privacy.neighbours,
        str(sampler),
        total.accountant,
        sum(entry.published * count for entry, count in booked.items()),
        privacy.noise if runs else least,
        clip,
        booked_runs=sum(runs),
        **beside,
    )


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
