"""Proximal operators against numerical minimisation, norms against dual norms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from tacit.classical.proximal import GROUP, L1, TRACE, squared_trace_prox

CASES = {
    "trace": (TRACE.value, TRACE.prox),
    "group": (GROUP.value, GROUP.prox),
    "l1": (L1.value, L1.prox),
    "squared trace": (lambda v: 0.5 * TRACE.value(v) ** 2, squared_trace_prox),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 3), (6, 1)])
@pytest.mark.parametrize("t", [0.05, 0.7, 3.0])
def test_nothing_near_or_far_is_better_than_the_prox(name, shape, t):
    value, prox = CASES[name]
    v = draw(*shape)
    best = prox(v, t)

    def objective(w: Tensor) -> float:
        return float(0.5 * (w - v).square().sum() + t * value(w))

    least = objective(best)
    for seed in range(60):
        for size in (1e-4, 1e-2, 1.0):
            assert objective(best + size * draw(*shape, seed=seed + 1)) > least


@pytest.mark.parametrize("name", CASES)
def test_a_general_minimiser_comes_close_but_not_below(name):
    value, prox = CASES[name]
    v, t = draw(3, 2), 0.4

    def objective(w: np.ndarray) -> float:
        models = torch.from_numpy(w).reshape(3, 2)
        return float(0.5 * (models - v).square().sum() + t * value(models))

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    found = minimize(objective, v.numpy().ravel(), method="Nelder-Mead", options=options)
    least = objective(prox(v, t).numpy().ravel())
    assert least <= found.fun + 1e-12
    np.testing.assert_allclose(found.x, prox(v, t).numpy().ravel(), atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_half_the_squared_distance_has_the_prox_as_gradient(name):
    # Moreau: the envelope min_w ½‖w − v‖² + t·penalty(w) has gradient v − prox(v)
    value, prox = CASES[name]
    v, along, t, h = draw(5, 3), draw(5, 3, seed=9), 0.6, 1e-5

    def envelope(v: Tensor) -> Tensor:
        w = prox(v, t)
        return 0.5 * (w - v).square().sum() + t * value(w)

    slope = (envelope(v + h * along) - envelope(v - h * along)) / (2 * h)
    torch.testing.assert_close(slope, ((v - prox(v, t)) * along).sum(), rtol=1e-7, atol=1e-9)


def test_singular_values_are_shrunk_as_by_a_decomposition():
    for shape in ((40, 6), (6, 40)):
        v = draw(*shape)
        u, values, right = torch.linalg.svd(v, full_matrices=False)
        expected = u @ torch.diag((values - 1.5).clamp_min(0)) @ right
        torch.testing.assert_close(TRACE.prox(v, 1.5), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", [TRACE, GROUP, L1])
def test_the_dual_norm_bounds_products_and_is_reached(norm):
    v, g = draw(5, 3), draw(5, 3, seed=1)
    assert (v * g).sum() <= norm.value(v) * norm.dual(g)
    # prox(g, t) is zero exactly from t = dual norm on
    assert norm.prox(g, 1.0001 * float(norm.dual(g))).norm() < 1e-12
    assert norm.prox(g, 0.999 * float(norm.dual(g))).norm() > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_zero_stays_zero(name):
    zero = torch.zeros(4, 3, dtype=torch.float64)
    torch.testing.assert_close(CASES[name][1](zero, 0.5), zero)
