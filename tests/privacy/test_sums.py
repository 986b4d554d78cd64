"""Lengths and sums of contributions: one kernel on a GPU gives what PyTorch gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tacit.privacy.bounds import LONG, Bounded, Place, lengths
from tacit.privacy.grid import Grid

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]  # fmt: skip


def contributions(device: str) -> Tensor:
    """Some long, some short, one of zeros, two that are not finite; rows begin at odd places."""
    torch.manual_seed(5)
    vectors = torch.randn(19, LONG + 1003)
    vectors[3] *= 1e4
    vectors[4] *= 1e-4
    vectors[5] = 0.0
    vectors[7, 5], vectors[8, 1] = torch.nan, torch.inf
    return vectors.to(device)


@pytest.mark.parametrize("device", DEVICES)
def test_lengths_are_those_of_double_precision(device):
    vectors = contributions(device)
    exact = vectors.cpu().double().square().sum(dim=1).sqrt()
    found = lengths(vectors).cpu()
    finite = exact.isfinite()
    assert torch.equal(found.isfinite(), finite)
    assert torch.allclose(found[finite], exact[finite], rtol=1e-13, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_a_length_is_the_same_wherever_a_vector_lies(device):
    vectors = contributions(device)
    turned = torch.arange(18, -1, -1)
    assert torch.equal(lengths(vectors[turned])[turned][:7], lengths(vectors)[:7])


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_the_same_integers(device):
    vectors, grid = contributions(device), Grid(64, 30)
    bounded = Bounded.of(vectors, 0.3, None).first(17)
    found = bounded.summed(Place(), None, grid)
    twice = bounded.summed(Place(), None, grid, found.clone())
    each = bounded.given.cpu().double() * bounded.scale.cpu().unsqueeze(1) * grid.steps
    each[bounded.scale.cpu() == 0] = 0.0
    exact = each.trunc().long().sum(dim=0)
    assert torch.equal(found.cpu(), exact)
    assert torch.equal(twice.cpu(), 2 * exact)
    assert int(bounded.dropped) == 2
