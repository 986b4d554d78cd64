"""How a budget is spread over iterations, as MP-MTL §3.5 suggests it.

These are relative shares: the accountant composes the releases, exactly.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.errors import TacitError


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


def suggest(mu: float, lipschitz: float, accelerated: bool) -> tuple[float, float]:
    """Q of the schedule and β of the momentum for a μ-strongly convex, L-smooth loss."""
    if not 0 < mu < lipschitz:
        raise TacitError(f"mu={mu!r}, lipschitz={lipschitz!r}: 0 < mu < lipschitz is needed")
    if not accelerated:
        return (1 - mu / lipschitz) ** 0.4, 0.0
    root = math.sqrt(mu / lipschitz)
    return (1 - root) ** 0.2, (1 - root) / (1 + root)
