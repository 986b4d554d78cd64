"""How MP-MTL composes budgets of rounds and levels of privacy, as it prints them.

Equation (7) composes mechanisms that are ε_t-private with δ = 0. It only serves comparisons with
published figures: the Wishart noise of MP-MTL (which keeps no such promise, see `wishart`) and the
baselines DP-MTRL and DP-AGGR. Gaussian releases are composed by tacit's accountant, exactly.

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
    return float(np.sum(_check(epsilons, delta)))


def advanced(epsilons: Epsilons, delta: float) -> float:
    """Second branch: Σ ε_t (e^{ε_t} − 1)/(e^{ε_t} + 1) + √(2 Σ ε_t² log(1/δ))."""
    return _advanced(_check(epsilons, delta), lambda _: -math.log(delta))


def refined(epsilons: Epsilons, delta: float) -> float:
    """Third branch: the second with log(e + √(Σ ε_t²) / δ), better where Σ ε_t² is small."""
    return _advanced(
        _check(epsilons, delta), lambda squares: math.log(math.e + math.sqrt(squares) / delta)
    )


BRANCHES: tuple[Callable[[Epsilons, float], float], ...] = (simple, advanced, refined)


def composed(epsilons: Epsilons, delta: float) -> float:
    """ε of all rounds together at δ: the smallest of the three branches of (7)."""
    return min(branch(epsilons, delta) for branch in BRANCHES)


def largest_first(shares: Epsilons, epsilon: float, delta: float) -> float:
    """The largest ε₀ (to 1e-9, relative) with composed(ε₀ · shares) ≤ epsilon; never above."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise TacitError(f"epsilon={epsilon!r}: a positive number is needed")
    parts = _check(shares, delta)
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


def _check(epsilons: Epsilons, delta: float) -> np.ndarray:
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
