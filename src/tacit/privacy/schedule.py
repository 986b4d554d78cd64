"""Budget schedules over iterations, as MP-MTL §3.5 prints them.

Equation (7) composes mechanisms that are ε_t-private with δ = 0. Here it only serves comparisons
with published figures: the Wishart noise of MP-MTL (which keeps no such promise, see `covariance`)
and the baselines DP-MTRL and DP-AGGR. Gaussian releases are composed by the accountant, exactly.

The three branches are the composition theorem of Kairouz, Oh and Viswanath (2015), Theorem 3.5. All
grow when all ε_t are multiplied by a number above one, and so does their minimum: the largest first
budget is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit.errors import TacitError

Epsilons = Sequence[float] | np.ndarray


def simple(epsilons: Epsilons, delta: float) -> float:
    """First branch of (7): Σ ε_t, whatever δ is."""
    return float(np.sum(_checked(epsilons, delta)))


def advanced(epsilons: Epsilons, delta: float) -> float:
    """Second branch: Σ ε_t (e^{ε_t} − 1)/(e^{ε_t} + 1) + √(2 Σ ε_t² log(1/δ))."""
    return _advanced(_checked(epsilons, delta), lambda _: -math.log(delta))


def refined(epsilons: Epsilons, delta: float) -> float:
    """Third branch: the second with log(e + √(Σ ε_t²) / δ), better where Σ ε_t² is small."""
    return _advanced(
        _checked(epsilons, delta), lambda squares: math.log(math.e + math.sqrt(squares) / delta)
    )


BRANCHES: tuple[Callable[[Epsilons, float], float], ...] = (simple, advanced, refined)


def composed(epsilons: Epsilons, delta: float) -> float:
    """ε of all rounds together at δ: the smallest of the three branches of (7)."""
    return min(branch(epsilons, delta) for branch in BRANCHES)


def shares(rounds: int, alpha: float = 0.0, *, q: float | None = None) -> np.ndarray:
    """ε_t / ε₀ for t = 1 … T: t^α, or Q^{−t} where `q` is given.

    MP-MTL: α = 0 for a convex loss, 2/5 with acceleration; `suggested` has Q for a strongly convex
    one. Later rounds get more, because errors of early rounds are forgotten.
    """
    if rounds < 1:
        raise TacitError(f"rounds={rounds!r}: at least one is needed")
    if q is None:
        return np.arange(1.0, rounds + 1) ** alpha
    if alpha != 0:
        raise TacitError(f"alpha={alpha:g} and q={q:g}: give one of the two")
    if not 0 < q < math.inf:
        raise TacitError(f"q={q!r}: a positive number is needed (below 1, budgets grow)")
    grown = abs(math.log(q)) * rounds
    if grown > 300:
        raise TacitError(
            f"q={q:g} over {rounds} rounds makes budgets differ by e^{grown:.0f}: use fewer rounds"
        )
    return q ** -np.arange(1.0, rounds + 1)


def largest_first(shares: Epsilons, epsilon: float, delta: float) -> float:
    """The largest ε₀ (to 1e-9, relative) with composed(ε₀ · shares) ≤ epsilon; never above."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise TacitError(f"epsilon={epsilon!r}: a positive number is needed")
    parts = _checked(shares, delta)
    if not parts.any():
        raise TacitError("no round has a share of the budget: give at least one that is not zero")
    # Half of what the plain sum allows is within the budget; from there upwards until it is not.
    low = high = epsilon / float(parts.sum()) / 2
    while composed(high * parts, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-9 * low:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if composed(middle * parts, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def suggested(mu: float, lipschitz: float, accelerated: bool) -> tuple[float, float]:
    """Q of the schedule and β of the momentum for a μ-strongly convex, L-smooth loss."""
    if not 0 < mu < lipschitz:
        raise TacitError(f"mu={mu!r}, lipschitz={lipschitz!r}: 0 < mu < lipschitz is needed")
    if not accelerated:
        return (1 - mu / lipschitz) ** 0.4, 0.0
    root = math.sqrt(mu / lipschitz)
    return (1 - root) ** 0.2, (1 - root) / (1 + root)


def data_level(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """(ε/n, δ/(n e^ε)): privacy of one row that is worth (ε, δ) for a task with n rows.

    MP-MTL, Proposition 3, by group privacy: n rows together are (nε', n e^{nε'} δ')-private.
    """
    _check_level(epsilon, delta, rows)
    return epsilon / rows, delta * math.exp(-epsilon) / rows


def task_level(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """(nε', n e^{nε'} δ'): what (ε', δ') for one row is worth for a task; inverts `data_level`."""
    _check_level(epsilon, delta, rows)
    return rows * epsilon, rows * math.exp(rows * epsilon) * delta


def _advanced(epsilons: np.ndarray, logarithm: Callable[[float], float]) -> float:
    squares = float(np.sum(epsilons**2))
    drift = float(np.sum(epsilons * np.tanh(epsilons / 2)))  # (e^ε − 1)/(e^ε + 1) = tanh(ε/2)
    return drift + math.sqrt(2 * squares * logarithm(squares))


def _checked(epsilons: Epsilons, delta: float) -> np.ndarray:
    values = np.asarray(epsilons, dtype=np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise TacitError("budgets of rounds: numbers that are not negative are needed")
    if not 0 < delta < 1:
        raise TacitError(f"delta={delta!r}: a probability between 0 and 1 is needed")
    return values


def _check_level(epsilon: float, delta: float, rows: int) -> None:
    if not (epsilon >= 0 and 0 <= delta <= 1 and rows >= 1):
        raise TacitError(
            f"epsilon={epsilon!r}, delta={delta!r}, rows={rows!r}: ε ≥ 0, δ from 0 to 1 and at "
            "least one row are needed"
        )
