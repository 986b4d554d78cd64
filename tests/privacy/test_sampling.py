"""Cohorts have the distribution that the accountant assumes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tacit.privacy import Everyone, FixedSize, Poisson
from tacit.randomness import Randomness


@pytest.mark.parametrize("seed", [None, 3])
def test_poisson_membership_is_independent_with_the_given_rate(seed):
    randomness, tasks, rounds, rate = Randomness.of(seed), 40, 4000, 0.3
    member = np.zeros((rounds, tasks))
    for round in range(rounds):
        member[round, Poisson(rate).draw(tasks, randomness, round)] = 1
    # Each task's count is Binomial(rounds, rate): first, last and all in between.
    low, high = stats.binom.interval(1 - 1e-6, rounds, rate)
    assert ((member.sum(0) >= low) & (member.sum(0) <= high)).all()
    # The cohort's size is Binomial(tasks, rate): a fixed or a correlated cohort would show here.
    sizes = member.sum(1)
    assert sizes.var() == pytest.approx(tasks * rate * (1 - rate), rel=0.12)
    neighbours = np.corrcoef(member[:, :-1].ravel(), member[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(rounds * tasks)


def test_poisson_cost_grows_with_the_cohort_only():
    drawn = Poisson(1e-7).draw(10**9, Randomness.of(0), 0)  # a billion tasks, a hundred drawn
    assert 40 < len(drawn) < 180
    assert (np.diff(drawn) > 0).all()


@pytest.mark.parametrize("seed", [None, 3])
def test_fixed_size_draws_each_task_equally_often(seed):
    randomness, rounds = Randomness.of(seed), 3000
    counts = np.zeros(20)
    for round in range(rounds):
        drawn = FixedSize(5, 20).draw(20, randomness, round)
        assert len(set(drawn)) == 5
        counts[drawn] += 1
    assert stats.chisquare(counts).pvalue > 1e-6


def test_everyone_and_full_rate_draw_all():
    assert list(Everyone().draw(4, Randomness.of(None), 0)) == [0, 1, 2, 3]
    assert list(Poisson(1.0).draw(4, Randomness.of(None), 0)) == [0, 1, 2, 3]


def test_who_was_drawn_is_a_secret_only_where_not_everybody_is():
    assert Poisson(0.5).secret and Poisson(0.99).secret
    assert not Poisson(1.0).secret and not Everyone().secret


def test_seeded_streams_repeat_and_unseeded_do_not():
    assert np.array_equal(
        Randomness.of(1).normal("noise", 4, 50), Randomness.of(1).normal("noise", 4, 50)
    )
    assert not np.array_equal(
        Randomness.of(1).normal("noise", 4, 50), Randomness.of(1).normal("noise", 5, 50)
    )
    secret = Randomness.of(None)
    assert not np.array_equal(secret.normal("noise", 4, 50), secret.normal("noise", 4, 50))


def test_noise_from_the_operating_system_is_standard_normal():
    drawn = Randomness.of(None).normal("noise", 0, 200_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
