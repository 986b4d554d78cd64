"""What a tuning costs: against dp-accounting, against theory, and by attack."""

from __future__ import annotations

import json
import logging
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import _gamma_truncated_negative_binomial
from scipy import stats

from papers.common.refute import lower_bound
from tacit import Privacy, TacitError
from tacit.privacy import (
    Everyone,
    InTurn,
    Ledger,
    Poisson,
    Release,
    Repeated,
    guarantee,
    noise_for,
    spent,
)
from tacit.privacy.calibration import smallest_noise
from tacit.privacy.guarantee import GIVEN
from tacit.privacy.selection import halting, number_of_runs, tuning
from tacit.randomness import Randomness

ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
TASKS, DELTA = 100, 1e-3


@pytest.fixture(autouse=True)
def quiet_absl():
    logging.getLogger("absl").setLevel(logging.ERROR)


def cost(noise, runs, sampler=Poisson(0.5), rounds=20, neighbours="add-remove") -> float:  # noqa: B008
    booked, _ = tuning(sampler, noise, rounds, TASKS, neighbours, runs)
    return spent({booked: 1}, DELTA, neighbours).epsilon


@pytest.mark.parametrize("runs", [1, 5, 30])
def test_epsilon_equals_dp_accounting(runs):
    """Written out once more: 20 rounds at rate ½ with noise 6, a score with 6 · 3 / (½√20)."""
    gaussian, score = dp.GaussianDpEvent(6.0), dp.GaussianDpEvent(18 / (0.5 * math.sqrt(20)))
    one = [dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, gaussian), 20), score]
    accountant = RdpAccountant(neighboring_relation=ADD)
    accountant.compose(RepeatAndSelectDpEvent(dp.ComposedDpEvent(one), runs, 0))
    assert cost(6.0, runs) == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-9)


@pytest.mark.parametrize(
    ("sampler", "held"),
    [(InTurn(50, TASKS), 10), (InTurn(30, TASKS), 6), (Everyone(), 20), (Poisson(1.0), 20)],
)
@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 1), ("replace", 2)])
def test_public_cohorts_are_plain_releases_in_the_rounds_of_a_task(
    sampler, held, neighbours, moved
):
    """20 rounds of which a task is in some, and a score; replacing moves both by two clips."""
    training = dp.GaussianDpEvent(30.0 / moved)
    score = dp.GaussianDpEvent(30.0 / moved * 3 / math.sqrt(held))
    one = dp.ComposedDpEvent([dp.SelfComposedDpEvent(training, held), score])
    accountant = RdpAccountant(neighboring_relation=ADD)
    accountant.compose(RepeatAndSelectDpEvent(one, 4, 0))
    found = cost(30.0, 4, sampler, neighbours=neighbours)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-9)


def test_the_formula_of_the_docstring():
    """Theorem 2 of Papernot & Steinke by hand, for one Gaussian release: ε(λ) = λ / (2 z²)."""
    z, mean = 3.0, 8.0
    orders = np.concatenate([np.linspace(1.01, 20, 4000), np.linspace(20, 300, 4000)])
    plain, gamma = orders / (2 * z**2), halting(mean)
    again = np.min((1 - 1 / orders) * plain - math.log(gamma) / orders)
    rdp = plain + again + math.log(mean) / (orders - 1)
    by_hand = np.min(rdp + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1))
    booked = Repeated(frozenset({(Release(Everyone(), z), 1)}), mean)
    found = spent({booked: 1}, DELTA, "add-remove")
    assert found.accountant == "RDP"
    assert by_hand <= found.epsilon <= 1.01 * by_hand  # dp-accounting tries fewer orders


def test_more_runs_cost_more_and_even_one_costs_no_less_than_a_plain_run():
    costs = [cost(8.0, runs) for runs in (1, 1.5, 2, 5, 10, 50, 500)]
    assert costs == sorted(costs)
    assert costs[0] < costs[1]
    plain = RdpAccountant(neighboring_relation=ADD)
    plain.compose(Poisson(0.5).event(8.0), 20)
    assert costs[0] >= plain.get_epsilon(DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "runs"), [(0.5, 5), (6.0, 8)])
def test_calibrated_noise_keeps_the_promise_and_hardly_more(epsilon, runs):
    noise = smallest_noise(lambda z: cost(z, runs), epsilon, DELTA, 20)
    assert 0.98 * epsilon < cost(noise, runs) <= epsilon
    assert noise > noise_for(epsilon, DELTA, Poisson(0.5), 20, "add-remove")


def test_a_tuning_composes_with_releases_and_with_itself():
    booked, _ = tuning(Poisson(0.5), 8.0, 20, TASKS, "add-remove", 5)
    release = Release(Poisson(0.5), 8.0)
    one = spent({booked: 1}, DELTA, "add-remove").epsilon
    both = spent({booked: 1, release: 10}, DELTA, "add-remove")
    assert both.accountant == "RDP"
    assert one < both.epsilon < spent({booked: 2, release: 10}, DELTA, "add-remove").epsilon
    free, _ = tuning(Poisson(0.5), 0.0, 20, TASKS, "add-remove", 5)
    assert spent({free: 1}, DELTA, "add-remove").epsilon == math.inf


@pytest.mark.parametrize("mean", [1.2, 5.0, 40.0, 1000.0, 1e6])
def test_the_halting_parameter_is_the_accountants_on_the_side_of_fewer_runs(mean):
    gamma = halting(mean)
    assert gamma == pytest.approx(_gamma_truncated_negative_binomial(0, mean), rel=1e-6)
    assert (1 / gamma - 1) / math.log(1 / gamma) <= mean
    assert gamma >= _gamma_truncated_negative_binomial(0, mean)


@pytest.mark.parametrize("seeded", [True, False])
def test_the_number_of_runs_is_logarithmic(seeded):
    mean, count = 5.0, 20_000
    drawn = np.array([number_of_runs(mean, Randomness.of(k if seeded else None))
                      for k in range(count)])  # fmt: skip
    expected = stats.logser(1 - halting(mean))
    assert expected.mean() == pytest.approx(mean, rel=1e-5)
    last = 25
    seen = np.bincount(np.minimum(drawn, last), minlength=last + 1)[1:]
    chances = np.append(expected.pmf(np.arange(1, last)), expected.sf(last - 1))
    assert stats.chisquare(seen, count * chances).pvalue > 1e-6
    assert drawn.min() == 1


def test_one_run_expected_is_one_run():
    assert {number_of_runs(1, Randomness.of(None)) for _ in range(200)} == {1}


def best_of(runs: np.ndarray, uniform: np.ndarray, noise: float, sum_: float) -> np.ndarray:
    """The largest of so many Gaussian releases around `sum_`, by its distribution function."""
    return sum_ + noise * stats.norm.isf(-np.expm1(np.log(uniform) / runs))


def test_attack_the_selection():
    """Scores that are the release itself: the best of many gives a task away more than one does.

    What is booked withstands it. Booked as a single run it would be refuted: teeth.
    """
    noise, mean, count = 1.0, 1000.0, 20_000
    generator = np.random.default_rng(0)
    runs = np.array([number_of_runs(mean, Randomness.of(k)) for k in range(2 * count)])
    uniform = generator.random(2 * count)
    found = [
        best_of(runs[half], uniform[half], noise, sum_)
        for half, sum_ in ((slice(0, count), 1.0), (slice(count, None), 0.0))
    ]
    proved = lower_bound(*found, DELTA)
    release = Release(Everyone(), noise)
    booked = Repeated(frozenset({(release, 1)}), mean)
    assert proved <= spent({booked: 1}, DELTA, "add-remove").epsilon
    assert proved > spent({release: 1}, DELTA, "add-remove").epsilon


def test_the_ledger_keeps_a_tuning_as_one_entry(tmp_path):
    path = tmp_path / "ledger.jsonl"
    booked, score = tuning(Poisson(0.5), 8.0, 20, TASKS, "add-remove", 5)
    Ledger.at(path).book(0, booked, repeatable=False)
    (line,) = path.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["kind"], entry["mean"], entry["shape"]) == ("tuning", 5.0, 0.0)
    assert sorted(inner["count"] for inner in entry["run"]) == [1, 20]
    again = Ledger.at(path).releases()
    assert again == {booked: 1}
    assert (score, 1) in booked.run


def test_a_tuning_is_written_in_one_order_whatever_order_its_releases_came_in():
    """A seeded tuning that is resumed finds its entry again, and is not charged twice."""
    booked, _ = tuning(InTurn(2, 9), 8.0, 9, 9, "add-remove", 5)
    run = booked.to_json()["run"]
    assert [inner["sampling"].get("round") for inner in run] == [None, *range(9)]
    ledger = Ledger()
    for releases in (booked.run, reversed(list(booked.run))):
        ledger.book(0, Repeated(frozenset(releases), booked.mean), repeatable=True)
    assert len(ledger) == 1


def test_the_guarantee_says_whether_the_choice_of_settings_is_covered():
    booked, _ = tuning(Poisson(0.5), 8.0, 20, TASKS, "add-remove", 5)
    same = {"channel": "billboard", "tasks": TASKS, "sampler": Poisson(0.5), "clip": 0.3,
            "seeded": False, "privacy": Privacy(noise=8.0, delta=DELTA)}  # fmt: skip
    tuned, plain = (
        guarantee({booked: 1}, **same),
        guarantee({Release(Poisson(0.5), 8.0): 20}, **same),
    )
    assert tuned.tuned
    assert "RDP accountant, including the tuning;" in str(tuned)
    assert tuned.to_json()["tuning"].startswith("settings were chosen by 5 booked runs on average")
    assert "makes all runs of the tuning by itself" in tuned.trusts
    assert (tuned.releases, tuned.noise_multiplier) == (21, 8.0)
    assert plain.to_json()["tuning"] == GIVEN
    assert "not covered by this ε" in GIVEN
    assert "tuning" not in str(plain)
    assert "tuning" not in plain.trusts


def test_a_pair_without_a_valid_bound_is_refused():
    with pytest.raises(TacitError, match="only the RDP accountant"):
        tuning(Poisson(0.5), 8.0, 20, TASKS, "replace", 5)


@pytest.mark.parametrize("runs", [0.5, -1, math.inf, math.nan])
def test_impossible_numbers_of_runs_are_refused(runs):
    with pytest.raises(TacitError, match="expected_runs"):
        tuning(Poisson(0.5), 8.0, 20, TASKS, "add-remove", runs)


def test_one_run_on_average_is_one_run():
    assert halting(1.0) == 1.0
    assert 0.9 < halting(1.01) < 1.0
