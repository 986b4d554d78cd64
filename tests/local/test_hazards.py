"""Piecewise exponential hazards: exact solutions against scikit-learn, and against Cox's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import PoissonRegressor

from tacit.data.federation import Rows
from tacit.data.survival import cells
from tacit.errors import TacitError
from tacit.local.batches import Batches, all_rows
from tacit.local.bayes import design, posterior, solve_each
from tacit.local.flat import FlatModel
from tacit.local.losses import ROW_LOSSES
from tacit.local.mixed import Parameters, said
from tacit.local.own import constants
from tacit.local.wide import Priors
from tacit.models.hazards import Hazards

CUTS = (1.0, 2.0, 4.0)
SLOPES = np.array([0.8, -0.5])


def people(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    died, lost = rng.exponential(2 / np.exp(x @ SLOPES)), rng.uniform(0, 6, rows)
    return x, np.minimum(died, lost), died <= lost


def batches(x: np.ndarray, y: np.ndarray, width: int | None = None) -> Batches:
    rows = Rows(torch.tensor(x), torch.tensor(y), torch.tensor([0, len(x)]))
    found = all_rows(rows, torch.zeros(1, dtype=torch.int64), width or len(x))
    return Batches(*(side[0] for side in found))


def fitted(x: np.ndarray, y: np.ndarray, width: int | None = None, strength: float = 6.0):
    size = x.shape[1] + y.shape[1]
    rows = design(batches(x, y, width), size)
    strengths = torch.tensor([strength], dtype=torch.float64)
    weights, _ = posterior("survival", rows, rows[0].new_zeros(size), None, strengths)
    return weights[0].numpy()


def test_the_exact_solution_is_that_of_weighted_poisson_regression():
    x, time, event = people(300)
    y = cells(time, event, CUTS)
    lived, rows = np.abs(np.nan_to_num(y)), []
    for row, interval in zip(*np.nonzero(lived), strict=True):
        steps = np.eye(3)[interval, 1:]
        part = lived[row, interval]
        rows.append([*x[row], *steps, (y[row, interval] < 0) / part, part])
    plain = np.array(rows)
    model = PoissonRegressor(alpha=1e-9, max_iter=2000, tol=1e-10)
    model.fit(plain[:, :4], plain[:, 4], sample_weight=plain[:, 5])
    found = fitted(x, y, strength=9.0)
    np.testing.assert_allclose(found, [*model.coef_, model.intercept_], atol=2e-3)
    # Rows that fill a batch count nowhere.
    np.testing.assert_allclose(fitted(x, y, width=350, strength=9.0), found, atol=1e-9)


def test_with_short_intervals_it_is_coxs_model():
    """The same slopes as the partial likelihood, which looks at all rows together."""
    x, time, event = people(150)

    def partial(slopes: np.ndarray) -> float:
        score = x @ slopes
        there = [np.logaddexp.reduce(score[time >= when]) for when in time[event]]
        return float(np.sum(there) - score[event].sum())

    cox = minimize(partial, np.zeros(2)).x
    found = fitted(x, cells(time, event, np.linspace(0.1, 6, 60)), strength=5.0)[:2]
    np.testing.assert_allclose(found, cox, atol=0.03)
    assert np.abs(cox).min() > 0.3  # there is something to find


def test_the_loss_of_training_is_the_likelihood():
    """Integrated by small steps; and its slope is zero where the exact solution is."""
    x, time, event = people(40, seed=1)
    y = torch.tensor(cells(time, event, CUTS))
    out = torch.tensor(np.random.default_rng(2).normal(-0.5, 0.5, size=(40, 3)))
    found = ROW_LOSSES["survival"](out, y).numpy()
    ends = np.append(0.0, CUTS)
    for row in range(40):
        # In intervals, of which some are longer than others.
        at = np.interp(min(time[row], CUTS[-1]), ends, np.arange(4))
        steps = np.linspace(0, at, 2001)[:-1]
        hazard = np.exp(out[row].numpy())[np.minimum(steps.astype(int), 2)]
        wanted = hazard.sum() * at / 2000
        if event[row] and time[row] <= CUTS[-1]:
            wanted -= float(out[row][max(math.ceil(at) - 1, 0)])
        assert found[row] == pytest.approx(wanted, abs=2e-3)

    model = FlatModel(Hazards(2, 3), "survival")
    w = torch.tensor(fitted(x, y.numpy(), strength=9.0)).float()
    weight = torch.full((40,), 1 / 40)
    slope, _ = model.gradient(w, model.buffers, torch.tensor(x).float(), y.float(), weight)
    assert slope.abs().max() < 1e-4


def test_what_a_mixed_model_says_is_the_slope_of_the_likelihood():
    """With own effects that hardly vary; parts of intervals count as parts in all of it."""
    x, time, event = people(60, seed=3)
    y, size = cells(time, event, CUTS), 5
    rows = design(batches(x, y), size)
    beta = torch.tensor([0.3, -0.2, 0.1, 0.4, -0.7], dtype=torch.float64)
    tiny = 1e-6 * torch.ones(1, 1, dtype=torch.float64)
    at = Parameters([size - 1], beta, tiny, torch.ones(()), torch.zeros(size, size))
    told = said("survival", rows, at)

    def lost(w: torch.Tensor) -> torch.Tensor:
        level = torch.cat([w[-1:], w[-1] + w[2:-1]])
        out = (torch.tensor(x) @ w[:2]).unsqueeze(1) + level
        return ROW_LOSSES["survival"](out, torch.tensor(y)).sum()

    slope = torch.autograd.functional.jacobian(lost, beta)
    assert torch.allclose(told.score, -slope, atol=1e-6)
    curve = torch.autograd.functional.hessian(lost, beta)
    assert torch.allclose(told.information, curve, rtol=1e-6, atol=1e-6)


def test_both_ways_to_solve_agree():
    x, time, event = people(60, seed=4)
    size = 5
    rows = design(batches(x, cells(time, event, CUTS)), size)
    zero = rows[0].new_zeros(size)
    weights, evidence = posterior("survival", rows, zero, None, torch.zeros(1).double())
    scale = (rows[2].unsqueeze(1) * rows[0] ** 2).sum() / rows[2].sum()
    ones, one = torch.ones(size).double(), torch.ones(1).double()
    priors = Priors(zero.unsqueeze(0), ones.diag()[:, :1], ones / scale.sqrt(), 0 * one, one, [1])
    again, known = solve_each("survival", rows, priors)
    assert torch.allclose(weights, again) and torch.allclose(evidence, known)


def test_wild_outputs_have_finite_slopes():
    y = torch.tensor(cells(np.array([0.0, 3.0]), np.array([True, False]), CUTS)).float()
    out = torch.full((2, 3), 60.0, requires_grad=True)
    ROW_LOSSES["survival"](out, y).sum().backward()
    assert out.grad is not None and out.grad.abs().max() < 10


def test_exact_methods_refuse_hazards_that_are_not_proportional():
    x, time, event = people(10)
    with pytest.raises(TacitError, match="model='linear'"):
        design(batches(x, cells(time, event, CUTS)), 9)


def test_own_hazards_are_events_over_time_at_risk():
    x, time, event = people(4000)
    y = torch.tensor(cells(time, event, CUTS))
    offsets = torch.tensor([0, 4000, 4000])
    rates = constants("survival", Rows(torch.tensor(x), y, offsets), 3).numpy()
    for k, (begin, end) in enumerate(zip((0.0, *CUTS), CUTS, strict=False)):
        there = np.clip(np.minimum(time, end) - begin, 0, None).sum() / (end - begin)
        came = (event & (time > begin) & (time <= end)).sum()
        assert rates[0, k] == pytest.approx(came / there, rel=0.01)
    assert np.isfinite(rates[1]).all() and (rates[1] > 0).all()  # nobody was ever seen
