"""Families of outcomes: their derivatives, and numbers that are too large for an exponential."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch.func import grad

from tacit.families import FAMILIES, HIGHEST, expected_count

OUTPUTS = {"binary": 1, "count": 1, "multiclass": 3, "survival": 1}


@pytest.mark.parametrize("kind", FAMILIES)
def test_mean_and_weight_are_derivatives(kind):
    family, generator = FAMILIES[kind], torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(6, OUTPUTS[kind], generator=generator, dtype=torch.float64)
    scores[0] = HIGHEST + 3.0  # where an exponential goes over into a parabola
    for row in scores:
        normaliser = lambda s: family.normaliser(s[None])[0]  # noqa: E731
        assert torch.allclose(family.mean(row[None])[0], grad(normaliser)(row))
        curve = torch.autograd.functional.hessian(normaliser, row)
        assert torch.allclose(family.weight(row[None])[0], curve)


def test_likelihoods_are_those_of_the_distributions():
    scores = torch.tensor([[0.3], [-1.2], [2.0]], dtype=torch.float64)
    mean, every = scores.exp()[:, 0].numpy(), torch.ones(3).double()
    for y in ([0.0, 1.0, 4.0], [2.0, 0.0, 9.0]):
        coded = FAMILIES["count"].coded(torch.tensor(y).double(), 1)
        found = FAMILIES["count"].likelihood(scores, coded, every)
        constant = stats.poisson.logpmf(y, mean).sum() - float(found)
        at_zero = FAMILIES["count"].likelihood(torch.zeros_like(scores), coded, every)
        assert stats.poisson.logpmf(y, 1.0).sum() - float(at_zero) == pytest.approx(constant)
    three = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    coded = FAMILIES["multiclass"].coded(torch.tensor([2.0]).double(), 3)
    assert coded.tolist() == [[0.0, 0.0, 1.0]]
    found = FAMILIES["multiclass"].likelihood(three, coded, torch.ones(1).double())
    assert float(found) == pytest.approx(float(three.log_softmax(1)[0, 2]))


def test_a_level_has_the_mean_outcome():
    rows = torch.tensor(1e6).double()
    assert float(FAMILIES["count"].level(3 * rows, rows).exp()) == pytest.approx(3.0, rel=1e-5)
    chance = torch.sigmoid(FAMILIES["binary"].level(0.2 * rows, rows))
    assert float(chance) == pytest.approx(0.2, rel=1e-5)
    levels = FAMILIES["multiclass"].level(torch.tensor([1e5, 3e5, 6e5]).double(), rows)
    assert levels.softmax(0).tolist() == pytest.approx([0.1, 0.3, 0.6], rel=1e-4)
    for family in FAMILIES.values():  # nothing seen is no reason for infinity
        assert family.level(torch.zeros(2).double(), torch.tensor(0.0)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wild_scores_stay_finite(dtype):
    scores = torch.tensor([-1e6, 0.0, 1e6], dtype=dtype)
    assert expected_count(scores).isfinite().all()
    assert expected_count(scores)[:2].tolist() == [0.0, 1.0]
    for family in (FAMILIES["count"], FAMILIES["binary"]):
        found = family.likelihood(scores[:, None], torch.ones(3, 1), torch.ones(3))
        assert found.isfinite()
