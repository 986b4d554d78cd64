"""Persons: what sampling costs at each of several tasks, and what tasks are promised beside."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

import tacit
from tacit.privacy import Everyone, Poisson, Privacy, Release, Sampler
from tacit.privacy.accounting import of_tasks, spent


def test_it_is_accounted_as_one_draw_of_a_whole_clip() -> None:
    release = Release(Poisson(0.1, 3), 2.0, unit="person")
    oracle = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(2.0)
    drawn = Poisson(0.1, 3).anywhere
    assert drawn == pytest.approx(1 - 0.9**3, abs=1e-15)
    oracle.compose(dp_accounting.PoissonSampledDpEvent(drawn, gaussian), 20)
    found = spent({release: 20}, 1e-5, "add-remove")
    assert found.epsilon == pytest.approx(oracle.get_epsilon(1e-5), abs=1e-6)
    assert found.epsilon > spent({Release(Poisson(0.1), 2.0): 20}, 1e-5, "add-remove").epsilon


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.5])
def test_no_more_is_lost_than_that(noise: float, epsilon: float) -> None:
    """δ of what is released, by integration, in both directions, beside that of the bound."""
    rate, tasks = 0.2, 3
    at = np.linspace(-30, 31, 200_001)

    def bell(centre: float) -> np.ndarray:
        return np.exp(-(((at - centre) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))

    chances = [math.comb(tasks, j) * rate**j * (1 - rate) ** (tasks - j) for j in range(tasks + 1)]
    true = sum(chance * bell(j / tasks) for j, chance in enumerate(chances))
    anywhere = Poisson(rate, tasks).anywhere
    assert anywhere == pytest.approx(1 - chances[0])
    bound, without = (1 - anywhere) * bell(0.0) + anywhere * bell(1.0), bell(0.0)
    step = at[1] - at[0]
    for one, other in ((0, 1), (1, 0)):
        lost, allowed = (
            np.maximum(pair[one] - math.exp(epsilon) * pair[other], 0.0).sum() * step
            for pair in ((true, without), (bound, without))
        )
        assert lost <= allowed + 1e-12


def test_units_are_never_added_up() -> None:
    both = {Release(Poisson(0.1), 2.0): 1, Release(Poisson(0.1), 2.0, unit="person"): 1}
    with pytest.raises(tacit.TacitError, match="tasks and about persons"):
        spent(both, 1e-5, "add-remove")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("sampler", [Everyone(), Poisson(0.3)], ids=str)
def test_both_promises_are_what_dp_accounting_says(sampler: Sampler, neighbours: Any) -> None:
    """Persons are drawn in secret, tasks are in every release: each composed by itself."""
    asked = Privacy(
        epsilon=1.0, delta=1e-4, unit="person", persons=400, tasks_epsilon=3.0,
        neighbours=neighbours,
    )  # fmt: skip
    rounds = 6
    noise = asked.noise_multiplier(sampler, rounds, 4)
    task_clip = asked.task_clip(noise, rounds, 4, None)
    booked = Counter({Release(sampler, noise, unit="person", task_clip=task_clip): rounds})
    assert task_clip is not None

    def oracle(event: dp_accounting.DpEvent) -> float:
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        if neighbours == "replace":
            relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        accountant = pld.PLDAccountant(relation)
        return accountant.compose(event, rounds).get_epsilon(1e-4)

    one = dp_accounting.GaussianDpEvent(noise)
    drawn = one if isinstance(sampler, Everyone) else dp_accounting.PoissonSampledDpEvent(0.3, one)
    found = spent(booked, 1e-4, neighbours).epsilon
    assert found == pytest.approx(oracle(drawn), abs=1e-6) and 0.99 < found <= 1.0
    whole = spent(of_tasks(booked), 1e-4, neighbours).epsilon
    expected = oracle(dp_accounting.GaussianDpEvent(noise / task_clip))
    assert whole == pytest.approx(expected, abs=1e-6) and 2.99 < whole <= 3.0
