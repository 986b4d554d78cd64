"""Paths against cold solves; folds lie inside tasks; the choice is the one scores name."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tacit.classical import (
    SOLVERS,
    cross_validate,
    mean_regularised,
    path,
    ridge,
    strongest,
    trace_norm,
)
from tacit.classical.path import within_tasks
from tacit.errors import TacitError
from tests.classical.cases import KINDS, generated


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_path_equals_cold_solves_in_the_order_given(name, kind):
    problem, strengths = generated(kind, [12, 30, 7, 25], features=4), [0.03, 1.0, 0.2]
    for strength, fit in zip(strengths, path(SOLVERS[name], problem, strengths), strict=True):
        cold = SOLVERS[name](problem, strength)
        torch.testing.assert_close(fit.w, cold.w, atol=2e-5, rtol=2e-5)


def test_a_path_goes_down_and_hands_each_fit_on():
    problem, asked = generated("regression", [5, 6], features=2), []

    def solver(problem, strength, *, start=None):
        asked.append((strength, start))
        return ridge(problem, strength, start=start)

    fits = path(solver, problem, [0.1, 3.0, 1.0, 3.0])
    assert [strength for strength, _ in asked] == [3.0, 1.0, 0.1]
    assert asked[0][1] is None
    assert asked[1][1] is fits[1].w
    assert asked[2][1] is fits[2].w


def test_a_warm_path_takes_fewer_iterations():
    problem = generated("regression", [30] * 6, features=5)
    strengths = [strongest(problem, trace_norm) * 0.8**i for i in range(1, 25)]
    warm = sum(fit.iterations for fit in path(trace_norm, problem, strengths))
    cold = sum(trace_norm(problem, strength).iterations for strength in strengths)
    assert warm < cold


def test_only_norms_have_a_strongest_strength():
    with pytest.raises(TacitError, match="lasso, group_sparse, trace_norm"):
        strongest(generated("regression", [4, 5], features=2), ridge)


def test_every_task_is_in_every_fold_as_far_as_its_rows_go():
    counts = [1, 2, 3, 5, 11, 50]
    problem = generated("regression", counts, features=2)
    fold = within_tasks(problem, 5, seed=0)
    for k, count in enumerate(counts):
        own = fold[problem.owner == k]
        if count == 1:
            assert own.tolist() == [-1]
            continue
        sizes = torch.bincount(own, minlength=5)
        assert int(sizes.sum()) == count
        assert int(sizes.max() - sizes.min()) <= 1
    for number in range(5):
        assert (problem.subset(fold != number).counts > 0).all()
    assert torch.equal(fold, within_tasks(problem, 5, seed=0))
    assert not torch.equal(fold, within_tasks(problem, 5, seed=1))
    large = fold[problem.owner == 5]
    assert (large.diff() % 5 != 1).any()  # rows are shuffled before they are dealt out


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_mean_losses_of_held_out_rows(kind):
    problem, strengths = generated(kind, [12, 30, 7, 25], features=4), [0.01, 0.1, 30.0]
    choice = cross_validate(ridge, problem, strengths, folds=3, seed=4)
    fold = within_tasks(problem, 3, seed=4)
    for i, strength in enumerate(strengths):
        for number in range(3):
            held = problem.subset(fold == number)
            said = held.predict(ridge(problem.subset(fold != number), strength).w)
            y = held.y
            if kind == "regression":
                expected = (said - y).square().mean()
            else:
                expected = -(y * said.log() + (1 - y) * (1 - said).log()).mean()
            torch.testing.assert_close(choice.scores[i, number], expected, rtol=1e-6, atol=1e-9)
    assert choice.strength == strengths[int(choice.scores.mean(dim=1).argmin())]
    torch.testing.assert_close(choice.fit.w, ridge(problem, choice.strength).w)


def test_cross_validation_finds_that_alike_tasks_should_be_pulled_together():
    problem = generated("regression", [8] * 20, features=6)
    pulled = cross_validate(partial(mean_regularised, strength=1e-3), problem, [1e-4, 1e-2, 1.0])
    alone = cross_validate(ridge, problem, [1e-4, 1e-2, 1.0])
    assert pulled.strength > 1e-4
    assert pulled.scores.mean(dim=1).min() < alone.scores.mean(dim=1).min()


def test_what_cannot_be_validated_is_said():
    problem = generated("regression", [3, 2], features=2)
    with pytest.raises(TacitError, match="at least one"):
        cross_validate(ridge, problem, [])
    with pytest.raises(TacitError, match="at least two folds"):
        cross_validate(ridge, problem, [1.0], folds=1)
    with pytest.raises(TacitError, match="too many"):
        cross_validate(ridge, problem, [1.0], folds=20)
