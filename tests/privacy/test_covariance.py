"""A covariance is a flat vector with a sensitivity that worst pairs reach and none passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.errors import TacitError
from tacit.privacy.asked import Privacy
from tacit.privacy.covariance import (
    SENSITIVITY,
    flatten,
    gram_moved,
    moved,
    unflatten,
)
from tacit.privacy.gram import release_gram
from tacit.privacy.ledger import Ledger
from tacit.randomness import Randomness

K = 1.7


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_flattening_keeps_norms_and_inner_products_and_is_undone(data):
    d = data.draw(st.integers(1, 7))
    numbers = arrays(np.float64, (2, d, d), elements=st.floats(-1e3, 1e3))
    free = torch.from_numpy(data.draw(numbers))
    one, other = free + free.mT
    flat = flatten(torch.stack([one, other]))
    assert flat.shape == (2, d * (d + 1) // 2)
    assert torch.allclose(flat[0] @ flat[1], (one * other).sum(), rtol=1e-12, atol=1e-6)
    assert torch.allclose(flat[0].norm(), one.norm(), rtol=1e-12)
    assert torch.allclose(unflatten(flat, d), torch.stack([one, other]), rtol=1e-15)


def test_any_number_of_axes_may_come_before_a_matrix():
    free = torch.randn(2, 3, 4, 4, generator=torch.manual_seed(0))
    matrices = free + free.mT
    flat = flatten(matrices)
    assert flat.shape == (2, 3, 10)
    assert torch.equal(flat[1, 2], flatten(matrices[1, 2]))
    assert torch.allclose(unflatten(flat, 4), matrices)


def test_isotropic_noise_becomes_symmetric_noise_with_half_the_variance_beside_the_diagonal():
    d, spread, runs = 4, 3.0, 200_000
    normal = torch.randn(runs, 10, dtype=torch.double, generator=torch.manual_seed(0))
    noise = unflatten(spread * normal, d)
    assert torch.equal(noise, noise.mT)
    expected = torch.full((d, d), spread**2 / 2) + torch.eye(d) * spread**2 / 2
    assert torch.allclose(noise.var(dim=0).float(), expected, rtol=0.02)
    # Isotropy: along any direction wwᵀ the noise is N(0, σ²), not only along the axes.
    w = torch.tensor([0.5, -0.5, 0.5, 0.5], dtype=torch.double)
    assert float((noise @ w @ w).std()) == pytest.approx(spread, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_flattening_goes_through_vmap_and_tracing(dtype):
    matrices = torch.randn(3, 5, 5, dtype=dtype)
    matrices = matrices + matrices.mT

    def there_and_back(matrix):
        return unflatten(2 * flatten(matrix), 5)

    mapped = torch.func.vmap(there_and_back)
    traced = make_fx(mapped)(torch.zeros_like(matrices))
    for result in (mapped(matrices), traced(matrices)):
        assert result.dtype == dtype
        assert torch.allclose(result, 2 * matrices)
    slope = torch.func.grad(lambda matrix: flatten(matrix).square().sum() / 2)(matrices[0])
    assert torch.allclose((slope + slope.T) / 2, matrices[0])


def test_a_flat_vector_of_another_size_is_refused():
    with pytest.raises(TacitError, match="4 features has 10 numbers, but 9"):
        unflatten(torch.zeros(9), 4)


def inside(models: torch.Tensor) -> torch.Tensor:
    """The nearest models with norm at most K, and those far outside on the sphere."""
    return models * (K / models.norm(dim=0)).clamp(max=1.0)


def furthest(distance, columns: int, d: int, seed: int) -> tuple[float, float]:
    """The largest distance among random models, and after following the gradient from there."""
    generator = torch.manual_seed(seed)
    drawn = torch.randn(d, columns, dtype=torch.double, generator=generator) * K
    models = drawn.requires_grad_()
    at_random = float(distance(inside(models)).detach())
    climb = torch.optim.Adam([models], lr=0.05 * K, maximize=True)
    for _ in range(300):
        climb.zero_grad()
        distance(inside(models)).backward()
        climb.step()
    return at_random, float(distance(inside(models)).detach())


def covariance_distance(neighbours: str):
    def distance(models):  # the task's two models; the others cancel
        w, v = models[:, 0], models[:, 1] if neighbours == "replace" else torch.zeros(len(models))
        return (torch.outer(w, w) - torch.outer(v, v)).norm()

    return distance


def gram_distance(neighbours: str):
    def distance(models):  # the first task has two models
        others, w = models[:, 2:], models[:, :1]
        v = models[:, 1:2] if neighbours == "replace" else torch.zeros_like(w)
        one, other = torch.cat([w, others], dim=1), torch.cat([v, others], dim=1)
        return (one.T @ one - other.T @ other).norm()

    return distance


def searched(distance, bound: float, columns: int, seeds: int = 1) -> None:
    found = []
    for seed in range(seeds):
        for d in (1, 2, 5):
            found += furthest(distance, columns, d, seed)
    assert max(found) <= bound * (1 + 1e-9)
    assert max(found) >= 0.999 * bound


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_one_task_moves_a_covariance_as_far_as_claimed_and_no_further(neighbours):
    searched(covariance_distance(neighbours), moved(neighbours) * K**2, 2)
    assert moved(neighbours) == SENSITIVITY[neighbours]


@pytest.mark.parametrize("tasks", [1, 2, 3, 6])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_one_task_moves_a_gram_matrix_as_far_as_claimed_and_no_further(neighbours, tasks):
    searched(gram_distance(neighbours), gram_moved(neighbours, tasks) * K**2, tasks + 1)


def test_a_released_gram_matrix_is_exact_but_for_the_noise_that_it_says():
    rows = torch.randn(4, 3, generator=torch.manual_seed(0)) / 2
    for noise, clip in ((0.0, 3.0), (2.0, 3.0), (2.0, 0.1)):
        ledger = Ledger()
        found, spread = release_gram(rows, clip, Privacy(noise=noise), ledger, Randomness.of(1))
        kept = rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)
        assert spread == pytest.approx(noise * math.sqrt(7) * clip**2)
        drawn = unflatten(torch.from_numpy(Randomness.of(1).normal("between", 0, 10)), 4)
        expected = (kept @ kept.T).double() + spread * drawn
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-4 * clip**2)
        (entry,) = ledger.entries
        assert (entry["round"], entry["size"], entry["clip"]) == (-1, 10, clip)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_models_move_anything_further(data):
    d, tasks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    numbers = arrays(np.float64, (d, tasks + 1), elements=st.floats(-3, 3))
    models = inside(torch.from_numpy(data.draw(numbers)) + 1e-12)
    room = K**2 * (1 + 1e-12)
    for neighbours in SENSITIVITY:
        assert float(covariance_distance(neighbours)(models)) <= moved(neighbours) * room
        assert float(gram_distance(neighbours)(models)) <= gram_moved(neighbours, tasks) * room


def test_sensitivities_refuse_what_they_do_not_know():
    with pytest.raises(TacitError, match="neighbours='swap'"):
        moved("swap")  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="neighbours='swap'"):
        gram_moved("swap", 3)  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="tasks=0"):
        gram_moved("replace", 0)
