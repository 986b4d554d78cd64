"""Attack a mechanism: what an observer's success proves about its ε, from below.

A promise of (ε, δ) bounds every test between two neighbours: true positives ≤ e^ε · false positives
+ δ. A test that does better refutes the promise. `lower_bound` turns an observer's scores into the
largest ε they refute with confidence; a correct mechanism stays above it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def lower_bound(
    present: np.ndarray, absent: np.ndarray, delta: float, confidence: float = 0.999
) -> float:
    """A lower bound on ε, valid with the given confidence.

    `present` and `absent` are an observer's scores in repeated runs on two neighbours. The first
    half of each chooses the threshold, the second half is counted, with Clopper-Pearson intervals.
    Both tails and both roles are tried when choosing; only one test is counted, so the confidence
    is not diluted.
    """
    half_present, half_absent = len(present) // 2, len(absent) // 2
    pilot = (present[:half_present], absent[:half_absent])
    count = (present[half_present:], absent[half_absent:])
    best = max(
        (
            (_refuted(*_counts(pilot, threshold, sign, swap), delta, 0.9), threshold, sign, swap)
            for threshold in np.quantile(np.concatenate(pilot), np.linspace(0.001, 0.999, 200))
            for sign in (1, -1)
            for swap in (False, True)
        ),
        key=lambda found: found[0],
    )
    return max(0.0, _refuted(*_counts(count, *best[1:]), delta, confidence))


def _counts(
    scores: tuple[np.ndarray, np.ndarray], threshold: float, sign: int, swap: bool
) -> tuple[int, int, int, int]:
    one, other = scores[::-1] if swap else scores
    hits, alarms = (int((sign * (side - threshold) > 0).sum()) for side in (one, other))
    return hits, len(one), alarms, len(other)


def _refuted(
    hits: int, runs: int, alarms: int, others: int, delta: float, confidence: float
) -> float:
    side = (1 - confidence) / 2
    least = stats.beta.ppf(side, hits, runs - hits + 1) if hits else 0.0
    most = stats.beta.ppf(1 - side, alarms + 1, others - alarms) if alarms < others else 1.0
    return math.log((least - delta) / most) if least > delta else -math.inf
