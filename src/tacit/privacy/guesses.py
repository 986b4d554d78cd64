"""What right guesses of fair coins prove about ε: many coins in one run, or one in each of many.

**One run** (`guess`): canaries are put in by fair coins, and guessed from all that was published.

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
outputs, of probability δ for each coin, about which nothing is promised: all of these coins could
be told at once. So m must stay well below 1/δ, or nothing can be proved.

**Many runs** (`told_apart`): one coin in each of many independent runs decides between two
neighbours. The observer guesses where the score is above one threshold or below another, and is
silent between.

**Claim.** Let g be the probability of a guess, and p that it is right. Then ε is at least
ln((p − δ/g) / (1 − p)).

**Proof.** Let a₁ and b₁ be the probabilities of a score above the upper threshold on either side of
the coin, a₀ and b₀ those of one below the lower, each with the right side first. By (ε, δ), a₁ ≤
e^ε b₁ + δ and a₀ ≤ e^ε b₀ + δ. The coin is fair: gp = (a₁ + a₀)/2 and g(1 − p) = (b₁ + b₀)/2. So
gp ≤ e^ε g(1 − p) + δ. ∎ Runs are independent, so given how many guesses there are, those that are
right are binomial: p and g have Clopper-Pearson bounds from below, and the bound grows with both.
A first part of the runs chooses the thresholds, the rest is counted. Here nothing is lost to a δ
that tells many coins at once, and one test is made where two rates would need two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

PILOT = 0.1
"""Part of the independent runs that chooses the thresholds; the rest is counted."""
OF_DOUBT = 0.1
"""Part of the doubt that goes to how often a guess is made."""
STEPS = 61
"""Thresholds that are tried on each side; most of them far out."""
TINY = 1e-9
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


def told_apart(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound on ε from independent runs, each on one of two neighbours by a fair coin.

    `scores` are log odds of the coin, if the mechanism does what it should; a line fitted to the
    pilot makes odds of them in any case. Were these true, a guess would be right with probability
    1 / (1 + e^−|odds|), and thresholds are chosen by what that would prove. The bound itself needs
    nothing to be true but the coins.
    """
    first = int(PILOT * len(scores))
    scores = _odds(scores, scores[:first], coins[:first])
    tried, counted = np.sort(scores[:first]), len(scores) - first
    steps = np.unique(np.quantile(tried, special.expit(np.linspace(-6, 6, STEPS))))
    low, high = np.meshgrid([-np.inf, *steps], [*steps, np.inf])
    low, high = low[low < high], high[low < high]
    above, below = np.searchsorted(tried, high), np.searchsorted(tried, low, side="right")
    likely = np.concatenate([[0.0], np.cumsum(special.expit(tried))])
    right = likely[-1] - likely[above] + below - likely[below]
    wrong = first - above + below - right
    more = counted / first
    best = int(_bound(more * right, more * wrong, counted, delta, confidence).argmax())

    rest, side = scores[first:], coins[first:]
    above, below = rest >= high[best], rest <= low[best]
    hits, misses = (above & side) | (below & ~side), (above & ~side) | (below & side)
    return max(0.0, float(_bound(hits.sum(), misses.sum(), counted, delta, confidence)))


def _odds(scores: np.ndarray, tried: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """Scores as log odds: a regression on some of them, whose coins are known."""
    centre, spread = float(np.median(tried)), float(tried.std())
    if not spread or coins.all() or not coins.any():
        return scores
    fitted = LogisticRegression().fit(((tried - centre) / spread)[:, None], coins)
    return fitted.decision_function(((scores - centre) / spread)[:, None])


def _bound(
    right: np.ndarray, wrong: np.ndarray, runs: int, delta: float, confidence: float
) -> np.ndarray:
    """The claim above, with p and g at the lower ends of their confidence; −∞ if it is empty."""
    doubt, guesses = 1 - confidence, right + wrong
    p = stats.beta.ppf((1 - OF_DOUBT) * doubt, np.maximum(right, TINY), wrong + 1)
    g = stats.beta.ppf(OF_DOUBT * doubt, np.maximum(guesses, TINY), runs - guesses + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p * g > delta, np.log(np.maximum(p - delta / g, 0.0) / (1 - p)), -np.inf)
