"""Means over the seeds of a grid's cells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from papers.pmtl.grid import PMTLCell


@dataclass(frozen=True)
class Mean:
    """Over the seeds of one cell."""

    set: str
    method: str
    mode: str
    epsilon: float
    seeds: int
    mean: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}" if self.seeds > 1 else f"{self.mean:.3f}"


@dataclass(frozen=True)
class Gap:
    """How far PMTL is ahead of another method, both fine-tuned alike, at the same ε."""

    mode: str
    epsilon: float
    mean: float
    sd: float
    """Of the difference of two runs; infinite where one run cannot tell."""

    @property
    def clear(self) -> bool:
        return abs(self.mean) > 2 * self.sd


@dataclass(frozen=True)
class NoiseCurve:
    """Over the seeds of one clip and one noise, during training."""

    clip: float
    sigma: float
    """Of the noise on the mean of a cohort; 0 without privacy."""
    points: tuple[tuple[int, float, float, float], ...]
    """Round, mean, sd, ε."""


def means(records: Iterable[PMTLCell]) -> list[Mean]:
    """In the order in which the cells first appear."""
    groups: dict[tuple[str, str, str, float], dict[int, float]] = {}
    for record in records:
        key = (record.set, record.method, record.mode, record.epsilon)
        groups.setdefault(key, {})[record.seed] = record.accuracy_per_task
    return [
        Mean(*key, len(values), statistics.mean(values.values()), _sd(list(values.values())))
        for key, values in groups.items()
    ]


def gaps(own: Iterable[Mean], other: str) -> list[Gap]:
    """PMTL against another method on one data set, for every mode and ε that both have.

    Training alone is the same for all ε.
    """
    found, score = [], {(m.method, m.mode, m.epsilon): m for m in own}
    for (method, mode, epsilon), mine in score.items():
        same = (other, "none", 0.0) if other == "alone" else (other, mode, epsilon)
        theirs = score.get(same)
        if method == "pmtl" and theirs is not None:
            sd = math.hypot(mine.sd, theirs.sd) if min(mine.seeds, theirs.seeds) > 1 else math.inf
            found.append(Gap(mode, epsilon, mine.mean - theirs.mean, sd))
    return found


def _sd(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def show_epsilon(epsilon: float) -> str:
    if epsilon == 0:
        return "0 (nothing released)"
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"
