"""The observer's score is the likelihood ratio of what the channel really does, in every setting.

That is checked by an identity that only the true ratio has: e^score has mean one in world B, and
e^−score in world A. The noise is large, so that a few hundred runs settle it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.data.relation import clusters
from tacit.privacy import Everyone, InTurn, Poisson, Release
from tacit.privacy.attack import ON_SHARES, scores, stage, worst_worlds
from tacit.privacy.channel import Channel
from tacit.privacy.moments import Moments
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import InProcess

NOISE, ROUNDS, TASKS = 6.0, 2, 6

SETTINGS = {
    "plain": {},
    "moments": {"moments": Moments(0.5, 0.3, 0.2)},
    "covariance": {"moments": Moments(1.0)},
    "relation": {"relation": clusters([0, 0, 1, 1, 1, 2])},
    "adaptive clip": {"quantile": 0.5},
    "uneven rounds": {"weights": (1.0, 0.5)},
}


def channel(sampler, **more) -> Channel:
    return Channel(
        sampler, TASKS, Randomness.of(0), clip=0.7, release=Release(sampler, NOISE), **more
    )


def sides(one: Channel, neighbours, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    found, coins = scores(one, worst_worlds(one, neighbours), ROUNDS, runs, seed)
    assert 0.4 < coins.mean() < 0.6
    return found[coins], found[~coins]


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("sampler", [Everyone(), Poisson(0.6), InTurn(4, TASKS)], ids=str)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_score_is_the_likelihood_ratio(setting, sampler, neighbours):
    one = stage(channel(sampler, **SETTINGS[setting]))
    present, absent = sides(one, neighbours, 800, seed=1)
    for ratio in (np.exp(absent), np.exp(-present)):
        assert ratio.std() > 0.1  # the worlds can be told apart
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(len(ratio))


@pytest.mark.parametrize(("neighbours", "clips"), [("add-remove", 1), ("replace", 2)])
@pytest.mark.parametrize("setting", ["plain", "moments", "relation", "adaptive clip"])
def test_the_worlds_are_as_far_apart_as_the_accountant_thinks(setting, neighbours, clips):
    """Over everyone, scores have the mean ±μ²/2 with μ the number of clips over the noise."""
    one = stage(channel(Everyone(), **SETTINGS[setting]))
    moments = SETTINGS[setting].get("moments")
    if moments is not None and neighbours == "replace":
        clips = math.sqrt(2 * moments.mean + 4 * moments.extra + 2 * moments.covariance)
    present, absent = sides(one, neighbours, 800, seed=2)
    expected = ROUNDS * (clips / NOISE) ** 2 / 2
    error = math.sqrt(2 * expected / min(len(present), len(absent)))
    assert abs(present.mean() - expected) < 4 * error
    assert abs(absent.mean() + expected) < 4 * error
    assert present.std() == pytest.approx(math.sqrt(2 * expected), rel=0.2)


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_servers_that_pool_their_noise_see_what_one_honest_server_hides(quantile):
    one = channel(Everyone(), quantile=quantile)
    names = tuple(f"task {k}" for k in range(TASKS))
    one.curator = SecureSum(InProcess(), 3, names, one.randomness)
    one = stage(one)
    present, absent = sides(one, "replace", 200, seed=3)
    mu = math.sqrt(ROUNDS) * 2 / NOISE  # not a third of its square: two of three noises are known
    assert np.concatenate([present, -absent]).mean() == pytest.approx(mu**2 / 2, abs=4 * mu / 14)
    assert present.std() == pytest.approx(mu, rel=0.25)


def test_a_stage_has_no_budget_and_no_more_tasks_than_it_needs():
    large = Channel(
        Poisson(0.5), 5000, Randomness.of(0), clip=1.0, release=Release(Poisson(0.5), 3)
    )
    assert stage(large).tasks == 1000
    large.curator = SecureSum(InProcess(), 3, tuple(map(str, range(5000))), large.randomness)
    assert stage(large).tasks == ON_SHARES
    related = channel(Everyone(), relation=clusters([0, 0, 1, 1, 1, 2]))
    assert stage(related).tasks == TASKS


def test_without_a_seed_noise_comes_from_where_a_private_run_has_it():
    one = stage(channel(Poisson(0.6)))
    worlds = worst_worlds(one, "add-remove")
    first, again = (scores(one, worlds, 1, 9)[0] for _ in range(2))
    assert (first != again).all()
    first, again = (scores(one, worlds, 1, 9, seed=7)[0] for _ in range(2))
    assert (first == again).all()
    assert len(set(first.tolist())) == 9  # every run has noise of its own
