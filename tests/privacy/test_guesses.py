"""The bound from guesses holds for mechanisms whose every probability is known, and is not loose.

The mechanisms are written down here, not run: their tails are exact sums.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from tacit.privacy.guesses import SHARES, chance_of, guess, proved, told_apart

CANARIES = 60


def accuracy(epsilon: float) -> float:
    return math.exp(epsilon) / (1 + math.exp(epsilon))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 6.0])
def test_without_delta_it_is_the_tail_of_randomised_response(epsilon):
    q = accuracy(epsilon)
    for right in range(CANARIES + 1):
        terms = range(right, CANARIES + 1)
        tail = sum(math.comb(CANARIES, k) * q**k * (1 - q) ** (CANARIES - k) for k in terms)
        assert chance_of(CANARIES, CANARIES, right, epsilon, 0.0) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-2])
@pytest.mark.parametrize("told", [1, 2, 7, CANARIES])
def test_it_holds_where_some_coins_are_told_outright(epsilon, delta, told):
    """Randomised response that tells `told` random coins, with probability mδ/told: each one is
    told with probability δ, so it is (ε, δ)-private for each."""
    chance = CANARIES * delta / told
    if chance > 1:
        pytest.skip("coins would be told more often than always: there is no such mechanism")
    q = accuracy(epsilon)
    for right in range(CANARIES + 1):
        plain = stats.binom.sf(right - 1, CANARIES, q)
        with_help = stats.binom.sf(right - told - 1, CANARIES - told, q)
        exact = (1 - chance) * plain + chance * with_help
        assert exact <= chance_of(CANARIES, CANARIES, right, epsilon, delta) + 1e-12


def test_the_part_that_pays_for_delta_is_needed():
    """All coins told at once, with probability δ: without the second term this would be refuted."""
    epsilon, delta = 0.1, 1e-3
    tail = stats.binom.sf(CANARIES - 1, CANARIES, accuracy(epsilon))
    exact = (1 - delta) * tail + delta
    assert exact > 100 * chance_of(CANARIES, CANARIES, CANARIES, epsilon, 0.0)
    assert exact <= chance_of(CANARIES, CANARIES, CANARIES, epsilon, delta)


def simulated(epsilon: float, delta: float, runs: int, canaries: int, seed: int) -> np.ndarray:
    """Right guesses of all coins of randomised response with leaks, drawn one by one."""
    generator = np.random.default_rng(seed)
    told = generator.random((runs, canaries)) < delta
    truth = generator.random((runs, canaries)) < accuracy(epsilon)
    return (told | truth).sum(axis=1)


def test_a_simulation_is_refuted_no_more_often_than_the_confidence_allows():
    runs, canaries, epsilon, delta = 2000, 300, 1.0, 1e-3
    rights = simulated(epsilon, delta, runs, canaries, 0)
    bounds = {
        right: proved(canaries, canaries, right, delta, 0.95) for right in set(rights.tolist())
    }
    found = np.array([bounds[right] for right in rights.tolist()])
    assert (found > epsilon).mean() <= 0.05
    assert (found > 0.8 * epsilon).mean() > 0.1  # and it is not that low for want of trying
    assert np.median(found) > 0.6 * epsilon


def test_the_bound_is_where_the_chance_meets_the_doubt():
    bound = proved(1000, 1000, 800, 1e-5, 0.95)
    assert chance_of(1000, 1000, 800, bound, 1e-5) <= 0.05
    assert chance_of(1000, 1000, 800, bound + 2e-4, 1e-5) > 0.05
    assert bound < math.log(0.8 / 0.2)
    assert proved(1000, 1000, 500, 1e-5) == proved(0, 0, 0, 1e-5) == 0.0
    assert proved(1000, 1000, 1000, 0.0, 0.95) == pytest.approx(
        -math.log(0.05 ** (-1 / 1000) - 1), abs=2e-4
    )  # q^1000 = 0.05


def test_only_the_most_certain_are_guessed_where_that_proves_more():
    generator = np.random.default_rng(0)
    coins = generator.random(1000) < 0.5
    noise = generator.standard_normal(1000)
    scores = np.where(np.arange(1000) < 100, np.where(coins, 8.0, -8.0), 0.1 * noise)
    found = guess(scores, coins, 1e-6, 0.95)
    assert (found.canaries, found.guesses, found.right) == (1000, 100, 100)
    each = 1 - 0.05 / len(SHARES)
    assert found.epsilon_lower == proved(1000, 100, 100, 1e-6, each) > 2.5
    blind = guess(noise, coins, 1e-6, 0.95)
    assert blind.epsilon_lower < 0.5


def gaussians(shift: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log odds of runs with a Gaussian release that a coin shifts."""
    generator = np.random.default_rng(seed)
    coins = generator.random(runs) < 0.5
    return shift * (generator.standard_normal(runs) + shift * coins - shift / 2), coins


def epsilon_of(shift: float, delta: float) -> float:
    """The exact ε of a Gaussian release (Balle & Wang 2018, Theorem 8)."""
    normal = stats.norm.cdf

    def needed(epsilon: float) -> float:
        away = epsilon / shift
        return normal(shift / 2 - away) - math.exp(epsilon) * normal(-shift / 2 - away)

    return float(optimize.brentq(lambda epsilon: needed(epsilon) - delta, 1e-6, 50))


@pytest.mark.parametrize("shift", [0.4, 1.2, 2.2])
def test_independent_runs_prove_most_of_a_gaussians_epsilon_and_never_more(shift):
    exact = epsilon_of(shift, 1e-3)
    found = np.array([told_apart(*gaussians(shift, 20_000, seed), 1e-3) for seed in range(100)])
    assert (found > exact).mean() <= 0.02
    assert np.quantile(found, 0.05) > 0.5 * exact


def test_independent_runs_of_randomised_response_are_refuted_as_often_as_is_allowed():
    """It keeps ε exactly, with scores of two values: the bound has nothing to spare but δ."""
    epsilon, delta, refuted = 1.0, 1e-3, 0
    for seed in range(400):
        generator = np.random.default_rng(seed)
        coins = generator.random(2000) < 0.5
        said = np.where(generator.random(2000) < accuracy(epsilon), coins, ~coins)
        leaked = generator.random(2000) < delta
        score = np.where(leaked, np.where(coins, 9.0, -9.0), np.where(said, epsilon, -epsilon))
        refuted += told_apart(score, coins, delta) > epsilon
    assert 0 < refuted <= 0.05 * 400 + 2 * math.sqrt(400 * 0.05 * 0.95)


def test_what_delta_may_tell_is_not_counted_as_proof():
    """Coins are told outright with probability δ and hidden otherwise: that is (0, δ)."""
    generator = np.random.default_rng(0)
    coins, delta = generator.random(20_000) < 0.5, 0.02
    told = generator.random(20_000) < delta
    scores = np.where(told, np.where(coins, 9.0, -9.0), generator.standard_normal(20_000))
    assert told_apart(scores, coins, delta) < 0.1
    assert told_apart(scores, coins, 1e-6) > 3
    assert told_apart(scores, coins[::-1], 1e-6) < 0.5
