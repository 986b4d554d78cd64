"""Everything that a silo or a coordinator writes down about itself, and how each is said.

An event is fields; `str` of it is the sentence for people. Whoever needs a fact reads the field,
and nobody reads the sentence back. No ε is ever computed from events: ledgers are for that. Rounds
count from 0, as in the ledger; people read them from 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.deploy.messages import Kind, State
from tacit.privacy.guarantee import epsilon_up
from tacit.words import quoted

OUTSIDE = "not in this cohort, so the result was thrown away and nothing of it left"
NOT_BOOKED = "nothing is booked: this run has no ε"


@dataclass(frozen=True)
class Spending:
    """What was spent, as a silo's own account has it; an infinite number is None, as in JSON."""

    epsilon: float | None
    budget: float | None
    neighbours: str
    delta: float
    sampling: str
    accountant: str | None = None
    """None for a quick estimate of this run alone."""
    unit: str = "task"
    """Who is hidden from all others: this silo, or every person (or row) of it."""
    marks: str = ""
    """Why the ε promises nothing, if it does not (`guarantee.marks_of`)."""

    @property
    def short(self) -> str:
        """Without what the ε means."""
        return f"ε={epsilon_up(_infinite(self.epsilon))} of {_infinite(self.budget):g}"

    @property
    def meaning(self) -> str:
        """What ε is about: without that it says nothing."""
        of = "" if self.unit == "task" else f" of one {self.unit}"
        by = "" if self.accountant is None else f", {self.accountant} accountant"
        marks = f"; {self.marks}" if self.marks else ""
        return f"{self.neighbours}{of}, δ={self.delta:g}, {self.sampling}{by}{marks}"

    def __str__(self) -> str:
        if self.accountant is None:
            return f"about ε={_infinite(self.epsilon):.2f} in this run so far ({self.meaning})"
        return f"{self.short} spent ({self.meaning})"


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


KINDS: dict[str, type[Event]] = {}
"""Every kind of event that there is, by its name in events.jsonl."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        KINDS[kind] = cls


# At a silo.


@dataclass(frozen=True)
class Contributed(Event, kind="contributed"):
    """This silo trained for a round; outside the cohort nothing of that left it."""

    round: int
    takes_part: bool
    numbers: int
    length: float
    clip: float | None
    shared: bool
    """Whether servers on shares get it, and not the coordinator."""
    spent: Spending | None
    unit: str = "task"
    """What the numbers are the sum of, where it is not this silo that is bounded."""
    noised: bool = False
    """Whether this silo added the noise itself."""

    def __str__(self) -> str:
        what = f"{self.numbers} numbers of length {self.length:.3g}"
        if self.unit != "task":
            what = f"{self.numbers} numbers, a sum over bounded {self.unit}s"
            what += " with this silo's own noise" if self.noised else ""
        elif not self.length:
            what += " (training diverged on this silo's rows, or left nothing to say)"
        if self.clip is not None:
            what += f" in clips of {self.clip:g}"
        where = "kept for the servers, as shares" if self.shared else "sent to the coordinator"
        said = f"{what}, {where}" if self.takes_part else OUTSIDE
        return f"{_asked('train', self.round)}: {said}; {self.spent or NOT_BOOKED}"


@dataclass(frozen=True)
class SharesHanded(Event, kind="shares handed"):
    """Shares left for servers; `numbers` is None for a whole model, and 0 outside the cohort."""

    round: int
    numbers: int | None
    servers: int
    spent: Spending | None

    def __str__(self) -> str:
        to = f"handed to {self.servers} servers as shares"
        what = f"{self.numbers} numbers" if self.numbers else "zeros (not in this cohort)"
        said = f"{what} {to}" if self.numbers is not None else f"a model {to}, and its answer taken"
        return f"{_asked('share', self.round)}: {said}; {self.spent or NOT_BOOKED}"


@dataclass(frozen=True)
class AnswerTaken(Event, kind="answer taken"):
    round: int

    def __str__(self) -> str:
        return f"{_asked('receive', self.round)}: took the curator's answer"


@dataclass(frozen=True)
class RunOver(Event, kind="run over"):
    spent: Spending | None

    def __str__(self) -> str:
        return f"the run is over; {self.spent or NOT_BOOKED}"


@dataclass(frozen=True)
class ScoresSent(Event, kind="scores sent"):
    takes_part: bool
    spent: Spending | None

    def __str__(self) -> str:
        sent = "a score and a loss were sent, to be released with noise"
        said = sent if self.takes_part else f"{_asked('measure', 0)}: {OUTSIDE}"
        return f"{said}; {self.spent or NOT_BOOKED}"


@dataclass(frozen=True)
class RequestRefused(Event, kind="request refused"):
    asked: Kind
    round: int
    why: str

    def __str__(self) -> str:
        return f"refused {_asked(self.asked, self.round)}: {self.why}"


@dataclass(frozen=True)
class RequestFailed(Event, kind="request failed"):
    """Something went wrong here; what it was may speak of rows."""

    asked: Kind
    round: int
    error: str
    why: str
    trace: str

    def __str__(self) -> str:
        return f"failed at {_asked(self.asked, self.round)}: {self.why}\n{self.trace}"


@dataclass(frozen=True)
class ModelKept(Event, kind="model kept"):
    chosen: str

    def __str__(self) -> str:
        return f"the personal model is {self.chosen}, kept in model/"


# At a coordinator.


@dataclass(frozen=True)
class SiloSilent(Event, kind="silo silent"):
    silo: str
    asked: Kind
    round: int

    def __str__(self) -> str:
        return f"{self.silo} did not answer in time ({self.asked}, round {self.round + 1})"


@dataclass(frozen=True)
class SiloDeclined(Event, kind="silo declined"):
    """A silo did not do what it was asked for; the reason is in its words, cut and tamed."""

    silo: str
    state: State
    asked: Kind
    round: int
    reason: str

    def __str__(self) -> str:
        what = f"{self.asked}, round {self.round + 1}"
        return f"{self.silo} {self.state} ({what}): {quoted(self.reason)}"


@dataclass(frozen=True)
class SiloExcluded(Event, kind="silo excluded"):
    silo: str
    why: str

    def __str__(self) -> str:
        return f"{self.silo} is excluded: its message {self.why}"


@dataclass(frozen=True)
class SiloLeftOut(Event, kind="silo left out"):
    silo: str
    until: int
    """The first round in which it is asked for shares again."""

    def __str__(self) -> str:
        return f"{self.silo} is left out of rounds up to {self.until}"


@dataclass(frozen=True)
class PartyFailed(Event, kind="party failed"):
    """A server, or a silo towards servers, did not do its part of a job."""

    party: str
    what: str
    round: int

    def __str__(self) -> str:
        return f"{self.party} {self.what} (shares, round {self.round + 1})"


@dataclass(frozen=True)
class RoundFailed(Event, kind="round failed"):
    """Nothing was released in this round; `kept` says that silos go on from what they trained."""

    round: int
    why: str
    kept: bool = False

    def __str__(self) -> str:
        return f"{self.why}: silos keep what they trained" if self.kept else self.why


@dataclass(frozen=True)
class RoundsOver(Event, kind="rounds over"):
    rounds: int
    stopped: str | None
    """Why there were no more, if they ended before the last."""

    def __str__(self) -> str:
        return self.stopped or f"all {self.rounds} rounds are over"


@dataclass(frozen=True)
class ScoresWithheld(Event, kind="scores withheld"):
    why: str

    def __str__(self) -> str:
        return f"no scores: {self.why}"


@dataclass(frozen=True)
class GuaranteeGiven(Event, kind="guarantee given"):
    epsilon: float | None
    delta: float | None
    in_words: str

    def __str__(self) -> str:
        return self.in_words


@dataclass(frozen=True)
class StrangerTurnedAway(Event, kind="stranger turned away"):
    what: str
    sender: str

    def __str__(self) -> str:
        return f"turned away {self.what} from {self.sender} (said once)"


def _asked(kind: Kind, round: int) -> str:
    words = {"train": "contribution", "receive": "answer", "share": "shares"}
    if kind in words:
        return f"{words[kind]} of round {round + 1}"
    return "the last billboard" if kind == "finish" else "scores"
