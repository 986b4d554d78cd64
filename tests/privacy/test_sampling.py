"""Cohorts have the distribution that the accountant assumes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit import Privacy, TacitError
from tacit.privacy import Everyone, InTurn, Poisson
from tacit.privacy.sampling import heaviest, sampler_for, sampler_from_json
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
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 40), st.integers(1, 60))
def test_in_turn_takes_exactly_so_many_and_nobody_too_often(seed, of, size, first, rounds):
    size, randomness = min(size, of), Randomness.of(seed)
    sampler, counts = InTurn(size, of), np.zeros(of)
    for round in range(first, first + rounds):
        drawn = sampler.draw(of, randomness, round)
        assert len(drawn) == size and (np.diff(drawn) > 0).all()
        counts[drawn] += 1
    assert counts.max() == math.ceil(rounds * size / of)
    assert counts.max() - counts.min() <= 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.floats(0.1, 4)), max_size=25),
    st.integers(1, 9),
)
def test_what_the_unluckiest_task_pays_is_counted_over_the_very_cohorts(booked, size):
    """Also where rounds were repeated or left out, and where one ledger holds several runs."""
    of, sampler, unluckiest = 9, InTurn(size, 9), 0.0
    for key in {key for _, key, _ in booked}:
        paid = np.zeros(of)
        for round, of_run, charge in booked:
            if of_run == key:
                paid[sampler.draw(of, Randomness(None, key), round)] += charge
        unluckiest += paid.max()
    found = heaviest((sampler.at(round, key), charge) for round, key, charge in booked)
    assert [0.0, *found][-1] == pytest.approx(unluckiest)
    assert found == sorted(found)


def test_the_order_is_public_and_each_run_has_its_own():
    one, other = (
        [InTurn(5, 40).draw(40, Randomness(None, key), t).tolist() for t in range(8)]
        for key in (1, 2)
    )
    assert one != other
    assert one == [InTurn(5, 40).draw(40, Randomness(1, 1), t).tolist() for t in range(8)]
    assert one[0] != list(range(5))


def test_random_cohorts_of_an_exact_size_are_refused_wherever_they_are_named():
    words = "all other tasks together know.*'in-turn'.*'poisson'"
    for refused in (
        lambda: Privacy(epsilon=1.0, sampling="fixed-size"),  # pyright: ignore[reportArgumentType]
        lambda: sampler_for("fixed-size", 0.5, 100),
        lambda: sampler_from_json({"name": "fixed-size", "size": 3, "of": 9}),
    ):
        with pytest.raises(TacitError, match=words):
            refused()
    with pytest.raises(TacitError, match="choose one of"):
        sampler_from_json({"name": "some"})
    with pytest.raises(TacitError, match="cannot be taken"):
        InTurn(10, 9)
    with pytest.raises(TacitError, match="accounts for 9 tasks"):
        InTurn(3, 9).draw(10, Randomness.of(0), 0)


def test_a_cohort_in_turn_is_a_rate_or_a_number():
    assert sampler_for("in-turn", 0.5, 9) == InTurn(4, 9)
    assert sampler_for("in-turn", 3, 9) == InTurn(3, 9)
    assert sampler_for("in-turn", 0.01, 9) == InTurn(1, 9)
    assert InTurn(3, 9).expected(9) == 3


def test_everyone_is_the_whole_rate_or_the_whole_number():
    assert sampler_for("everyone", 1.0, 9) == Everyone() == sampler_for("everyone", 9, 9)
    for less in (0.5, 2, 8):
        with pytest.raises(TacitError, match="leave cohort out"):
            sampler_for("everyone", less, 9)
    assert sampler_for("poisson", 3, 9) == Poisson(1 / 3)
    assert sampler_for("poisson", 1, 9) == sampler_for("poisson", True, 9) == Poisson(1.0)


def test_everyone_and_full_rate_draw_all():
    assert list(Everyone().draw(4, Randomness.of(None), 0)) == [0, 1, 2, 3]
    assert list(Poisson(1.0).draw(4, Randomness.of(None), 0)) == [0, 1, 2, 3]


def test_who_was_drawn_is_a_secret_only_where_some_are_drawn():
    assert Poisson(0.5).secret and Poisson(0.99).secret
    assert not Poisson(1.0).secret and not Everyone().secret
    assert not InTurn(3, 9).secret  # everybody knows whose turn it is


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


def test_a_cohort_beyond_one_block_of_draws_has_everybody_once_and_no_draw_twice(monkeypatch):
    """All gaps are one, so that everybody is drawn, in three blocks of 34."""
    asked = []

    def next_one(self, *place):
        asked.append(place)
        return np.full(place[-1], 0.999999)

    monkeypatch.setattr(Randomness, "uniform", next_one)
    assert list(Poisson(0.05).draw(100, Randomness.of(0), 3)) == list(range(100))
    assert asked == [("cohort", 3, block, 34) for block in range(3)]
