"""`tacit.audit` where persons are hidden: true promises stand, and broken ones are found out.

Everything is seeded: what is caught is caught in every run of the tests.
"""

from __future__ import annotations

import contextlib
import math
from unittest import mock

import numpy as np
import pytest
import torch

import tacit
from tacit import data
from tacit.attacks.audited import Audit
from tacit.engine.persons import Persons
from tacit.errors import TacitError
from tacit.privacy import Everyone, Poisson, Release
from tacit.privacy.attack import BESIDE, scores, stage, worst_worlds
from tacit.privacy.channel import Channel
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import InProcess
from tests import sabotages

DELTA, NOISE, ROUNDS = 1e-3, 6.0, 2


def patients(features=3, persons=60, gone=(), also_at=(), test=0.0) -> data.Federation:
    """Two rows each at one of four hospitals; some are at the next hospital, too."""
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(persons), 2)
    x, task = rng.normal(size=(len(who), features)), who % 4
    y = (x[:, 0] + rng.normal(size=len(who)) > 0).astype(float)
    second = np.append(False, who[1:] == who[:-1])
    task = np.where(np.isin(who, also_at) & second, (task + 1) % 4, task)
    here = ~np.isin(who, gone)
    given = {"kind": "binary", "persons": who[here], "scale": "none", "validation": 0.0}
    return data.from_arrays(x[here], y[here], task[here], test=test, **given)


def attacked(federation=None, epsilon=1.0, **more) -> Audit:
    names = ("delta", "neighbours", "at_most", "noise_by", "persons", "unit")
    promise = {key: more.pop(key) for key in names if key in more}
    promise = {"delta": DELTA, "unit": "person", "persons": 60} | promise
    privacy = tacit.Privacy(epsilon=epsilon, **promise)
    settings = {"rounds": 1, "seed": 0, "method": tacit.FedAvg(clip=0.3)} | more
    return tacit.audit(federation or patients(), privacy=privacy, **settings)


def channel(sampler, share=1, **more) -> Channel:
    release = Release(sampler, NOISE, unit="person")
    return Channel(sampler, 40, Randomness.of(0), clip=0.7, release=release, share=share, **more)


SETTINGS = {
    "plain": {},
    "at three tasks": {"share": 3},
    "noise of tasks": {"noisy_tasks": ("a", "b", "c", "d")},
    "noise of tasks, at two": {"noisy_tasks": ("a", "b", "c"), "share": 2},
    "adaptive clip": {"quantile": 0.5},
    "adaptive clip, at two": {"quantile": 0.5, "share": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [Everyone(), Poisson(0.6)], ids=str)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_score_is_the_likelihood_ratio(setting, sampler):
    """e^score has mean one in world B, and e^−score in world A."""
    one = stage(channel(sampler, **SETTINGS[setting]))
    found, coins = scores(one, worst_worlds(one, "add-remove"), ROUNDS, 800, 1)
    for ratio in (np.exp(found[~coins]), np.exp(-found[coins])):
        assert ratio.std() > 0.05  # the worlds can be told apart
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(len(ratio))


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["plain", "at three tasks", "noise of tasks"])
def test_the_worlds_are_as_far_apart_as_the_accountant_thinks(setting):
    """Over everyone, scores have the mean ±μ²/2 with μ one clip over the noise."""
    one = stage(channel(Everyone(), **SETTINGS[setting]))
    found, coins = scores(one, worst_worlds(one, "add-remove"), ROUNDS, 800, 2)
    expected = ROUNDS / NOISE**2 / 2
    error = math.sqrt(2 * expected / 350)
    assert abs(found[coins].mean() - expected) < 4 * error
    assert abs(found[~coins].mean() + expected) < 4 * error
    assert found[coins].std() == pytest.approx(math.sqrt(2 * expected), rel=0.2)


def test_servers_that_pool_their_noise_see_what_one_honest_server_hides():
    one = channel(Everyone())
    one.curator = SecureSum(InProcess(), 3, ("a", "b", "c", "d"), one.randomness, members=200)
    one = stage(one)
    assert one.tasks == 1 + BESIDE + 1
    found, coins = scores(one, worst_worlds(one, "replace"), ROUNDS, 150, 3)
    mu = math.sqrt(ROUNDS) * 2 / NOISE
    signed = np.where(coins, found, -found)
    assert signed.mean() == pytest.approx(mu**2 / 2, abs=4 * mu / 12)


def test_a_true_promise_stands_and_says_whom_it_hides():
    found = attacked(epsilon=4.0, many_runs=300)
    assert 0.5 < found.epsilon_lower <= found.promised.epsilon <= 4.0
    assert found.promised.unit == found.to_json()["promised"]["unit"] == "person"
    assert "any one person added or removed" in str(found.promised)
    assert "all persons in every round" in str(found.promised)
    assert "task" not in str(found.promised)
    assert found.assumed[0].startswith("the observer is everybody outside the target's own task")
    single = attacked(patients_by_row(), epsilon=4.0, many_runs=20, unit="row", persons=120)
    assert "any one row added or removed" in str(single.promised)


def patients_by_row() -> data.Federation:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(120, 3))
    given = {"kind": "binary", "persons": True, "scale": "none", "validation": 0.0, "test": 0.0}
    return data.from_arrays(x, (x[:, 0] > 0).astype(float), np.arange(120) % 4, **given)


@pytest.mark.parametrize(
    ("broken", "more"),
    [
        (sabotages.clip_of_tasks, {}),
        (sabotages.no_noise, {}),
        (sabotages.whole_clips_everywhere, {"at_most": 3}),
    ],
)
def test_a_broken_channel_is_caught(broken, more):
    with broken():
        found = attacked(many_runs=400, **more)
    assert found.refuted
    assert found.epsilon_lower > found.promised.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("more", [{}, {"cohort": 0.3}, {"at_most": 2}, {"noise_by": "task"}])
def test_a_true_promise_is_half_proved_and_not_refuted(neighbours, more):
    found = attacked(epsilon=4.0, many_runs=6000, neighbours=neighbours, **more)
    assert 1.0 < found.epsilon_lower <= found.promised.epsilon <= 4.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "more"),
    [
        (sabotages.half_the_noise, {"neighbours": "replace"}),
        (sabotages.half_the_noise, {"at_most": 2}),
        (sabotages.half_the_noise, {"noise_by": "task"}),
        (sabotages.no_clip, {}),
        (sabotages.clip_of_tasks, {"neighbours": "replace"}),
        (sabotages.counted_twice, {}),
        (sabotages.counted_twice, {"noise_by": "task"}),
        (sabotages.realised_cohort, {}),
    ],
)
def test_every_broken_channel_is_caught(broken, more):
    with broken():
        found = attacked(many_runs=6000, **more)
    assert found.epsilon_lower > found.promised.epsilon


ONE_RUN = {"one_run": True, "delta": 1e-6, "seed": 1, "rounds": 3}


@pytest.mark.parametrize("more", [{}, {"cohort": 0.5, "at_most": 2}, {"noise_by": "task"}])
def test_canaries_are_persons_and_prove_something(more):
    found = attacked(patients(200), 8.0, canaries=400, **ONE_RUN, **more)
    assert found.tries["right"] > 0.6 * found.tries["guesses"]
    assert 0.0 < found.epsilon_lower <= found.promised.epsilon <= 8.0
    assert "as persons without data" in found.assumed[-2]


@pytest.mark.parametrize("broken", [sabotages.no_clip, sabotages.no_noise, sabotages.clip_of_tasks])
def test_canaries_catch_a_broken_run(broken):
    with broken():
        found = attacked(patients(200), canaries=200, **ONE_RUN)
    assert found.epsilon_lower > found.promised.epsilon


@pytest.mark.parametrize("more", [{}, {"at_most": 2}, {"noise_by": "task"}])
@pytest.mark.parametrize("quantile", [None, 0.5])
def test_canaries_among_gradients_that_are_summed_as_factors(more, quantile):
    """No audit could be made of them: what is summed already had no way to the observer."""
    method = tacit.FedAvg(local_steps=1, batch=None, clip=0.3, clip_quantile=quantile)
    found = attacked(patients(200), 8.0, canaries=400, **ONE_RUN, method=method, **more)
    assert found.tries["right"] > 0.6 * found.tries["guesses"]
    assert 0.0 < found.epsilon_lower <= found.promised.epsilon <= 8.0


def test_one_person_more_moves_nobody_else_whose_gradients_are_factors():
    method = tacit.FedAvg(local_steps=1, batch=None, clip=0.3)
    found = attacked(patients(), neighbour=patients(gone=[7]), many_runs=200, method=method)
    assert found.tries["others_changed"] == 0 and 0 < found.tries["sum_moved"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mixed", tacit.PMTL(clip=0.3), tacit.Ditto(clip=0.3)])
@pytest.mark.parametrize("curator", [None, tacit.Secure(servers=3)])
def test_canaries_in_any_method(method, curator):
    if curator is not None:
        pytest.importorskip("cryptography")
    rounds = None if method == "mixed" else 3
    found = attacked(
        epsilon=8.0, method=method, curator=curator, canaries=60, **ONE_RUN | {"rounds": rounds}
    )
    assert not found.refuted
    assert found.tries["canaries"] == 60


def test_one_person_more_moves_nobody_else():
    whole, fewer = patients(), patients(gone=[7])
    found = attacked(whole, neighbour=fewer, many_runs=200)
    assert found.tries["others_changed"] == 0
    assert 0 < found.tries["sum_moved"] <= 1
    assert found.promised.neighbours == "add-remove"
    assert not found.refuted
    other_way = attacked(fewer, neighbour=whole, many_runs=200)
    assert other_way.tries == found.tries
    with pytest.raises(TacitError, match="other rows of 2 persons"):
        attacked(whole, neighbour=patients(gone=[7, 8]))


def test_a_person_at_two_tasks_is_paid_for_or_refused():
    whole, fewer = patients(also_at=[7]), patients(gone=[7], also_at=[7])
    with pytest.raises(TacitError, match="a person is at 2 tasks, but at_most=1"):
        attacked(whole, neighbour=fewer)
    found = attacked(whole, neighbour=fewer, many_runs=200, at_most=2)
    assert 0 < found.tries["sum_moved"] <= 1
    assert not found.refuted
    with contextlib.ExitStack() as stack:  # were it not paid for, that would be seen
        stack.enter_context(mock.patch("tacit.experiment.refusals.most_tasks", lambda _: 1))
        found = attacked(whole, neighbour=fewer, many_runs=200, method=tacit.FedAvg(clip=1e-4))
    assert found.tries["sum_moved"] > 1
    assert "the sum moved by" in found.verdict and found.refuted


def test_whatever_moves_with_others_is_caught():
    """Persons who are scaled by all of their task move with each of them."""
    ask = Persons.ask

    def scaled(self, board, cohort):
        for sent in ask(self, board, cohort):
            vectors = sent.vectors.clone()
            for task in sent.tasks.unique():
                vectors[sent.tasks == task] -= vectors[sent.tasks == task].mean(dim=0)
            yield sent._replace(vectors=vectors)

    with mock.patch.object(Persons, "ask", scaled):
        found = attacked(patients(), neighbour=patients(gone=[7]), many_runs=200)
    assert found.refuted
    assert found.tries["others_changed"] > 0
    assert torch.isfinite(torch.tensor(found.epsilon_lower))
