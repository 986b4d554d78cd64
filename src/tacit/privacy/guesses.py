"""What many guesses in one run prove about its ε: canaries put in by fair coins, and found again.

Thomas Steinke, Milad Nasr, Matthew Jagielski. "Privacy Auditing with One (1) Training Run."
NeurIPS 2023, Theorem 5.2 (its proof is in their Appendix B).

| paper                                                | here             |
|------------------------------------------------------|------------------|
| m canaries, r guesses, v of them right               | `canaries`, `guesses`, `right` |
| Theorem 5.2: P[right ≥ v] ≤ β + 2mδα                 | `chance_of`      |
| the largest ε that this refutes                      | `proved`         |
| abstain but for the most certain (their §5.1)        | `guess`          |

**Theorem.** Let a mechanism be (ε, δ)-private with respect to each of m fair coins, and let an
observer of its output guess r of them. Let W be binomial with r trials of chance 1 / (1 + e^−ε).
Then, however the coins are used and whatever the guesses have to do with each other,

    P[v or more are right] ≤ P[W ≥ v] + 2mδ · max over i ≥ 1 of P[v > W ≥ v − i] / i.

The first term is what randomised response would do for each coin by itself; the second pays for the
outputs, of probability δ for each coin, about which nothing is promised. Several runs with coins of
their own are one mechanism with all the coins: each coin touches one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Of the canaries that are guessed; each of these is tried, at its part of the doubt."""
PRECISE = 1e-4
"""To which ε is searched."""


@dataclass(frozen=True)
class Guessed:
    """The guesses that prove most."""

    canaries: int
    guesses: int
    right: int
    epsilon_lower: float


def chance_of(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses under (ε, δ): the theorem's right side."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    by_luck = float(stats.binom.sf(right - 1, guesses, accuracy))
    if right == 0 or delta == 0:
        return min(1.0, by_luck)
    # P[v > W ≥ v − i] for i = 1 … v: sums over the numbers just below v
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, accuracy))
    worst = float((below / np.arange(1, right + 1)).max())
    return min(1.0, by_luck + 2 * canaries * delta * worst)


def proved(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> float:
    """The largest ε (rounded down) that so many right guesses refute; 0 if they refute none."""
    doubt = 1 - confidence

    def refuted(epsilon: float) -> bool:
        return chance_of(canaries, guesses, right, epsilon, delta) <= doubt

    if not guesses or not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):  # ends: at a large ε every guess may be right
        low, high = high, 2 * high
    while high - low > PRECISE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guess(scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float) -> Guessed:
    """Guess the coins whose scores (log odds of *in* against *out*) are the most certain.

    How many are guessed is decided by what they prove, so each number that is tried pays a part of
    the doubt.
    """
    certain = np.argsort(-np.abs(scores), kind="stable")
    correct = (scores > 0) == coins
    each = 1 - (1 - confidence) / len(SHARES)
    tried = []
    for share in SHARES:
        taken = certain[: max(1, round(share * len(scores)))]
        right = int(correct[taken].sum())
        bound = proved(len(scores), len(taken), right, delta, each)
        tried.append(Guessed(len(scores), len(taken), right, bound))
    return max(tried, key=lambda found: (found.epsilon_lower, found.guesses))
