"""Solvers against scikit-learn, dense normal equations and the conditions of optimality."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso, LogisticRegression, MultiTaskLasso, Ridge
from torch import Tensor

from tacit.classical import (
    SOLVERS,
    Problem,
    group_sparse,
    lasso,
    mean_regularised,
    pooled,
    relationship,
    ridge,
    strongest,
    task_covariance,
    trace_norm,
)
from tacit.classical.proximal import TRACE, minimise
from tacit.classical.solvers import _direction
from tacit.errors import TacitError
from tests.classical.cases import KINDS, generated, random_models, rows_of

RAGGED = [12, 40, 5, 1, 23]
SHAPES = {
    "ragged": (RAGGED, 4),
    "fewer rows than features": ([4, 6, 2, 3], 9),
    "one task": ([30], 5),
    "more features than tasks": ([50, 60], 8),
}


def task(problem: Problem, k: int) -> tuple[np.ndarray, np.ndarray]:
    span = slice(int(problem.offsets[k]), int(problem.offsets[k + 1]))
    return problem.x[span, : problem.penalised].numpy(), problem.y[span].numpy()


# --- distance of −gradient to strength × the subdifferential of each norm, from its definition ---


def distance_l1(v: Tensor, g: Tensor, strength: float) -> Tensor:
    at_zero = (g.abs() - strength).clamp_min(0)
    return torch.where(v == 0, at_zero, g + strength * v.sign())


def distance_group(v: Tensor, g: Tensor, strength: float) -> Tensor:
    length, slope = v.norm(dim=0), g.norm(dim=0)
    away = g + strength * v / length.clamp_min(1e-300)
    return torch.where(length > 0, away.norm(dim=0), (slope - strength).clamp_min(0))


def distance_trace(v: Tensor, g: Tensor, strength: float) -> Tensor:
    """−g must be strength·(UVᵀ + R), R of spectral norm ≤ 1 and orthogonal to U and V."""
    u, values, right = torch.linalg.svd(v, full_matrices=False)
    kept = values > 1e-8 * max(float(values.max()), 1e-300)
    u, right = u[:, kept], right[kept]
    left_over = g - u @ (u.mT @ g)
    left_over = left_over - (left_over @ right.mT) @ right
    rest = g + strength * u @ right - left_over
    beyond = (torch.linalg.svdvals(left_over) - strength).clamp_min(0)
    return torch.cat([rest.flatten(), beyond])


DISTANCES = {lasso: distance_l1, group_sparse: distance_group, trace_norm: distance_trace}


@pytest.mark.parametrize("solver", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_norms_are_minimised_to_the_optimality_conditions(solver, kind, shape, share):
    problem = generated(kind, *SHAPES[shape])
    strength = share * strongest(problem, solver)
    fit = solver(problem, strength)
    assert fit.converged

    def distance(problem: Problem, w: Tensor) -> float:
        g, p = problem.gradient(w), problem.penalised
        away = DISTANCES[solver](w[:, :p], g[:, :p], strength)
        return float(torch.sqrt(away.square().sum() + g[:, p:].square().sum())) / problem.scale

    assert distance(problem, fit.w) < 1e-6
    certified = distance(problem.centred(), problem.recentred(fit.w))
    assert certified <= fit.residual + 1e-9  # the certificate is an upper bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", DISTANCES)
def test_the_strongest_strength_is_where_features_vanish(solver, kind):
    problem = generated(kind, RAGGED, features=4)
    top = strongest(problem, solver)
    assert solver(problem, 1.001 * top).w[:, :-1].abs().max() < 1e-9
    assert solver(problem, 0.99 * top).w[:, :-1].abs().max() > 1e-5


# --- each task alone, and all as one, against scikit-learn ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_equals_scikit_learn_task_by_task(shape, intercept):
    problem = generated("regression", *SHAPES[shape], intercept=intercept)
    fit = ridge(problem, 0.3)
    for k in range(problem.tasks):  # its objective is Σ (xw − y)² + alpha ‖w‖²
        model = Ridge(alpha=0.3 * problem.mean_count, fit_intercept=intercept, tol=1e-12)
        model.fit(*task(problem, k))
        np.testing.assert_allclose(fit.w[k, : problem.penalised], model.coef_, atol=1e-9)
        if intercept:
            np.testing.assert_allclose(fit.w[k, -1], model.intercept_, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_logistic_ridge_equals_scikit_learn_task_by_task(intercept):
    problem = generated("binary", [20, 45, 31], features=4, intercept=intercept)
    fit = ridge(problem, 0.05)
    for k in range(problem.tasks):  # its objective is C Σ loss + ½‖w‖²
        c = 1 / (0.05 * problem.mean_count)
        model = LogisticRegression(C=c, fit_intercept=intercept, tol=1e-10, max_iter=10_000)
        model.fit(*task(problem, k))
        np.testing.assert_allclose(fit.w[k, : problem.penalised], model.coef_[0], atol=1e-5)
        if intercept:
            np.testing.assert_allclose(fit.w[k, -1], model.intercept_[0], atol=1e-5)


def test_a_newton_step_solves_the_whole_system_with_the_intercept():
    problem = generated("binary", [20, 45, 31], features=4)
    w, rhs = random_models(problem), random_models(problem, seed=2)
    keep = torch.diag(torch.tensor([0.3] * 4 + [0.0], dtype=torch.float64))
    expected = torch.linalg.solve(problem.hessian(w) + keep, rhs)
    eye = torch.eye(4, dtype=torch.float64)
    step = _direction(problem, w, rhs, lambda a, b: torch.linalg.solve(a + 0.3 * eye, b))
    torch.testing.assert_close(step, expected, rtol=1e-9, atol=1e-9)


def test_lasso_equals_scikit_learn_task_by_task():
    problem = generated("regression", [12, 40, 5, 23], features=6)
    fit = lasso(problem, 0.2)
    for k in range(problem.tasks):  # its objective is Σ (xw − y)² / (2 n_k) + alpha ‖w‖₁
        count = int(problem.counts[k])
        model = Lasso(alpha=0.2 * problem.mean_count / count, tol=1e-12, max_iter=100_000)
        model.fit(*task(problem, k))
        np.testing.assert_allclose(fit.w[k, :-1], model.coef_, atol=1e-5)


def test_group_sparse_equals_scikit_learn_where_tasks_share_their_rows():
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    w = torch.randn(6, 3, generator=draw, dtype=torch.float64) * torch.tensor(
        [[1.0]] * 3 + [[0]] * 3
    )
    y = x @ w + 0.3 * torch.randn(40, 3, generator=draw, dtype=torch.float64)
    problem = Problem.of(rows_of(x.repeat(3, 1), y.mT.flatten(), [40] * 3), "regression")
    fit = group_sparse(problem, 0.1)
    model = MultiTaskLasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(fit.w[:, :-1], model.coef_, atol=1e-6)
    np.testing.assert_allclose(fit.w[:, -1], model.intercept_, atol=1e-6)
    assert 0 < (fit.w[:, :-1].norm(dim=0) == 0).sum() < 6


def test_pooled_equals_scikit_learn_on_all_rows():
    problem = generated("regression", RAGGED, features=4)
    fit = pooled(problem, 0.1)
    model = Ridge(alpha=0.1 * len(problem.y)).fit(problem.x[:, :-1].numpy(), problem.y.numpy())
    np.testing.assert_allclose(fit.w[:, :-1], np.tile(model.coef_, (5, 1)), atol=1e-10)
    np.testing.assert_allclose(fit.w[:, -1], np.full(5, model.intercept_), atol=1e-10)


# --- mean-regularised ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("pull", "strength"), [(2.0, 0.1), (0.1, 2.0), (1e6, 0.1), (1.0, 1.0)])
def test_mean_regularised_equals_the_whole_normal_equations(shape, pull, strength):
    problem = generated("regression", *SHAPES[shape])
    m, d, p = problem.tasks, problem.x.shape[1], problem.penalised
    mean = np.full((m, m), 1 / m)
    coupling = pull * (np.eye(m) - mean) + strength * mean
    kept = np.diag([1.0] * p + [0.0] * (d - p))
    whole, rhs = np.kron(coupling, kept), np.zeros(m * d)
    for k in range(m):
        x, y = task(problem, k)
        x = np.hstack([x, np.ones((len(x), 1))])
        block = slice(k * d, (k + 1) * d)
        whole[block, block] += x.T @ x / problem.mean_count
        rhs[block] = x.T @ y / problem.mean_count
    expected = np.linalg.solve(whole, rhs).reshape(m, d)
    fit = mean_regularised(problem, pull, strength=strength)
    np.testing.assert_allclose(fit.w, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_regularised_models_solve_the_client_problem_of_pmtl(kind):
    # w_k minimises l_k(w) + pull/2 ‖w − w̃‖² around a mean w̃ that is shrunk by the strength
    problem, pull, strength = generated(kind, RAGGED, features=4), 0.7, 0.2
    w = mean_regularised(problem, pull, strength=strength).w
    v = w[:, :-1].clone().requires_grad_()
    w = torch.cat([v, w[:, -1:]], dim=1)
    penalty = pull / 2 * (v - v.mean(dim=0)).square().sum()
    penalty = penalty + strength / 2 * len(v) * v.mean(dim=0).square().sum()
    (slope,) = torch.autograd.grad(problem.value(w) + penalty, v)
    assert slope.abs().max() < 1e-8 * problem.scale + 1e-10


def test_mean_regularised_lies_between_ridge_and_one_model_for_all():
    problem = generated("regression", [12, 40, 9, 23], features=4)
    alone, same = ridge(problem, 0.5).w, mean_regularised(problem, 0.5, strength=0.5).w
    torch.testing.assert_close(same, alone)
    together = mean_regularised(problem, 1e9, strength=0.5).w[:, :-1]
    assert (together - together.mean(dim=0)).abs().max() < 1e-6
    bare = generated("regression", [12, 40, 9, 23], features=4, intercept=False)
    one = mean_regularised(bare, 1e9, strength=0.5).w
    torch.testing.assert_close(one, pooled(bare, 0.5).w, atol=1e-6, rtol=1e-6)


# --- relationship ---


def joint(problem: Problem, w: Tensor, omega: Tensor, strength: float, ridge: float) -> float:
    v = w[:, : problem.penalised]
    coupled = (v * torch.linalg.lstsq(omega, v, driver="gelsd").solution).sum()
    return float(problem.value(w) + ridge / 2 * v.square().sum() + strength / 2 * coupled)


def given(problem: Problem, omega: Tensor, strength: float, ridge: float) -> Tensor:
    """The models for a fixed Ω, by one dense solve (squared loss)."""
    m, d, p = problem.tasks, problem.x.shape[1], problem.penalised
    keep = torch.diag(torch.tensor([1.0] * p + [0.0] * (d - p), dtype=torch.float64))
    coupling = strength * torch.linalg.inv(omega) + ridge * torch.eye(m, dtype=torch.float64)
    zero = torch.zeros(m, d, dtype=torch.float64)
    whole = torch.kron(coupling.contiguous(), keep) + torch.block_diag(*problem.hessian(zero))
    return torch.linalg.solve(whole, -problem.gradient(zero).flatten()).reshape(m, d)


@pytest.mark.parametrize("ridge_part", [0.0, 0.2])
def test_the_papers_alternation_descends_to_our_relationship_and_stays_there(ridge_part):
    problem, strength = generated("regression", [12, 40, 9], features=5), 0.001
    fit = relationship(problem, strength, ridge=ridge_part)
    omega = task_covariance(problem, fit.w)
    least = joint(problem, fit.w, omega, strength, ridge_part)
    assert torch.linalg.eigvalsh(omega).min() > 1e-6  # full rank here, so Ω⁻¹ makes sense
    torch.testing.assert_close(
        given(problem, omega, strength, ridge_part), fit.w, atol=1e-5, rtol=1e-5
    )
    other, values = torch.eye(3, dtype=torch.float64) / 3, []
    for _ in range(300):
        w = given(problem, other, strength, ridge_part)
        values.append(joint(problem, w, other, strength, ridge_part))
        other = task_covariance(problem, w)
        values.append(joint(problem, w, other, strength, ridge_part))
    steps = np.diff(values)
    assert (steps <= 1e-9).all()
    assert steps[0] < -1e-3
    assert least - 1e-9 <= values[-1] <= least + 1e-6
    torch.testing.assert_close(other, omega, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_relationship_is_the_trace_norm_with_its_own_strength(kind, shape):
    # the gradient of ½‖W‖²_* is ‖W‖_* times a subgradient of ‖W‖_*
    problem = generated(kind, *SHAPES[shape])
    fit = relationship(problem, 0.05)
    v = fit.w[:, : problem.penalised]
    away = distance_trace(v, problem.gradient(fit.w)[:, :-1], 0.05 * float(TRACE.value(v)))
    assert away.norm() < 1e-6 * problem.scale
    omega = task_covariance(problem, fit.w)
    torch.testing.assert_close(omega.trace(), torch.tensor(1.0, dtype=torch.float64))
    assert torch.linalg.eigvalsh(omega).min() > -1e-12
    torch.testing.assert_close(omega @ omega * float(TRACE.value(v)) ** 2, v @ v.mT)


# --- everything alike ---


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_where_a_solver_starts_does_not_matter(name, kind):
    problem = generated(kind, RAGGED, features=4)
    cold = SOLVERS[name](problem, 0.1)
    warm = SOLVERS[name](problem, 0.1, start=random_models(problem))
    again = SOLVERS[name](problem, 0.1, start=cold.w)
    assert cold.converged
    assert warm.converged
    assert again.iterations <= 1
    torch.testing.assert_close(warm.w[:, :-1], cold.w[:, :-1], atol=1e-4, rtol=1e-4)
    # not the intercepts: that of the task with a single row may be any that is large enough
    torch.testing.assert_close(problem.predict(warm.w), problem.predict(cold.w), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["ridge", "lasso"])
@pytest.mark.parametrize("kind", KINDS)
def test_ragged_tasks_equal_tasks_one_by_one_where_nothing_is_shared(name, kind):
    problem = generated(kind, [12, 40, 9, 23], features=4)
    fit = SOLVERS[name](problem, 0.1)
    for k in range(problem.tasks):
        own = torch.tensor([0, int(problem.counts[k])])
        span = slice(int(problem.offsets[k]), int(problem.offsets[k + 1]))
        alone = Problem(problem.x[span], problem.y[span], own, problem.loss)
        # alone, its rows are divided by n_k and not by the mean count of all
        w = SOLVERS[name](alone, 0.1 * problem.mean_count / int(own[1])).w
        torch.testing.assert_close(fit.w[k], w[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_features_that_are_constant_get_no_weight(name, kind):
    base = generated(kind, [12, 40, 9, 23], features=3)
    x = base.x[:, [0, 1, 2, 3]].clone()
    x[:, 3] = 7.0
    problem = Problem.of(rows_of(x, base.y, [12, 40, 9, 23]), kind)
    fit = SOLVERS[name](problem, 0.1)
    assert fit.w[:, 3].abs().max() < 1e-9
    w = SOLVERS[name](base, 0.1).w
    torch.testing.assert_close(problem.predict(fit.w), base.predict(w), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_is_learned_at_once(name, kind):
    base = generated(kind, [4, 1, 9], features=3)
    problem = Problem.of(rows_of(base.x[:, :3], torch.ones(14), [4, 1, 9]), kind)
    fit = SOLVERS[name](problem, 0.1)
    assert fit.converged
    torch.testing.assert_close(problem.predict(fit.w), problem.y, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
def test_every_task_may_have_a_single_row(name, kind, intercept):
    problem = generated(kind, [1] * 6, features=3, intercept=intercept)
    fit = SOLVERS[name](problem, 0.05)
    assert fit.converged
    if intercept and name != "pooled":  # which explains everything, so features explain nothing
        assert fit.w[:, :-1].abs().max() == 0
        torch.testing.assert_close(problem.predict(fit.w), problem.y, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_fit_can_be_differentiated_through(name):
    # the solver's loop runs in inference mode; nothing of that may stay with problem or models
    problem = generated("regression", [5, 9, 7], features=3, intercept=False)
    w = SOLVERS[name](problem, 0.05).w.requires_grad_()
    problem.value(w).backward()
    torch.testing.assert_close(w.grad, problem.gradient(w.detach()))


@pytest.mark.parametrize("name", SOLVERS)
def test_a_task_of_one_class_beside_others_is_no_trouble(name):
    base = generated("binary", [12, 40, 9, 1], features=3)
    y = base.y.clone()
    y[:12] = 1.0
    fit = SOLVERS[name](Problem.of(rows_of(base.x[:, :3], y, [12, 40, 9, 1]), "binary"), 0.05)
    assert fit.converged
    assert fit.w.isfinite().all()


def test_a_fit_that_did_not_converge_says_so():
    problem = generated("regression", RAGGED, features=4)
    with pytest.warns(RuntimeWarning, match="stopped after 3 iterations"):
        fit = minimise(problem, lambda v, t: TRACE.prox(v, 0.01 * t), start=None, limit=3)
    assert not fit.converged


def test_strengths_and_rows_are_checked():
    problem = generated("regression", [3, 4], features=2)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(TacitError, match="positive number"):
            ridge(problem, bad)
    with pytest.raises(TacitError, match="zero or more"):
        relationship(problem, 0.1, ridge=-1.0)
    with pytest.raises(TacitError, match="task 0 has no rows"):
        trace_norm(problem.subset(torch.arange(7) >= 3), 0.1)
    with pytest.raises(TacitError, match="take a larger one"):
        ridge(generated("regression", [2, 2], features=5), 1e-30)
