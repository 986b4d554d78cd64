"""How much noise a promised ε needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from tacit.errors import TacitError
from tacit.privacy.accounting import Release, spent
from tacit.privacy.sampling import Everyone, Neighbours, Sampler


def noise_for(
    epsilon: float,
    delta: float,
    sampler: Sampler,
    releases: int,
    neighbours: Neighbours,
    *,
    weights: Sequence[float] | None = None,
    replaced: float = 2.0,
    again: int = 0,
) -> float:
    """The smallest noise multiplier (to 0.01 %) with which `releases` cost at most `epsilon`.

    With `weights`, one for each release, it is the noise of weight one: a release of weight w has
    noise/w. The first release is that of the first round. `again` of them, whichever they are, may
    be made twice over the same cohort, which is then no secret.
    """
    shares = Counter(
        (sampler.at(round), weight)
        for round, weight in enumerate([1.0] * releases if weights is None else weights)
    )
    if again:
        shares[Everyone(), max(weight for _, weight in shares)] += again

    def cost(noise: float) -> float:
        each = {Release(one, noise / weight, replaced): n for (one, weight), n in shares.items()}
        return spent(each, delta, neighbours).epsilon

    return smallest_noise(cost, epsilon, delta, releases + again)


def smallest_noise(
    cost: Callable[[float], float], epsilon: float, delta: float, releases: int
) -> float:
    """The smallest noise (to 0.01 %) at which `cost`, an ε that falls with it, is within budget."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise TacitError(f"epsilon={epsilon!r}: a positive number is needed")
    # ε falls with noise: bracket first.
    low = high = _guess(epsilon, delta, releases)
    while cost(high) > epsilon:
        low, high = high, 1.5 * high
        if high > 1e9:
            raise TacitError(
                f"no noise reaches epsilon={epsilon:g} at delta={delta:g}: raise delta or epsilon"
            )
    while low == high or (low > 1e-2 and cost(low) <= epsilon):
        low, high = low / 1.5, low
    left, right = cost(low), cost(high)
    while high / low > 1.0001:
        middle = low * (high / low) ** _aim(left, right, epsilon)
        value = cost(middle)
        if value <= epsilon:
            high, right = middle, value
        else:
            low, left = middle, value
    return high


def _guess(epsilon: float, delta: float, releases: int) -> float:
    """Where the search begins: the classical noise of a Gaussian. It may end anywhere else."""
    return math.sqrt(2 * releases * math.log(1.25 / delta)) / epsilon


def _aim(left: float, right: float, epsilon: float) -> float:
    """Where in the bracket to look next: log ε is nearly linear there in log noise.

    False position between the costs of both ends, kept off the ends.
    """
    if not math.isfinite(left):
        return 0.5
    above, below = math.log(left / epsilon), math.log(max(right, 1e-12) / epsilon)
    return min(0.9, max(0.1, above / (above - below)))
