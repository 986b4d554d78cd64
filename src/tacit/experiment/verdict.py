"""Whether taking part helped, why not if it did not, and what would change it.

Loss by loss: a task's own loss with the others' help is set beside the best that it reaches by
itself, on the same rows. The mean of these differences has an interval over tasks (Student's), and
the verdict never says more than the interval does. A silo has one task, and rows in their place.
It is computed from private rows, as all scores.

| what is asked            | what answers                                                      |
|--------------------------|-------------------------------------------------------------------|
| did taking part help?    | the interval: above zero, below it, or around it                  |
| is noise the reason?     | the same method without noise, against the best alone             |
| are tasks too unlike?    | nor does that help, and its interval is narrow                    |
| is there too little data?| the interval is wide                                              |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.data.federation import Kind
from tacit.metrics import Metrics
from tacit.privacy import NOT_COVERED
from tacit.words import counted

Outcome = Literal["helped", "lost", "unclear", "unknown"]
Why = Literal["noise", "unlike", "few rows", "untold"]
Colour = Literal["green", "grey", "red"]
UNCHANGED = 1e-3
"""A task whose two losses differ by less than this share of the larger one did not change."""
NARROW = 0.02
"""An interval that ends below this share of the loss leaves no room for a gain worth having."""
NOTHING = 0.01
"""Where an interval around zero ends below this share of the loss, there is no difference."""
UNUSED = 0.1
"""With less of the shared model than this in what tasks end with, that is said."""
FEW_TASKS = 50
LOSS = {"regression": "squared error", "count": "Poisson deviance"}
OWN_MEAN = "each task's own mean"


@dataclass(frozen=True)
class Interval:
    """A mean over tasks, and where it may be with 95 % confidence."""

    mean: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        return Interval(self.mean * factor, self.low * factor, self.high * factor)

    def to_json(self) -> list[float]:
        return [self.mean, self.low, self.high]


@dataclass(frozen=True)
class RunFacts:
    """What a run knows about itself, beside scores."""

    tasks: int
    epsilon: float | None = None
    """None, or no end of it, where nothing was hidden."""
    shares: bool = True
    """Whether tasks learned from each other at all."""
    used: float | None = None
    """How much of what tasks end with comes from the others, from 0 to 1."""
    unseen: bool = True
    """Whether scores are of rows that nobody learned from."""
    broken: tuple[str, ...] = ()
    """What went wrong, in words."""
    party: str = "task"
    """What is counted: tasks, or the rows of one silo."""
    best_alone: str = "the best model that each task has alone"
    hidden: str = "task"
    """Who is protected."""
    crowd: int | None = None
    """About how many of them there are; None where those are the tasks."""

    @property
    def noisy(self) -> bool:
        """Whether noise can be the reason for anything."""
        return self.epsilon is not None and math.isfinite(self.epsilon)


@dataclass(frozen=True)
class Verdict:
    """The answers, in numbers and in sentences."""

    outcome: Outcome
    colour: Colour
    sentences: tuple[str, ...]
    against: str | None = None
    difference: Interval | None = None
    """What was gained, in units of the loss."""
    relative: Interval | None = None
    """The same, in shares of the loss alone; None where nothing is lost alone."""
    gained: int = 0
    lost: int = 0
    unchanged: int = 0
    left_out: int = 0
    """Tasks without a score."""
    why: Why | None = None

    def to_json(self) -> dict[str, Any]:
        """For result.json; intervals are [mean, low, high]."""
        found: dict[str, Any] = {
            "label": NOT_COVERED,
            "outcome": self.outcome,
            "colour": self.colour,
        }
        for name in ("difference", "relative"):
            interval: Interval | None = getattr(self, name)
            found[name] = None if interval is None else interval.to_json()
        for name in ("against", "gained", "lost", "unchanged", "left_out", "why"):
            found[name] = getattr(self, name)
        return found | {"sentences": list(self.sentences)}


@dataclass(frozen=True)
class _Paired:
    """Each task's loss with and without something."""

    before: np.ndarray
    after: np.ndarray

    @property
    def known(self) -> np.ndarray:
        return ~np.isnan(self.before) & ~np.isnan(self.after)

    @property
    def gain(self) -> np.ndarray:
        """Infinite where one of the two models has no usable score."""
        gain = np.zeros(len(self.before))
        both = np.isfinite(self.before) & np.isfinite(self.after)
        gain[both] = self.before[both] - self.after[both]
        gain[np.isinf(self.before) & np.isfinite(self.after)] = math.inf
        gain[np.isinf(self.after) & np.isfinite(self.before)] = -math.inf
        return gain[self.known]

    @property
    def changed(self) -> np.ndarray:
        """1 for a task that gained, −1 for one that lost, 0 for one that did not change."""
        known, gain = self.known, self.gain
        larger = np.maximum(np.abs(self.before[known]), np.abs(self.after[known]))
        same = np.abs(gain) <= UNCHANGED * np.where(np.isfinite(larger), larger, 0.0)
        return np.where(same, 0, np.sign(gain)).astype(np.int64)

    def intervals(self) -> tuple[Interval, Interval] | None:
        """Absolute and relative; None with fewer than two tasks."""
        both = np.isfinite(self.before) & np.isfinite(self.after)
        gain = self.before[both] - self.after[both]
        if len(gain) < 2:
            return None
        mean = float(gain.mean())
        from scipy.special import stdtrit  # takes long to load, and only comparisons need it

        reach = float(stdtrit(len(gain) - 1, 0.975) * gain.std(ddof=1) / math.sqrt(len(gain)))
        found, whole = Interval(mean, mean - reach, mean + reach), float(self.before[both].mean())
        return found, found.scaled(1 / whole if whole > 0 else math.nan)


def judge(
    ours: Metrics,
    alone: Metrics | None,
    facts: RunFacts,
    *,
    constant: Metrics | None = None,
    not_private: Metrics | None = None,
) -> Verdict:
    """The verdict on scores that belong to the same tasks.

    Training alone can be worse than no training: what counts is the better of `alone` and
    `constant`, each task's own mean.
    """
    against = facts.best_alone
    if alone is not None and constant is not None and _mean(constant) < _mean(alone):
        alone, against = constant, OWN_MEAN
    cannot = _cannot_say(alone, facts)
    if alone is None or cannot:
        return Verdict("unknown", _colour("unknown", facts), (*_broken(facts), cannot))
    paired = _Paired(alone.per_task["loss"], ours.per_task["loss"])
    changed, found = paired.changed, paired.intervals()
    outcome = _outcome(found)
    difference, relative = found or (None, None)
    failed = int(np.isneginf(paired.gain).sum())
    if failed:
        broke = f"{counted(failed, facts.party)} ended with a model that has no usable score"
        facts = _with(facts, broke)
    counts = [int((changed == side).sum()) for side in (1, -1, 0)]
    said = _helped(ours.kind, outcome, relative, counts, facts, against, paired)
    why = None
    sentences = [*_broken(facts), said]
    if outcome in ("lost", "unclear"):
        assert relative is not None
        why = _why(relative, alone, not_private, facts)
        sentences += _because(why, facts, outcome)
    return Verdict(
        outcome,
        _colour(outcome, facts),
        tuple(sentences),
        against,
        difference,
        relative if relative is not None and math.isfinite(relative.mean) else None,
        *counts,
        left_out=int((~paired.known).sum()),
        why=why,
    )


def by_row(found: Metrics) -> Metrics:
    """Every row in the place of a task: one silo has nothing else to judge by."""
    losses = found.row_losses
    assert losses is not None
    return Metrics(found.kind, np.ones_like(losses), {"loss": losses}, found.overall)


def _outcome(found: tuple[Interval, Interval] | None) -> Outcome:
    if found is None:
        return "unknown"
    if found[0].low > 0:
        return "helped"
    return "lost" if found[0].high < 0 else "unclear"


def _colour(outcome: Outcome, facts: RunFacts) -> Colour:
    if facts.broken:
        return "red"
    return "green" if outcome == "helped" else "grey"


def _why(relative: Interval, alone: Metrics, not_private: Metrics | None, facts: RunFacts) -> Why:
    if not facts.noisy:
        return "unlike" if relative.high < NARROW else "few rows"
    if not_private is None:
        return "untold"
    found = _Paired(alone.per_task["loss"], not_private.per_task["loss"]).intervals()
    if found is not None and found[0].low > 0:
        return "noise"
    narrow = found is not None and found[1].high < NARROW
    return "unlike" if narrow else "few rows"


def _cannot_say(alone: Metrics | None, facts: RunFacts) -> str:
    if not facts.shares:
        return "Nothing was shared, so there is nothing to judge."
    if alone is None:
        return (
            "It is not known whether taking part helped: nothing was compared with training alone."
        )
    if not facts.unseen:
        return (
            "It is not known whether taking part helped: models were scored on the rows that they "
            "were trained on, which says nothing about new rows."
        )
    return ""


def _helped(
    kind: Kind,
    outcome: Outcome,
    relative: Interval | None,
    counts: list[int],
    facts: RunFacts,
    against: str,
    paired: _Paired,
) -> str:
    loss = LOSS.get(kind, "log loss")
    if relative is None:
        return _one(loss, paired, facts)
    gained, lost, unchanged = counts
    tally = (
        f"{gained} of {counted(sum(counts), facts.party)} gained, {lost} lost, {unchanged} did not "
        "change"
    )
    size = f"{_compared(relative.mean)} (95 % interval: {_between(relative)})"
    first = {
        "helped": "Taking part helped",
        "lost": "Taking part did not help",
        "unclear": "It is unclear whether taking part helped",
    }[outcome]
    if outcome == "unclear" and max(-relative.low, relative.high) < NOTHING:
        first = "Taking part made no difference"
    mean = f"{loss} (mean over {facts.party}s)"  # scores beside it may count every row the same
    return f"{first}: compared with {against}, {mean} is {size}; {tally}."


def _one(loss: str, paired: _Paired, facts: RunFacts) -> str:
    """With a single task there is no interval over tasks."""
    both = np.isfinite(paired.before) & np.isfinite(paired.after)
    if not both.any():
        return f"It is unclear whether taking part helped: no {facts.party} has scores."
    before, after = float(paired.before[both][0]), float(paired.after[both][0])
    return (
        f"One {facts.party} is too few to say whether taking part helped: its {loss} is "
        f"{after:.4g} with the others, and {before:.4g} alone."
    )


def _because(why: Why, facts: RunFacts, outcome: Outcome) -> list[str]:
    """Why it did not help, and what would change it where that is known."""
    unused = ""
    if facts.used is not None and facts.used < UNUSED:
        part = _percent(facts.used)
        unused = f" Only {part} of what tasks end with comes from the others."
    if why == "noise":
        assert facts.epsilon is not None
        crowd, hidden = facts.crowd or facts.tasks, facts.hidden
        told = f"Without privacy the same method helps: with {counted(crowd, hidden)}, "
        told += f"ε = {facts.epsilon:.3g} needs too much noise.{unused}"
        change = (
            f"Twice as many {hidden}s, or twice the ε, would halve the noise in what is shared."
        )
        if hidden == "task" and facts.tasks < FEW_TASKS:
            change += (
                " If rows belong to people, hiding each person instead of whole tasks "
                "(unit='person', --unit person) needs far less noise."
            )
        return [told, change]
    if why == "unlike":
        even = "Nothing was hidden, so noise is not the reason"
        if facts.noisy:
            even = "It does not help even without privacy"
        return [f"{even}: tasks are too unlike, or have enough rows of their own.{unused}"]
    if why == "few rows":
        tell = "tell" if outcome == "unclear" else "tell why"
        return [f"There are too few tasks, or too few scored rows, to {tell}.{unused}"]
    return [f"This run cannot tell whether noise or unlike tasks are the reason.{unused}"]


def _broken(facts: RunFacts) -> tuple[str, ...]:
    if not facts.broken:
        return ()
    said = "; ".join(facts.broken)
    return (f"Something went wrong: {said}.",)


def _with(facts: RunFacts, broke: str) -> RunFacts:
    return RunFacts(**{**vars(facts), "broken": (*facts.broken, broke)})


def _mean(found: Metrics) -> float:
    mean = found.overall.get("loss_per_task")
    return math.inf if mean is None else mean


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _compared(gain: float) -> str:
    """A share of the loss that is gained, from the loss's side."""
    if not math.isfinite(gain):  # nothing is lost alone
        return "higher"
    return f"{_percent(abs(gain))} {_side(gain)}"


def _between(gain: Interval) -> str:
    if gain.low * gain.high > 0:  # both on one side
        near, far = sorted((abs(gain.low), abs(gain.high)))
        return f"{100 * near:.1f} to {_percent(far)} {_side(gain.mean)}"
    return f"{_compared(gain.high)} to {_compared(gain.low)}"


def _side(gain: float) -> str:
    return "lower" if gain > 0 else "higher"
