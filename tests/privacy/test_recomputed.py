"""Every offered pair of sampler and neighbours, recomputed without dp-accounting.

The observer is all other tasks together, who know their own participation. Plain Gaussian releases
have a closed form (Balle & Wang 2018, Theorem 8). For secret cohorts the privacy loss L of one
release is that of two Gaussian mixtures on a line, and for T releases

    δ(ε) = E (1 − e^(ε − ΣL))₊ = 1/(2πi) ∫ M(s)^T e^(−sε) / (s (s + 1)) ds,    M(s) = E e^(sL),

along any line Re s = c > 0: e^(sl) / (s (s + 1)) is the two-sided Laplace transform of
(1 − e^(ε − l))₊ in ε. Both M(s) and the line integral are sums over an even grid of smooth
functions that vanish at its ends, so their error falls exponentially with the spacing. It is
controlled by computing ε along two lines: they agree only if both are right.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tacit.privacy import Everyone, InTurn, Poisson, Release, spent

MOVED = {"add-remove": 1, "replace": 2}
"""How far one task moves a sum, in clips."""


def plain(precision: float, delta: float, moved: float) -> float:
    """ε of Gaussian releases that all move together; `precision` is Σ 1/z² over them."""
    mu = moved * math.sqrt(precision)

    def excess(epsilon: float) -> float:
        rest = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - rest - delta

    return brentq(excess, 0, mu**2 + 20 * mu + 1, xtol=1e-12) if excess(0) > 0 else 0.0


def log_normal(x: np.ndarray, mean: float, z: float) -> np.ndarray:
    return -(((x - mean) / z) ** 2) / 2 - math.log(z * math.sqrt(2 * math.pi))


def log_mixed(x: np.ndarray, mean: float, z: float, rate: float) -> np.ndarray:
    """The task is in the cohort with probability `rate`, and nobody knows."""
    absent = math.log1p(-rate) + log_normal(x, 0, z)
    return np.logaddexp(absent, math.log(rate) + log_normal(x, mean, z))


def secret(rate: float, z: float, releases: int, delta: float, neighbours: str, shift=1.0) -> float:
    """ε of cohorts that each task joins with probability `rate`, unknown to the others."""
    ends = 12 * z + 60  # tilting by c moves the centre by c
    x = np.linspace(-ends, ends, 2 * math.ceil(ends / (z / 30)) + 1)
    with_it = log_mixed(x, 1, z, rate)
    if neighbours == "replace":  # +1 against −1; mirrored, the other way round is the same
        return along(x, with_it, log_mixed(x, -1, z, rate), releases, delta, shift)
    without = log_normal(x, 0, z)
    both = ((with_it, without), (without, with_it))
    return max(along(x, *pair, releases, delta, shift) for pair in both)


def along(
    x: np.ndarray, p: np.ndarray, q: np.ndarray, releases: int, delta: float, shift: float
) -> float:
    """ε at δ from the log-densities of one release, on a line `shift` times the best one."""
    loss, step = p - q, x[1] - x[0]

    def weights(c: float) -> tuple[float, np.ndarray]:
        top = float((p + c * loss).max())
        return top, np.exp(p + c * loss - top) * step

    def bound(c: float) -> float:  # Chernoff: an upper bound for ε, smallest on the best line
        top, weight = weights(c)
        return (releases * (top + math.log(weight.sum())) - math.log(delta * (c + 1))) / c

    candidates = np.geomspace(0.2, 40, 60)
    c = float(candidates[np.argmin([bound(c) for c in candidates])]) * shift
    top, weight = weights(c)
    assert weight[[0, -1]].max() < 1e-20 * weight.max()
    mean = (weight * loss).sum() / weight.sum()
    spread = math.sqrt(releases * (weight * (loss - mean) ** 2).sum() / weight.sum())
    # Sums over a grid repeat with this period; what they repeat must be negligible.
    period = (math.log(1 / delta) + 30) / c + 12 * spread
    ends, smallest = 40 / spread, math.inf
    while smallest > 1e-13:
        ends *= 1.5
        t = (np.arange(math.ceil(ends * period / math.pi)) + 0.5) * ends
        t /= len(t)
        kept = weight > 1e-20 * weight.max()
        parts = np.array_split(t, 1 + len(t) // 256)
        each = [np.exp(1j * np.outer(part, loss[kept])) @ weight[kept] for part in parts]
        s = c + 1j * t
        on_line = releases * np.log(np.concatenate(each)) - np.log(s * (s + 1))
        smallest = math.exp(on_line[-1].real - on_line[0].real)

    def excess(epsilon: float) -> float:
        terms = np.exp(on_line + releases * top - s * epsilon)
        return float(terms.real.sum()) * ends / len(t) / math.pi - delta

    return brentq(excess, 0, bound(c) + 1, xtol=1e-12) if excess(0) > 0 else 0.0


def most_often(size: int, of: int, rounds: int) -> int:
    """In how many rounds that task is which is in most, by counting."""
    return max(
        sum((place - round * size) % of < size for round in range(rounds)) for place in range(of)
    )


def in_turn(sampler: InTurn, noise: float, rounds: int) -> Counter[Release]:
    return Counter(Release(sampler.at(round), noise) for round in range(rounds))


@pytest.mark.parametrize("neighbours", MOVED)
@pytest.mark.parametrize(
    ("noise", "rounds", "delta"),
    [(1.5, 1, 1e-3), (3.0, 7, 1e-6), (8.0, 50, 1e-3), (20.0, 1000, 1e-5), (200.0, 10, 1e-5)],
)
def test_everyone(noise, rounds, delta, neighbours):
    found = spent({Release(Everyone(), noise): rounds}, delta, neighbours).epsilon
    moved = MOVED[neighbours]
    assert found == pytest.approx(plain(rounds / noise**2, delta, moved), abs=1e-6)
    # Teeth: the factor 2 and the number of rounds show.
    assert abs(found - plain(rounds / noise**2, delta, 3 - moved)) > 1e-2
    assert abs(found - plain(rounds / 2 / noise**2, delta, moved)) > 1e-2


@pytest.mark.parametrize("neighbours", MOVED)
@pytest.mark.parametrize(
    ("size", "of", "noise", "rounds", "delta"),
    [
        (20, 1000, 3.0, 300, 1e-4),  # 6 times
        (20, 1000, 3.0, 301, 1e-4),  # the first ones are in a seventh time
        (30, 100, 8.0, 50, 1e-3),
        (7, 10, 15.0, 500, 1e-5),
        (3, 1000, 1.0, 1, 1e-4),
        (9, 9, 8.0, 50, 1e-3),
    ],
)
def test_in_turn(size, of, noise, rounds, delta, neighbours):
    found = spent(in_turn(InTurn(size, of), noise, rounds), delta, neighbours).epsilon
    held, moved = most_often(size, of, rounds), MOVED[neighbours]
    assert held == math.ceil(rounds * size / of)
    assert found == pytest.approx(plain(held / noise**2, delta, moved), abs=1e-6)
    # Teeth: amplification would be far below, at the same number of releases.
    amplified = spent({Release(Poisson(size / of), noise): rounds}, delta, neighbours).epsilon
    assert size == of or amplified < found - 1e-2


SECRET = [
    (0.3, 2.0, 3, 1e-3),
    (0.5, 1.0, 4, 1e-6),
    (0.3, 8.0, 50, 1e-3),
    (0.02, 2.0, 300, 1e-5),
    (0.49, 10.0, 1000, 5e-3),
    (0.1, 30.0, 10_000, 1e-5),
]


@pytest.mark.parametrize("neighbours", MOVED)
@pytest.mark.parametrize(("rate", "noise", "rounds", "delta"), SECRET)
def test_poisson(rate, noise, rounds, delta, neighbours):
    found = spent({Release(Poisson(rate), noise): rounds}, delta, neighbours).epsilon
    true = secret(rate, noise, rounds, delta, neighbours)
    again = secret(rate, noise, rounds, delta, neighbours, shift=1.3)
    assert again == pytest.approx(true, abs=1e-9)
    above = 1e-6 + 2e-8 * max(0, rounds - 50)
    assert true - 1e-9 <= found <= true + above
    # Teeth: the neighbours and the number of rounds show.
    other = "replace" if neighbours == "add-remove" else "add-remove"
    assert abs(found - secret(rate, noise, rounds, delta, other)) > 1e-2
    assert abs(found - secret(rate, noise, 2 * rounds, delta, neighbours)) > 1e-2


@pytest.mark.parametrize("neighbours", MOVED)
@pytest.mark.parametrize(("rate", "noise", "delta"), [(0.3, 1.5, 1e-3), (0.05, 0.8, 1e-5)])
def test_poisson_once(rate, noise, delta, neighbours):
    """One release: δ(ε) = P(L > ε) − e^ε Q(L > ε), with L > ε on one side of a point."""
    means = (1.0, 0.0) if neighbours == "add-remove" else (1.0, -1.0)

    def beyond(point: float, mean: float) -> tuple[float, float]:
        """Probability of being above and below the point."""
        here, there = (point - mean) / noise, point / noise
        above = rate * norm.sf(here) + (1 - rate) * norm.sf(there)
        return float(above), float(rate * norm.cdf(here) + (1 - rate) * norm.cdf(there))

    def loss(point: float) -> float:
        x = np.array([point])
        return float((log_mixed(x, means[0], noise, rate) - log_mixed(x, means[1], noise, rate))[0])

    def excess(point: float, side: int) -> float:
        p, q = (beyond(point, mean)[side] for mean in means)
        p, q = (q, p) if side else (p, q)
        return p - math.exp(abs(loss(point))) * q - delta

    points = [(brentq(excess, 0.5, 40, (0,), xtol=1e-13), 0)]
    if excess(-40, 1) * excess(0.5, 1) < 0:  # the task is missed, where it is not there
        points.append((brentq(excess, -40, 0.5, (1,), xtol=1e-13), 1))
    true = max(abs(loss(point)) for point, _ in points)
    found = spent({Release(Poisson(rate), noise): 1}, delta, neighbours).epsilon
    assert found == pytest.approx(true, abs=1e-6)


@pytest.mark.parametrize("neighbours", MOVED)
def test_mixed_noise_in_turn_is_that_of_the_task_that_pays_most(neighbours):
    size, of, delta = 3, 8, 1e-4
    noises = [4.0 + (round * 5) % 7 for round in range(20)]
    sampler = InTurn(size, of)
    booked = Counter(Release(sampler.at(t), noise) for t, noise in enumerate(noises))
    most = max(
        sum(z**-2 for t, z in enumerate(noises) if (place - t * size) % of < size)
        for place in range(of)
    )
    found = spent(booked, delta, neighbours).epsilon
    assert found == pytest.approx(plain(most, delta, MOVED[neighbours]), abs=1e-6)


@pytest.mark.parametrize("neighbours", MOVED)
def test_repeated_rounds_and_other_orders_are_added(neighbours):
    """What happens twice is paid twice: by those in the round, and in each order by its unluckiest.

    Counting releases would not do: 11 rounds hold a task once, and a round that a crash repeated
    holds its members twice.
    """
    sampler, noise, delta = InTurn(20, 1000), 3.0, 1e-4
    once = in_turn(sampler, noise, 10)
    twice = once + Counter([Release(sampler.at(4), noise)])
    later = Counter(Release(sampler.at(t, key=7), noise) for t in range(10, 20))
    two_runs = once + later
    unknown = Counter(Release(s, noise) for s in (sampler, *map(sampler.at, range(10, 20))))
    everyone = once + Counter([Release(Everyone(), noise)])
    costs = {1: [once], 2: [twice, two_runs, unknown, everyone]}
    for held, booked in itertools.chain(*([(n, one) for one in all] for n, all in costs.items())):
        found = spent(booked, delta, neighbours).epsilon
        assert found == pytest.approx(plain(held / noise**2, delta, MOVED[neighbours]), abs=1e-6)
