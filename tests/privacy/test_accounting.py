"""Every ε against an independent dp-accounting computation, the paper's own figures, and theory."""

from __future__ import annotations

import logging
import math
from collections import Counter

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from tacit import TacitError
from tacit.privacy import (
    Everyone,
    InTurn,
    Poisson,
    Release,
    Repeated,
    accounting,
    noise_for,
    spent,
)
from tacit.privacy.accounting import affordable, growth
from tacit.privacy.calibration import smallest_noise
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
    }[pair]
    accountant = kind(neighboring_relation=relation)
    accountant.compose(dp.SelfComposedDpEvent(event, rounds))
    return accountant.get_epsilon(delta)


SAMPLERS = {"poisson": Poisson(0.3), "everyone": Everyone()}
PAIRS = ("poisson add-remove", "poisson replace", "everyone add-remove", "everyone replace")


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("noise", "rounds"), [(1.5, 1), (8.0, 50), (20.0, 500)])
def test_every_offered_pair_equals_dp_accounting(pair, noise, rounds):
    sampling, neighbours = pair.split(" ")
    found = spent({Release(SAMPLERS[sampling], noise): rounds}, 1e-3, neighbours)
    assert found.epsilon == pytest.approx(independent(pair, noise, rounds, 1e-3), abs=1e-6)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_noise_for_everyone_is_that_of_the_grid_without_a_grid(neighbours, monkeypatch):
    """Releases of different weights, calibrated in closed form, cost what dp-accounting says."""
    weights = (0.3, 0.3, 0.2, 1.0, 0.8)
    with monkeypatch.context() as patched:
        patched.setattr(accounting, "_compose", None)
        noise = noise_for(1.0, 1e-6, Everyone(), 5, neighbours, weights=weights)
        found = spent({Release(Everyone(), noise / w): 1 for w in set(weights)}, 1e-6, neighbours)
    assert found.accountant == "PLD"
    accountant = PLDAccountant({"add-remove": ADD, "replace": REPLACE}[neighbours])
    for weight in weights:
        accountant.compose(dp.GaussianDpEvent(noise / weight))
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0, abs=2e-4)  # noise is to 0.01 %
    together = (sum(weight**2 for weight in weights) / noise**2) ** -0.5
    exact = accounting._plain(together, 1e-6, neighbours)
    on_the_grid = accounting._compose(
        "PLD", frozenset([(Release(Everyone(), together), 1)]), 1e-6, neighbours
    )
    assert exact == pytest.approx(on_the_grid, abs=1e-6)
    assert accountant.get_epsilon(1e-6) > exact - 1e-9


@pytest.mark.parametrize("noise", [0.05, 0.7, 6.5, 200.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_a_plain_epsilon_is_never_below_the_true_one(noise, delta):
    """δ at the ε that is printed, in 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        epsilon, z = mpmath.mpf(accounting._plain(noise, delta, "add-remove")), mpmath.mpf(noise)
        missed = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon * z - 1 / (2 * z))
        assert mpmath.ncdf(1 / (2 * z) - epsilon * z) - missed <= delta


PAPER = {  # data set: σ, γ, T, m (q = 100, δ = 1/m), then the four ε of docs/privacy.md
    "femnist": (0.02, 0.2, 1000, 205, (5.30, 4.61, 11.99, 20.45)),
    "stackoverflow": (0.01, 0.5, 600, 400, (15.16, 13.57, 33.99, 112.72)),
    "celeba": (0.02, 1.0, 1000, 515, (15.51, 13.95, 34.83, 141.60)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_published_epsilon_and_what_it_should_have_been(name):
    sigma, clip, rounds, tasks, (published, tight, replace, written) = PAPER[name]
    noise, delta = sigma * 100 / clip, 1 / tasks
    poisson = {Release(Poisson(100 / tasks), noise): rounds}
    rdp = RdpAccountant(neighboring_relation=ADD)
    rdp.compose(Poisson(100 / tasks).event(noise), rounds)
    assert rdp.get_epsilon(delta) == pytest.approx(published, abs=0.006)
    assert spent(poisson, delta, "add-remove").epsilon == pytest.approx(tight, abs=0.006)
    assert spent(poisson, delta, "replace").epsilon == pytest.approx(replace, abs=0.006)
    assert drawn_in_public(100, tasks, noise, rounds, delta) == pytest.approx(written, abs=0.006)
    turns = Counter(Release(InTurn(100, tasks).at(t), noise) for t in range(rounds))
    assert 0.96 * written < spent(turns, delta, "replace").epsilon < written


def drawn_in_public(size: int, tasks: int, noise: float, rounds: int, delta: float) -> float:
    """ε of random cohorts of exact size, for all others together, who know who was drawn.

    A task is in N of the rounds, N binomial; N is known and does not depend on the task's data, so
    δ(ε) is exactly the mean over N of that of N Gaussian releases, each moved by two clips.
    """
    held = np.arange(1, rounds + 1)
    chance, mu = stats.binom.pmf(held, rounds, size / tasks), 2 * np.sqrt(held) / noise

    def excess(epsilon: float) -> float:
        missed = np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
        return float(chance @ (stats.norm.cdf(mu / 2 - epsilon / mu) - missed)) - delta

    return brentq(excess, 0, 1000)


@pytest.mark.slow
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
    for sampler in (Everyone(), InTurn(2, 4).at(1)):  # 1/0² is a number too
        assert spent({Release(sampler, 0.0): 1}, 1e-3, "add-remove").epsilon == math.inf
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


@pytest.mark.parametrize("needed", [0.011, 0.3, 7.0, 5e5])
@pytest.mark.parametrize(("epsilon", "power"), [(0.25, 1), (4.0, 2)])
def test_the_search_for_noise_ends_at_the_smallest_wherever_it_is(needed, epsilon, power):
    """Costs whose answer is known; it is found within a few dozen of the dear evaluations."""
    asked = []

    def cost(noise: float, needed: float = needed) -> float:
        asked.append(noise)
        assert len(asked) < 60
        return epsilon * (needed / noise) ** power

    assert needed <= smallest_noise(cost, epsilon, 1e-3, 10) <= 1.00011 * needed
    asked.clear()
    with pytest.raises(TacitError, match="no noise reaches"):
        smallest_noise(lambda noise: cost(noise, math.inf), epsilon, 1e-3, 10)
    with pytest.raises(TacitError, match="a positive number"):
        smallest_noise(cost, math.inf, 1e-3, 10)


def theorem_1(epsilon: float, delta: float, clip: float, releases: int, tasks: int) -> float:
    """The paper's closed form for full participation: σ of the noise on the *mean* update.

    Hu, Wu, Smith (2023), Theorem 1: σ = 4γ √(T log(1/δ)) / (ε m) suffices when every task takes
    part in each of the T rounds and neighbours replace one task. `theorem_1(...) · tasks / clip` is
    the noise multiplier of that σ; the PLD accountant shows how much less is enough.
    """
    return 4 * clip * math.sqrt(releases * math.log(1 / delta)) / (epsilon * tasks)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("rounds", "delta"), [(1, 1e-3), (100, 1 / 205), (1000, 1e-5)])
def test_theorem_1_is_an_upper_bound_for_full_participation(epsilon, rounds, delta):
    clip, tasks = 0.2, 205
    noise = theorem_1(epsilon, delta, clip, rounds, tasks) * tasks / clip
    exact = spent({Release(Everyone(), noise): rounds}, delta, "replace").epsilon
    assert exact <= epsilon
    assert exact > epsilon / 20  # and not vacuous


def test_theorem_1_is_the_formula_of_the_paper():
    assert theorem_1(2.0, math.exp(-4), 0.5, 9, 3) == pytest.approx(4 * 0.5 * 6 / (2 * 3))


@pytest.mark.slow
def test_affordable_is_the_last_count_that_fits():
    release = Release(Poisson(0.5), 10.0)
    before = {Release(Poisson(0.5), 4.0): 2}
    most = affordable(before, [release] * 300, 1.5, 1e-3, "add-remove")
    within = spent({**before, release: most}, 1e-3, "add-remove").epsilon
    beyond = spent({**before, release: most + 1}, 1e-3, "add-remove").epsilon
    assert within <= 1.5 < beyond
    assert affordable(before, [release] * 100, 0.01, 1e-3, "add-remove") == 0


def turns(sampler: InTurn, noise: float, rounds: int) -> list[Release]:
    return [Release(sampler.at(t, key=5), noise) for t in range(rounds)]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_in_turn_calibration_budget_and_display_agree(neighbours):
    sampler, rounds = InTurn(20, 1000), 300
    noise = noise_for(1.0, 1e-4, sampler, rounds, neighbours)
    coming = turns(sampler, noise, rounds)
    assert 0.999 < spent(Counter(coming), 1e-4, neighbours).epsilon <= 1.0
    # As many as fit: the sixth time around is paid for, a seventh is not.
    assert affordable({}, turns(sampler, noise, 400), 1.0, 1e-4, neighbours) == 300
    # A round that a crash repeated takes the last turn of those in it.
    assert affordable(Counter(coming[:1]), coming, 1.0, 1e-4, neighbours) == 250
    curve = growth(coming, 1e-4, neighbours)
    for n in (1, 49, 50, 51, 100, 101, 299, 300):
        exact = spent(Counter(coming[:n]), 1e-4, neighbours).epsilon
        assert curve[n] == pytest.approx(exact, rel=0.02)


def test_in_turn_weights_charge_the_rounds_that_a_task_is_in():
    weights = [1.0 if t % 5 == 2 else 0.2 for t in range(20)]  # one task is in all dear rounds
    noise = noise_for(1.0, 1e-4, InTurn(2, 10), 20, "replace", weights=weights)
    assert noise == pytest.approx(noise_for(1.0, 1e-4, Everyone(), 4, "replace"), rel=2e-4)


def test_everyone_with_replace_has_an_rdp_bound_with_the_factor_two():
    """Too little noise for the PLD accountant's memory is still no crash, nor an ε too small."""
    found = {
        neighbours: accounting._compose(
            "RDP", frozenset({(Release(Everyone(), noise), 1)}), 1e-3, neighbours
        )
        for neighbours, noise in (("replace", 6.0), ("add-remove", 3.0))
    }
    assert found["replace"] == found["add-remove"]
    exact = spent({Release(Everyone(), 6.0): 1}, 1e-3, "replace").epsilon
    assert exact < found["replace"] < 1.3 * exact


def test_the_accountant_leaves_the_level_of_others_messages_alone():
    logger = logging.getLogger("absl")
    logger.setLevel(logging.INFO)
    spent({Repeated(frozenset({(Release(Everyone(), 3.0), 1)}), 2.0): 1}, 1e-3, "add-remove")
    assert logger.level == logging.INFO


def test_growth_is_finite_where_delta_covers_the_first_releases():
    """With much noise one release costs nothing at this δ, and many do."""
    release = Release(Poisson(0.5), 50.0)
    assert spent({release: 1}, 5e-3, "add-remove").epsilon == 0
    curve = growth([release] * 60, 5e-3, "add-remove")
    last = spent({release: 60}, 5e-3, "add-remove").epsilon
    assert curve[0] == 0 < curve[1] <= curve[-1] < 1
    assert curve[-1] == pytest.approx(last)
    assert growth([release], 5e-3, "add-remove") == [0, 0]


def test_growth_for_display_is_close_and_ends_exact():
    release = Release(Poisson(0.5), 10.0)
    curve = growth([release] * 300, 1e-3, "add-remove")
    assert curve[0] == 0
    once = spent({release: 1}, 1e-3, "add-remove").epsilon
    assert curve[1] == pytest.approx(once)
    assert growth([release], 1e-3, "add-remove") == pytest.approx([0, once])
    assert growth([Release(Everyone(), 0.0)] * 2, 1e-3, "replace") == [0, math.inf, math.inf]
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


def test_growth_follows_what_rounds_pay_where_they_differ():
    releases = [Release(Everyone(), 20.0 / (1 + t / 10)) for t in range(40)]
    shown = growth(releases, 1e-4, "add-remove")
    for count in (3, 8, 20, 33):
        exact = spent(Counter(releases[:count]), 1e-4, "add-remove").epsilon
        assert shown[count] == pytest.approx(exact, rel=0.005)


@pytest.mark.parametrize(
    ("releases", "neighbours", "widest"),
    [
        # One release of noise z moves the loss by (clips/z)²/2 and spreads it by clips/z.
        ({Release(Everyone(), 0.05): 1}, "add-remove", 400 / 2 + 8 * 20),
        ({Release(Everyone(), 0.1): 1}, "replace", 400 / 2 + 8 * 20),
        ({Release(Everyone(), 0.1): 1}, "add-remove", 100 / 2 + 8 * 10),
        ({Release(Everyone(), 0.25): 100}, "add-remove", 1600 / 2 + 8 * 40),
        # A secret cohort takes 2 ln(1/rate) off each release, but none off the widest.
        ({Release(Poisson(math.exp(-1)), 0.2): 100}, "add-remove", 2300 / 2 + 8 * math.sqrt(2300)),
        ({Release(Poisson(math.exp(-1)), 1 / 6): 1}, "add-remove", 36 / 2 + 8 * 6),
        # From 50 on that is left out: e^50 would soon be beyond all numbers.
        ({Release(Poisson(math.exp(-1)), 50.5**-0.5): 100}, "add-remove", 2525 + 8 * 5050**0.5),
    ],
)
def test_the_grid_is_dp_accountings_own_until_the_loss_is_wider_than_a_hundred(
    releases, neighbours, widest
):
    """Then it has a million steps, so that memory does not grow with a useless ε."""
    found = accounting._interval(frozenset(releases.items()), neighbours)
    assert found == pytest.approx(1e-4 * max(1.0, widest / 100), rel=1e-6)


def test_a_release_that_spends_the_budget_to_the_last_digit_is_affordable():
    release = Release(Everyone(), 10.0)
    exactly = spent({release: 2}, 1e-3, "add-remove").epsilon
    assert affordable({}, [release] * 3, exactly, 1e-3, "add-remove") == 2
    assert affordable({release: 1}, [release] * 2, exactly, 1e-3, "add-remove") == 1


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_releases_are_composed_as_dp_accounting_composes_them(neighbours):
    """To the last bit, though the loss of one release is kept and not made again."""
    relation = {"add-remove": ADD, "replace": REPLACE}[neighbours]
    for booked in (
        {Release(Poisson(0.25), 2.0): 40},
        {Release(Poisson(0.2), 2.0): 1},
        {
            Release(Poisson(0.2), 2.0): 30,
            Release(Poisson(0.2), 3.0): 7,
            Release(Everyone(), 5.0): 1,
        },
    ):
        theirs = PLDAccountant(relation)
        for release, count in sorted(booked.items(), key=lambda pair: (str(pair[0]), pair[1])):
            theirs.compose(release.event(1.0), count)
        assert spent(booked, 1e-5, neighbours).epsilon == theirs.get_epsilon(1e-5)


def test_the_loss_of_a_release_is_made_once_for_all_points_of_a_curve(monkeypatch):
    made, make = [], accounting._dots
    count = lambda *given, **named: made.append(given) or make(*given, **named)  # noqa: E731
    monkeypatch.setattr(accounting, "_dots", count)
    growth([Release(Poisson(0.123), 1.7)] * 100, 1e-5, "add-remove")
    assert len(made) == 2  # for a task that is removed, and for one that is added


@pytest.mark.parametrize(
    ("noise", "rate"), [(1.0, 0.25), (0.5, 0.01), (4.0, 0.5), (50.0, 0.001), (2.0, 0.999)]
)
def test_losses_of_all_points_at_once_are_those_of_dp_accounting(noise, rate):
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    ours = accounting._loss(event, ADD, 1e-4)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-4, sampling_prob=rate
    )
    for epsilon in (-0.02, 0.0, 1e-3, 0.1, 1.0, 5.0):
        found, expected = (one.get_delta_for_epsilon(epsilon) for one in (ours, theirs))
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-13)
    for count, delta in ((1, 1e-5), (30, 1e-3), (30, 1e-6)):
        found, expected = (
            one.self_compose(count).get_epsilon_for_delta(delta) for one in (ours, theirs)
        )
        assert found == pytest.approx(expected, abs=1e-8)
