"""Every ε against an independent dp-accounting computation, the paper's own figures, and theory."""

from __future__ import annotations

import logging
import math

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import TacitError
from tacit.privacy import Everyone, FixedSize, Poisson, Release, noise_for, spent, theorem_1
from tacit.privacy.accounting import affordable, growth
from tacit.privacy.sampling import sampler_for

ADD, REPLACE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE


@pytest.fixture(autouse=True)
def quiet_absl():
    logging.getLogger("absl").setLevel(logging.ERROR)


def independent(pair: str, noise: float, rounds: int, delta: float) -> float:
    """Written out once more, straight from dp-accounting's events."""
    gaussian = dp.GaussianDpEvent(noise)
    kind, relation, event = {
        "poisson add-remove": (PLDAccountant, ADD, dp.PoissonSampledDpEvent(0.3, gaussian)),
        "poisson replace": (PLDAccountant, REPLACE, dp.PoissonSampledDpEvent(0.3, gaussian)),
        "everyone add-remove": (PLDAccountant, ADD, gaussian),
        "everyone replace": (PLDAccountant, REPLACE, gaussian),
        "fixed-size replace": (
            RdpAccountant,
            REPLACE,
            dp.SampledWithoutReplacementDpEvent(100, 30, dp.GaussianDpEvent(noise / 2)),
        ),
    }[pair]
    accountant = kind(neighboring_relation=relation)
    accountant.compose(dp.SelfComposedDpEvent(event, rounds))
    return accountant.get_epsilon(delta)


SAMPLERS = {"poisson": Poisson(0.3), "everyone": Everyone(), "fixed-size": FixedSize(30, 100)}
PAIRS = (
    "poisson add-remove",
    "poisson replace",
    "everyone add-remove",
    "everyone replace",
    "fixed-size replace",
)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("noise", "rounds"), [(1.5, 1), (8.0, 50), (20.0, 500)])
def test_every_offered_pair_equals_dp_accounting(pair, noise, rounds):
    sampling, neighbours = pair.split(" ")
    found = spent({Release(SAMPLERS[sampling], noise): rounds}, 1e-3, neighbours)
    assert found.epsilon == pytest.approx(independent(pair, noise, rounds, 1e-3), abs=1e-6)


def test_fixed_size_with_add_remove_is_refused_with_the_reason():
    with pytest.raises(TacitError, match=r"no valid accountant.*use neighbours='replace'"):
        spent({Release(FixedSize(30, 100), 5.0): 1}, 1e-3, "add-remove")


PAPER = {  # data set: σ, γ, T, m (q = 100, δ = 1/m), then the four ε of PAPERS §1, trap 1
    "femnist": (0.02, 0.2, 1000, 205, (5.30, 4.61, 11.99, 42)),
    "stackoverflow": (0.01, 0.5, 600, 400, (15.16, 13.57, 33.99, 180)),
    "celeba": (0.02, 1.0, 1000, 515, (15.51, 13.95, 34.83, 191)),
}


@pytest.mark.parametrize("name", PAPER)
def test_published_epsilon_and_what_it_should_have_been(name):
    sigma, clip, rounds, tasks, (published, tight, replace, fixed) = PAPER[name]
    noise, delta = sigma * 100 / clip, 1 / tasks
    poisson = {Release(Poisson(100 / tasks), noise): rounds}
    rdp = RdpAccountant(neighboring_relation=ADD)
    rdp.compose(Poisson(100 / tasks).event(noise), rounds)
    assert rdp.get_epsilon(delta) == pytest.approx(published, abs=0.006)
    assert spent(poisson, delta, "add-remove").epsilon == pytest.approx(tight, abs=0.006)
    assert spent(poisson, delta, "replace").epsilon == pytest.approx(replace, abs=0.006)
    without = {Release(FixedSize(100, tasks), noise): rounds}
    assert spent(without, delta, "replace").epsilon == pytest.approx(fixed, abs=0.6)
    assert spent(without, delta, "replace").accountant == "RDP"


@settings(max_examples=7, deadline=None)
@given(
    noise=st.floats(2, 30),
    rate=st.floats(0.05, 0.9),
    rounds=st.integers(1, 200),
    neighbours=st.sampled_from(["add-remove", "replace"]),
)
def test_epsilon_rises_with_rounds_and_rate_and_falls_with_noise(noise, rate, rounds, neighbours):
    def epsilon(noise, rate, rounds):
        return spent({Release(Poisson(rate), noise): rounds}, 1e-4, neighbours).epsilon

    here, tiny = epsilon(noise, rate, rounds), 1e-6
    assert epsilon(noise, rate, rounds + 20) >= here - tiny
    assert epsilon(noise, min(1.0, rate * 1.1), rounds) >= here - tiny
    assert epsilon(noise * 1.2, rate, rounds) <= here + tiny


@settings(max_examples=10, deadline=None)
@given(st.permutations([(5.0, 0.2), (9.0, 0.2), (5.0, 0.6), (12.0, 0.5), (5.0, 0.2)]))
def test_composition_does_not_depend_on_the_order(order):
    from collections import Counter

    counted = Counter(Release(Poisson(rate), noise) for noise, rate in order)
    expected = spent(
        {
            Release(Poisson(0.2), 5.0): 2,
            Release(Poisson(0.2), 9.0): 1,
            Release(Poisson(0.6), 5.0): 1,
            Release(Poisson(0.5), 12.0): 1,
        },
        1e-4,
        "add-remove",
    )
    assert spent(counted, 1e-4, "add-remove") == expected


def test_edge_cases_nothing_and_everything():
    assert spent({}, 1e-3, "add-remove").epsilon == 0
    assert spent({Release(Poisson(0.5), 0.0): 1}, 1e-3, "add-remove").epsilon == math.inf
    hopeless = spent({Release(Poisson(0.5), 0.02): 200}, 1e-3, "add-remove").epsilon
    assert hopeless > 1e4  # far too little noise: a large bound, not a crash
    with pytest.raises(TacitError, match="delta"):
        spent({}, 0.0, "add-remove")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(("epsilon", "rounds", "rate"), [(0.1, 20, 0.2), (1, 100, 0.5), (4, 50, 1)])
def test_calibrated_noise_keeps_the_promise_and_wastes_little(epsilon, rounds, rate, neighbours):
    sampler = Poisson(rate)
    noise = noise_for(epsilon, 1e-3, sampler, rounds, neighbours)
    assert spent({Release(sampler, noise): rounds}, 1e-3, neighbours).epsilon <= epsilon
    less = {Release(sampler, noise * 0.999): rounds}
    assert spent(less, 1e-3, neighbours).epsilon > epsilon


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("rounds", "delta"), [(1, 1e-3), (100, 1 / 205), (1000, 1e-5)])
def test_theorem_1_is_an_upper_bound_for_full_participation(epsilon, rounds, delta):
    clip, tasks = 0.2, 205
    noise = theorem_1(epsilon, delta, clip, rounds, tasks) * tasks / clip
    exact = spent({Release(Everyone(), noise): rounds}, delta, "replace").epsilon
    assert exact <= epsilon
    assert exact > epsilon / 20  # and not vacuous


def test_affordable_is_the_last_count_that_fits():
    release = Release(Poisson(0.5), 10.0)
    before = {Release(Poisson(0.5), 4.0): 2}
    most = affordable(before, [release] * 1000, 1.5, 1e-3, "add-remove")
    within = spent({**before, release: most}, 1e-3, "add-remove").epsilon
    beyond = spent({**before, release: most + 1}, 1e-3, "add-remove").epsilon
    assert within <= 1.5 < beyond
    assert affordable(before, [release] * 100, 0.01, 1e-3, "add-remove") == 0


def test_growth_for_display_is_close_and_ends_exact():
    release = Release(Poisson(0.5), 10.0)
    curve = growth([release] * 300, 1e-3, "add-remove")
    assert curve[0] == 0
    assert len(curve) == 301
    assert curve[300] == pytest.approx(spent({release: 300}, 1e-3, "add-remove").epsilon)
    for n in (7, 60, 140):
        assert curve[n] == pytest.approx(spent({release: n}, 1e-3, "add-remove").epsilon, rel=0.05)


@pytest.mark.parametrize(
    ("sampling", "cohort", "words"),
    [
        ("poisson", 0.0, "rate in"),
        ("poisson", 1.5, "rate in"),
        ("poisson", 300, "only 200 tasks"),
        ("everyone", 0.5, "leave cohort out"),
        ("stratified", 0.5, "choose one of"),
    ],
)
def test_bad_cohorts_are_refused(sampling, cohort, words):
    with pytest.raises(TacitError, match=words):
        sampler_for(sampling, cohort, 200)
