"""Outcomes over time: what rows of cells (`data.survival`) tell, and how well they are predicted.

A model says the logarithm of the hazard of each interval. Hazards that are constant inside an
interval make a piecewise exponential model; with one score for all intervals beside a level of each
it is Cox's. Unlike Cox's partial likelihood its likelihood is a sum over rows, so each task can
compute its own part of it.

Michael Friedman. "Piecewise Exponential Models for Survival Data with Covariates." Annals of
Statistics, 1982. Frank Harrell et al. "Evaluating the Yield of Medical Tests." JAMA, 1982. Erika
Graf, Claudia Schmoor, Willi Sauerbrei, Martin Schumacher. "Assessment and Comparison of Prognostic
Classification Schemes for Survival Data." Statistics in Medicine, 1999.

log loss      of the interval that an event came in, or of none for as long as a row was seen
concordance   Harrell's: of two rows, how often the one with the earlier event has the higher risk;
              equal risks count half. A row that was seen until the time of an event outlived it;
              two events at one time are no pair
Brier score   (survival − whether it was so)², each row weighted by one over its chance not to be
              lost until then: Kaplan and Meier's estimate on the task's own scored rows, where
              events come before losses at one time. Integrated by trapezoids over the intervals,
              each counting the same, up to the last end that a row is known to have outlived

Times are counted in intervals: all that scores need is which came first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.families import expected_count

NORMAL = 1.959964
PAIRS_AT_ONCE = 1 << 22
SHOWN = 12
"""Tasks whose curves are kept."""


@dataclass(frozen=True)
class Ends:
    """What rows tell: when each ended, in intervals, and whether by an event."""

    time: np.ndarray
    event: np.ndarray

    @classmethod
    def of(cls, y: np.ndarray) -> Ends:
        return cls(np.abs(np.nan_to_num(y)).sum(axis=1), np.asarray((y < 0).any(axis=1)))


@dataclass(frozen=True)
class Curve:
    """Kaplan and Meier's estimate after each event, with a band, beside what was predicted."""

    time: np.ndarray
    survival: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """95 %, by Greenwood's variance of log(−log survival)."""
    predicted: np.ndarray
    """The mean over rows at the end of each interval."""
    last: float
    """Until when anybody was seen."""
    rows: int

    def to_json(self, cuts: Sequence[float]) -> dict[str, Any]:
        """With times in the units of the ends of intervals."""
        ends = np.append(0.0, cuts)
        when = np.interp([*self.time, self.last], np.arange(len(ends)), ends).tolist()
        plain = {name: getattr(self, name).tolist() for name in ("survival", "low", "high")}
        mean = self.predicted.tolist() if self.rows else None
        return {"rows": self.rows, "time": when[:-1], **plain, "last": when[-1], "predicted": mean}


def hazards(out: np.ndarray) -> np.ndarray:
    """Expected events of each interval [n, intervals], from raw outputs."""
    return expected_count(torch.from_numpy(out)).numpy()


def predicted(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Risk [n], the events that are expected in all intervals, and survival at their ends."""
    total = hazards(out).cumsum(axis=1)
    return total[:, -1], np.exp(-total)


def row_losses(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The log loss of each row."""
    hazard = hazards(out)
    lived = np.where(np.nan_to_num(y) > 0, np.nan_to_num(y), 0.0)
    small = hazard < 1e-8
    told = np.where(small, -out, -np.log(-np.expm1(-np.where(small, 1.0, hazard))))
    return (lived * hazard).sum(axis=1) + np.where(y < 0, told, 0.0).sum(axis=1)


def scores(
    out: np.ndarray, y: np.ndarray, offsets: np.ndarray, broken: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, float], list[Curve]]:
    """Concordance and Brier score of each task and of all, and the curves of the first few.

    Overall, all pairs inside tasks count the same, and all rows do.
    """
    (risk, survival), seen, tasks = predicted(out), Ends.of(y), len(offsets) - 1
    right, pairs, brier = np.zeros(tasks), np.zeros(tasks), np.full(tasks, math.nan)
    curves = []
    for task in range(tasks):
        span = slice(int(offsets[task]), int(offsets[task + 1]))
        own = Ends(seen.time[span], seen.event[span])
        if task < SHOWN:
            curves.append(curve(own, survival[span]))
        right[task], pairs[task] = concordant(risk[span], own)
        brier[task] = brier_score(survival[span], own)
        if broken[span].any():
            right[task], brier[task] = math.nan, math.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        concordance = np.where(pairs > 0, right / pairs, math.nan)
        together = float(right.sum() / pairs.sum()) if pairs.any() else math.nan
    rows, known = np.diff(offsets), ~np.isnan(brier)
    mean = float(np.average(brier[known], weights=rows[known])) if known.any() else math.nan
    per_task = {"concordance": concordance, "brier": brier}
    overall = {"concordance": together, "brier": mean}
    for name, found in per_task.items():
        there = found[~np.isnan(found)]
        overall[f"{name}_per_task"] = float(there.mean()) if len(there) else math.nan
    return per_task, overall, curves


def concordant(risk: np.ndarray, seen: Ends) -> tuple[float, int]:
    """How many pairs are in the right order (half for equal risks), of how many."""
    first = np.flatnonzero(seen.event)
    right, pairs = 0.0, 0
    for some in np.array_split(first, 1 + len(first) * len(risk) // PAIRS_AT_ONCE):
        time, own = seen.time[some, None], risk[some, None]
        later = (seen.time > time) | ((seen.time == time) & ~seen.event)
        right += float((later & (own > risk)).sum() + (later & (own == risk)).sum() / 2)
        pairs += int(later.sum())
    return right, pairs


def _ended(seen: Ends, by_event: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times at which rows ended in this way, how many did, and of how many that were still there.

    At one time, events come before losses.
    """
    when, many = np.unique(seen.time[seen.event == by_event], return_counts=True)
    there = (seen.time[:, None] >= when).sum(axis=0)
    if not by_event:
        there -= (seen.event[:, None] & (seen.time[:, None] == when)).sum(axis=0)
    return when, many, there


def brier_score(survival: np.ndarray, seen: Ends) -> float:
    """Integrated over the intervals; NaN where nobody outlived the first."""
    when, many, there = _ended(seen, by_event=False)
    kept = np.append(1.0, np.cumprod(1 - many / there))
    at_end, found = kept[np.searchsorted(when, seen.time)], [0.0]
    for number, said in enumerate(survival.T, 1):
        died = seen.event & (seen.time <= number)
        alive = ~died & (seen.time >= number)
        if not alive.any():
            break
        weight = np.where(died, at_end, kept[np.searchsorted(when, number)])
        wrong = np.where(died, said, 1 - said) ** 2 / weight
        found.append(float(np.where(died | alive, wrong, 0.0).mean()))
    if len(found) == 1:
        return math.nan
    return float(np.mean((np.array(found[1:]) + np.array(found[:-1])) / 2))


def curve(seen: Ends, survival: np.ndarray) -> Curve:
    """Of the rows of one task."""
    when, many, there = _ended(seen, by_event=True)
    found = np.cumprod(1 - many / there)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = NORMAL * np.sqrt(np.cumsum(many / (there * (there - many)))) / np.log(found)
        low, high = (found ** np.exp(side * reach) for side in (-1, 1))
    inside = (found > 0) & (found < 1)
    low, high = np.where(inside, low, 0.0), np.where(inside, high, 1.0)
    mean = survival.mean(axis=0) if len(survival) else np.full(survival.shape[1], math.nan)
    last = float(seen.time.max()) if len(seen.time) else 0.0
    return Curve(when, found, low, high, mean, last, len(survival))
