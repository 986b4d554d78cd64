"""The composition that printed budgets rest on, and budgets that never pass it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.mpmtl.composition import (
    advanced,
    composed,
    data_level,
    largest_first,
    refined,
    simple,
    task_level,
)
from tacit.errors import TacitError
from tacit.privacy.schedule import shares

budgets = st.lists(st.floats(1e-6, 5.0), min_size=1, max_size=30)
deltas = st.floats(1e-9, 0.1)


def test_the_branches_are_those_of_equation_7():
    epsilons, delta = [0.1, 0.3, 2.0], 1e-3
    drift = sum((math.exp(e) - 1) * e / (math.exp(e) + 1) for e in epsilons)
    squares = sum(e**2 for e in epsilons)
    assert simple(epsilons, delta) == pytest.approx(2.4)
    assert advanced(epsilons, delta) == pytest.approx(
        drift + math.sqrt(sum(2 * e**2 * math.log(1 / delta) for e in epsilons))
    )
    inner = math.log(math.e + math.sqrt(squares) / delta)
    assert refined(epsilons, delta) == pytest.approx(drift + math.sqrt(2 * squares * inner))


@pytest.mark.parametrize(
    ("epsilons", "best"),
    [([1.0], simple), ([0.01] * 1000, refined), ([0.1] * 400, advanced)],
)
def test_each_branch_is_the_smallest_somewhere(epsilons, best):
    delta = 1e-5
    branches = {branch: branch(epsilons, delta) for branch in (simple, advanced, refined)}
    assert min(branches, key=branches.__getitem__) is best
    assert composed(epsilons, delta) == branches[best]


@pytest.mark.parametrize("branch", [simple, advanced, refined, composed])
@pytest.mark.parametrize(("epsilon", "rounds"), [(0.02, 100), (0.1, 100), (0.5, 10), (2.0, 3)])
def test_no_branch_promises_more_than_exact_composition_of_the_worst_mechanism(
    branch, epsilon, rounds
):
    delta = 1e-4
    worst = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=1e-4
    )
    exact = worst.self_compose(rounds).get_epsilon_for_delta(delta)
    assert branch([epsilon] * rounds, delta) >= exact - 1e-4 * rounds
    assert composed([epsilon] * rounds, delta) <= 2 * exact  # and is worth printing


@settings(max_examples=200, deadline=None)
@given(budgets, deltas, st.floats(1.001, 3.0), st.data())
def test_composition_grows_with_every_budget_and_falls_with_delta(epsilons, delta, factor, data):
    before = composed(epsilons, delta)
    position = data.draw(st.integers(0, len(epsilons) - 1))
    more = [e * factor if i == position else e for i, e in enumerate(epsilons)]
    assert composed(more, delta) >= before
    assert composed([*epsilons, 0.5], delta) > before
    assert composed([e * factor for e in epsilons], delta) > before
    assert composed(epsilons, delta / factor) >= before
    assert composed(epsilons[::-1], delta) == pytest.approx(before, rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 200),
    st.one_of(
        st.fixed_dictionaries({"alpha": st.floats(-1, 2)}),
        st.fixed_dictionaries({"q": st.floats(0.3, 1.0)}),
    ),
    st.floats(1e-3, 20.0),
    deltas,
)
def test_the_first_budget_is_the_largest_and_never_too_large(rounds, shape, epsilon, delta):
    parts = shares(rounds, **shape)
    first = largest_first(parts, epsilon, delta)
    assert composed(first * parts, delta) <= epsilon
    assert composed(first * (1 + 3e-9) * parts, delta) > epsilon


def test_one_round_gets_everything():
    assert largest_first(shares(1), 0.7, 1e-3) == pytest.approx(0.7, rel=1e-8)


@settings(deadline=None)
@given(st.floats(1e-3, 20), deltas, st.integers(1, 5000))
def test_levels_of_rows_and_tasks_invert_each_other(epsilon, delta, rows):
    row = data_level(epsilon, delta, rows)
    assert row == (pytest.approx(epsilon / rows), pytest.approx(delta / rows / math.exp(epsilon)))
    assert task_level(*row, rows) == (pytest.approx(epsilon), pytest.approx(delta))
    assert data_level(epsilon, delta, 1)[0] == epsilon
    # Group privacy row by row: δ of k rows is δ of k − 1 rows · e^ε' + δ', never above the claim.
    grown = 0.0
    for _ in range(rows):
        grown = grown * math.exp(row[0]) + row[1]
    assert grown <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: composed([-0.1], 1e-3), "not negative"),
        (lambda: composed([math.inf], 1e-3), "not negative"),
        (lambda: composed([0.1], 0.0), "delta=0.0"),
        (lambda: largest_first(np.zeros(3), 1.0, 1e-3), "at least one that is not zero"),
        (lambda: largest_first([1.0], math.inf, 1e-3), "epsilon=inf"),
        (lambda: data_level(1.0, 0.1, 0), "at least one row"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(call, says):
    with pytest.raises(TacitError, match=says):
        call()
