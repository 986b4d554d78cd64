"""What all other tasks together prove about one, who know which of them took part.

1000 tasks, cohorts of 20, 300 rounds, ε = 1 promised at δ = 1e-4. The worst task there is sends a
whole clip in one direction, or in the other. Only the sums along this direction tell it, and the
others' contributions, which they know, are subtracted from them.
"""

from __future__ import annotations

import logging

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from papers.common.refute import lower_bound
from tacit.privacy import InTurn, Poisson, noise_for
from tacit.randomness import Randomness

TASKS, SIZE, ROUNDS, DELTA = 1000, 20, 300, 1e-4
TRIALS = 400_000


def knowing(held: np.ndarray, noise: float, generator: np.random.Generator) -> list[np.ndarray]:
    """Log-likelihood ratios of one who knows in how many rounds the task is: sums over these."""
    ratio = 2 / noise**2
    return [
        ratio * (sign * held + noise * np.sqrt(held) * generator.standard_normal(len(held)))
        for sign in (1, -1)
    ]


def guessing(noise: float, generator: np.random.Generator, trials: int) -> list[np.ndarray]:
    """The same of one who knows all but whether the task was drawn: the best test there is."""
    rate, found = SIZE / TASKS, []
    for sign in (1, -1):
        score = np.zeros(trials)
        for _ in range(ROUNDS):
            seen = sign * (generator.random(trials) < rate)
            seen = seen + noise * generator.standard_normal(trials)
            up, down = (np.exp((way * 2 * seen - 1) / (2 * noise**2)) for way in (1, -1))
            score += np.log1p(rate * (up - 1)) - np.log1p(rate * (down - 1))
        found.append(score)
    return found


def amplified_noise(epsilon: float) -> float:
    """What ε was said to need when a random cohort of exact size counted as secret."""
    logging.getLogger("absl").setLevel(logging.ERROR)

    def cost(noise: float) -> float:
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
        gaussian = dp.GaussianDpEvent(noise / 2)
        event = dp.SampledWithoutReplacementDpEvent(TASKS, SIZE, gaussian)
        accountant.compose(event, ROUNDS)
        return accountant.get_epsilon(DELTA)

    return brentq(lambda noise: cost(noise) - epsilon, 1, 50, xtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("promised", "proved"), [(1.0, 2.0), (4.0, 6.0)])
def test_cohorts_of_exact_size_hide_nobody(promised, proved):
    """The others count themselves: if one of the cohort is missing, it is the task."""
    generator = np.random.default_rng(0)
    held = generator.binomial(ROUNDS, SIZE / TASKS, TRIALS)  # drawn afresh in every round
    scores = knowing(held, amplified_noise(promised), generator)
    assert lower_bound(*scores, DELTA) > proved


def test_in_turn_withstands_whoever_knows_the_order():
    generator, randomness = np.random.default_rng(0), Randomness.of(None)
    sampler = InTurn(SIZE, TASKS)
    counts = np.zeros(TASKS)
    for round in range(ROUNDS):
        counts[sampler.draw(TASKS, randomness, round)] += 1
    noise = noise_for(1.0, DELTA, sampler, ROUNDS, "replace")
    found = lower_bound(*knowing(np.full(TRIALS, counts.max()), noise, generator), DELTA)
    assert 0.3 < found <= 1.0
    # Teeth: as if every task were in a third of its rounds.
    less = noise_for(1.0, DELTA, sampler, ROUNDS // 3, "replace")
    assert lower_bound(*knowing(np.full(TRIALS, counts.max()), less, generator), DELTA) > 1.0


def test_poisson_withstands_whoever_knows_all_but_the_draw():
    generator = np.random.default_rng(0)
    noise = noise_for(1.0, DELTA, Poisson(SIZE / TASKS), ROUNDS, "replace")
    assert lower_bound(*guessing(noise, generator, TRIALS // 8), DELTA) <= 1.0
    # Teeth: who is told the draws proves more. They must stay secret.
    held = generator.binomial(ROUNDS, SIZE / TASKS, TRIALS)
    assert lower_bound(*knowing(held, noise, generator), DELTA) > 2.0
