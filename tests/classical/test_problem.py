"""The batched objective against a loop over tasks, autograd and plain formulas."""

from __future__ import annotations

import pytest
import torch

from tacit.classical import Problem
from tacit.classical.problem import w_zeros
from tacit.data.federation import Rows
from tacit.errors import TacitError
from tests.classical.cases import KINDS, generated, random_models, rows_of


def by_hand(problem: Problem, w: torch.Tensor) -> torch.Tensor:
    """The objective as the formula says it, task by task."""
    total = w.new_zeros(())
    for k in range(problem.tasks):
        span = slice(int(problem.offsets[k]), int(problem.offsets[k + 1]))
        x, y = problem.x[span], problem.y[span]
        score = x @ w[k]
        if problem.loss == "squared":
            total = total + 0.5 * ((score - y) ** 2).sum()
        else:
            total = total + torch.log1p(torch.exp(-(2 * y - 1) * score)).sum()
    return total / (len(problem.y) / problem.tasks)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [[5, 5, 5], [1, 30, 2, 7], [40], [1, 1, 200], [3, 2]])
@pytest.mark.parametrize("intercept", [True, False])
def test_value_gradient_and_hessian_equal_a_loop_and_autograd(kind, counts, intercept):
    problem = generated(kind, counts, features=4, intercept=intercept)
    w = random_models(problem).requires_grad_()
    value = by_hand(problem, w)
    torch.testing.assert_close(problem.value(w.detach()), value.detach(), rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(value, w, create_graph=True)
    torch.testing.assert_close(
        problem.gradient(w.detach()), gradient.detach(), rtol=1e-10, atol=1e-12
    )
    along = torch.randn(w.shape, generator=torch.Generator().manual_seed(5), dtype=w.dtype)
    (curved,) = torch.autograd.grad((gradient * along).sum(), w)
    product = (problem.hessian(w.detach()) @ along.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(product, curved, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_gram_give_the_same_gradient_and_a_valid_bound(kind):
    many, few = generated(kind, [30, 50, 9], features=6), generated(kind, [3, 5, 1], features=6)
    assert many.gram is not None
    assert few.gram is None
    for problem in (many, few):
        flat = problem.centred()
        largest = torch.linalg.eigvalsh(flat.hessian(w_zeros(flat))[:, :6, :6])[:, -1]
        assert (flat.lipschitz >= largest - 1e-12).all()
        assert (flat.lipschitz <= 1.21 * largest + 1e-12).all()
        assert float(flat.steepest) == pytest.approx(float(flat.lipschitz.max()), rel=1e-12)


def test_the_steepest_task_need_not_have_the_longest_gram_matrix():
    eye, line = torch.eye(4, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.float64)
    line[:, 0] = 0.6  # one direction of length 1.2: Gram matrices of norm 2 and 1.44
    rows = Rows(torch.cat([eye, line]), torch.ones(8), torch.tensor([0, 4, 8]))
    problem = Problem.of(rows, "regression", intercept=False)
    assert float(problem.steepest) == pytest.approx(1.44 / 4)


def test_pieces_stay_small_however_unequal_tasks_are():
    problem = generated("regression", [1] * 400 + [1000], features=2)
    pieces = problem._pieces[0]
    assert len(pieces) <= 2 * problem.tasks
    assert pieces.shape[0] * pieces.shape[1] <= 2 * len(problem.y) + problem.tasks


@pytest.mark.parametrize("kind", KINDS)
def test_centring_changes_no_weight_and_no_gradient(kind):
    problem = generated(kind, [4, 9, 1], features=3)
    flat, w = problem.centred(), random_models(problem)
    assert flat.means(flat.x[:, :3]).abs().max() < 1e-14
    moved = problem.recentred(w)
    back = problem.restored(moved)
    torch.testing.assert_close(back[:, :3], w[:, :3])
    torch.testing.assert_close(flat.scale, problem.scale)
    if kind == "binary":
        torch.testing.assert_close(back, w)
        torch.testing.assert_close(flat.scores(moved), problem.scores(w))
    else:  # the intercept that comes back is the best one for these weights
        assert problem.gradient(back)[:, -1].abs().max() < 1e-14
        torch.testing.assert_close(flat.value(moved), problem.value(back))
        torch.testing.assert_close(flat.gradient(moved), problem.gradient(back)[:, :3])


@pytest.mark.parametrize("kind", KINDS)
def test_the_featureless_fit_is_stationary_in_the_intercepts(kind):
    problem = generated(kind, [10, 20, 15], features=3)
    assert problem.gradient(problem.null())[:, -1].abs().max() < 1e-14


def test_subset_keeps_tasks_and_predict_uses_each_tasks_model():
    problem = generated("binary", [3, 2, 4], features=2)
    w = random_models(problem)
    keep = torch.tensor([1, 0, 1, 0, 0, 1, 1, 1, 0], dtype=torch.bool)
    part = problem.subset(keep)
    assert part.counts.tolist() == [2, 0, 3]
    torch.testing.assert_close(part.predict(w), problem.predict(w)[keep])
    torch.testing.assert_close(problem.predict(w)[4], torch.sigmoid(problem.x[4] @ w[1]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "multiclass"}, "'regression' and 'binary'"),
        ({"y": torch.tensor([0.0, 2.0, 1.0])}, "0 or 1"),
        ({"x": torch.tensor([[1.0], [float("nan")], [0.0]])}, "not finite"),
        ({"x": torch.zeros(3, 1, 1)}, "x \\[rows, features\\]"),
    ],
)
def test_what_cannot_be_used_is_said(change, said):
    given = {"x": torch.zeros(3, 1), "y": torch.tensor([0.0, 1.0, 1.0]), "kind": "binary"} | change
    with pytest.raises(TacitError, match=said):
        Problem.of(rows_of(given["x"], given["y"], [3]), given["kind"])
