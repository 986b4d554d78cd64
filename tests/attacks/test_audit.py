"""`tacit.audit` proves much of a true promise and never more than it, and catches every false one.

Everything is seeded: what is caught is caught in every run of the tests.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tacit
from tacit import data
from tacit.attacks.audited import Audit, Promised
from tacit.errors import TacitError
from tacit.privacy import Ledger, Poisson, Release, spent
from tests import sabotages
from tests.conftest import arrays

DELTA = 1e-3


def attacked(federation, epsilon=1.0, runs=6000, method=None, **more) -> Audit:
    promise = {key: more.pop(key) for key in ("delta", "neighbours", "sampling") if key in more}
    privacy = tacit.Privacy(epsilon=epsilon, **{"delta": DELTA} | promise)
    settings = {"rounds": 1, "seed": 0, "many_runs": runs} | more
    return tacit.audit(federation, method or tacit.PMTL(clip=0.3), privacy=privacy, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "neighbours"), [(1.0, "add-remove"), (4.0, "replace"), (8.0, "add-remove")]
)
def test_a_true_promise_is_half_proved_and_not_refuted(make_federation, epsilon, neighbours):
    found = attacked(make_federation(), epsilon, neighbours=neighbours)
    assert 0.5 * epsilon < found.epsilon_lower <= found.promised.epsilon <= epsilon
    assert not found.refuted
    assert found.verdict.startswith("not refuted: the attack proves ε ≥ ")
    assert found.tries == {"runs": 6000, "releases": 6000}


@pytest.mark.slow
def test_who_takes_turns_is_attacked_in_its_own_rounds(make_federation):
    """Each task is in one of three rounds, and everybody knows in which."""
    settings = {"sampling": "in-turn", "cohort": 4, "rounds": 3}
    found = attacked(make_federation(), 4.0, runs=2000, **settings)
    assert 2.0 < found.epsilon_lower <= found.promised.epsilon <= 4.0
    assert "the observer knows in which rounds the target took part" in found.assumed
    found = attacked(wide(), 8.0, canaries=400, **ONE_RUN, **settings)
    assert 0.3 < found.epsilon_lower <= found.promised.epsilon <= 8.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "neighbours"),
    [
        (sabotages.half_the_noise, "add-remove"),
        (sabotages.half_the_noise, "replace"),
        (sabotages.no_clip, "add-remove"),
        (sabotages.realised_cohort, "add-remove"),
    ],
)
def test_a_broken_channel_is_caught(make_federation, broken, neighbours):
    with broken():
        found = attacked(make_federation(), neighbours=neighbours)
    assert found.epsilon_lower > found.promised.epsilon
    assert found.refuted
    assert found.verdict.startswith("REFUTED: ε is at least ")


@pytest.mark.slow
def test_random_cohorts_of_fixed_size_hide_nothing_from_the_others(make_federation):
    federation = make_federation(tasks=40)
    with sabotages.amplified_fixed_size(4):
        found = attacked(federation, runs=4000, neighbours="replace")
    assert found.promised.sampling == "4 of 40 tasks at random"
    assert found.epsilon_lower > found.promised.epsilon


def pair(tasks=120):
    """Two federations: in the second, the first task has one row more."""
    x, y, names = arrays(tasks, 3, "regression")
    options = {"scale": "none", "target_scale": "none", "kind": "regression"}
    more = [np.concatenate([part[:1], part]) for part in (x, y, names)]
    return data.from_arrays(x, y, names, **options), data.from_arrays(*more, **options)


def test_a_split_by_position_in_the_table_is_caught():
    with sabotages.the_old_split():
        first, second = pair()
    found = attacked(first, neighbour=second, method=tacit.PMTL(clip=1e-3), neighbours="replace")
    assert found.tries["others_moved"] > 1
    assert found.epsilon_lower > found.promised.epsilon
    assert "other tasks' contributions moved by" in found.verdict


def test_a_row_more_moves_only_its_task():
    first, second = pair(20)
    found = attacked(first, neighbour=second, runs=500)
    assert found.tries["others_moved"] == 0
    assert 0 < found.tries["sum_moved"] <= 2
    assert not found.refuted
    assert found.promised.releases == 1
    assert found.promised.neighbours == "replace"  # a row more is other data, whatever is promised


def test_a_sum_that_moves_farther_than_claimed_is_named():
    promised = Promised(1.0, DELTA, "replace", "all", "PLD", 1, 3.0)
    found = Audit("neighbour", promised, 0.2, 0.95, {}, (), "the sum moved by 3 clips")
    assert found.refuted
    assert found.verdict == "REFUTED: the sum moved by 3 clips"
    assert not Audit("many runs", promised, 1.0, 0.95, {}, ()).refuted


METHODS = [
    tacit.PMTL(clip=0.3),
    tacit.PMTL(clip=0.3, clip_quantile=0.5),
    tacit.SharedPrior(),
    tacit.MPMTL(),
    tacit.NaiveDP(),
]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_one_run_with_canaries_in_any_method(make_federation, method, neighbours):
    found = attacked(
        make_federation(),
        8.0,
        runs=None,
        method=method,
        one_run=True,
        canaries=60,
        rounds=2,
        neighbours=neighbours,
    )
    assert found.tries["canaries"] == 60
    assert found.epsilon_lower <= found.promised.epsilon <= 8.0
    assert found.promised.releases == 2
    assert not found.refuted


def wide(features=200):
    x, y, names = arrays(8, features, "regression")
    return data.from_arrays(x, y, names, scale="none", target_scale="none", kind="regression")


ONE_RUN = {"runs": None, "one_run": True, "delta": 1e-6, "seed": 1}


@pytest.mark.parametrize("cohort", [1.0, 4])
def test_canaries_in_a_wide_model_prove_something(cohort):
    found = attacked(wide(), 8.0, canaries=400, rounds=3, cohort=cohort, **ONE_RUN)
    assert 0.3 < found.epsilon_lower <= found.promised.epsilon


def test_canaries_catch_a_run_without_a_clip():
    with sabotages.no_clip():
        found = attacked(wide(), canaries=200, **ONE_RUN)
    assert found.epsilon_lower > 2 > found.promised.epsilon
    assert found.tries["right"] == found.tries["guesses"]


def test_canaries_are_found_under_servers_that_pool_what_they_know():
    pytest.importorskip("cryptography")
    found = attacked(wide(), 8.0, canaries=100, curator=tacit.Secure(servers=3), **ONE_RUN)
    assert not found.refuted
    assert any("all servers but one" in words for words in found.assumed)
    assert found.tries["right"] > 0.7 * found.tries["guesses"]


def test_many_runs_under_servers(make_federation):
    pytest.importorskip("cryptography")
    found = attacked(make_federation(), 4.0, runs=300, curator=tacit.Secure(servers=2))
    assert 1.0 < found.epsilon_lower <= found.promised.epsilon


def test_the_books_of_a_run_decide_what_is_attacked(make_federation):
    """Two releases were booked, one with the noise that was asked for, and one with half of it."""
    ledger, sampler = Ledger(), Poisson(0.5)
    for round, noise in enumerate((4.0, 2.0)):
        ledger.book(round, Release(sampler, noise), repeatable=True, clip=0.3, size=5)
    found = attacked(make_federation(), 1.0, runs=200, cohort=0.5, rounds=7, ledger=ledger)
    expected = spent(ledger.releases(), DELTA, "add-remove").epsilon
    assert found.promised.epsilon == expected
    assert found.promised.releases == 2
    assert found.tries == {"runs": 200, "releases": 400}
    with pytest.raises(TacitError, match="the ledger is empty"):
        attacked(make_federation(), ledger=Ledger())


def test_what_is_kept_can_be_read_and_shown(make_federation, tmp_path):
    found = attacked(make_federation(), runs=50)
    found.save(tmp_path)
    kept = json.loads((tmp_path / "audit.json").read_text())["many runs"]
    assert kept["verdict"] == found.verdict
    assert kept["promised"]["epsilon"] == found.promised.epsilon
    assert kept["assumed"][0].startswith("the observer is all other tasks together")
    assert kept["refuted"] is False
    assert math.isfinite(kept["epsilon_lower"])
    assert str(found.promised) in str(found) == repr(found)


def test_what_cannot_be_attacked_is_refused_in_a_sentence(make_federation):
    federation = make_federation()

    def refuse(match, method=None, **more):
        with pytest.raises(TacitError, match=match):
            tacit.audit(federation, method or tacit.PMTL(), **{"privacy": promise} | more)

    promise = tacit.Privacy(epsilon=1.0)
    refuse("promises no ε", privacy=None)
    refuse("promises no ε", privacy=tacit.Privacy(noise=0.0))
    refuse("promises no ε", method=tacit.Local())
    refuse("no ε can be promised", method=tacit.FedMTL())
    refuse("different attacks", many_runs=100, one_run=True)
    refuse("many_runs=3", many_runs=3)
    refuse("canaries=5", canaries=5)
    refuse("confidence=95", confidence=95)
    refuse("exactly one", neighbour=make_federation(seed=1))
    refuse("same tasks", neighbour=make_federation(tasks=11))
    tuned = Ledger(entries=[{"kind": "tuning", "round": 0}])
    refuse("was tuned", ledger=tuned)


@pytest.mark.slow
def test_rounds_of_a_mixed_model_are_attacked_as_they_are_made():
    federation = tacit.data.load("personal-shift", tasks=30, rows=8)
    given = {"privacy": tacit.Privacy(epsilon=4.0), "seed": 0}
    found = tacit.audit(federation, tacit.Mixed(), many_runs=2000, **given)
    assert 1.0 < found.epsilon_lower <= 4.0
    found = tacit.audit(federation, tacit.Mixed(), one_run=True, canaries=100, **given)
    assert found.tries["canaries"] == 100 and not found.refuted


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("method", [tacit.Clusters, tacit.ClusterPriors])
def test_rounds_with_groups_are_attacked_as_they_are_made(make_federation, method, neighbours):
    method = method(groups=2, clip=0.3)
    found = attacked(
        make_federation(), 4.0, runs=2000, method=method, rounds=4, neighbours=neighbours
    )
    assert 1.0 < found.epsilon_lower <= found.promised.epsilon <= 4.0
    assert found.promised.releases == 4
    assert not found.refuted
