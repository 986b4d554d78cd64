"""Training losses row by row: against plain loops, and where labels or pixels are missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.local.losses import ROW_LOSSES, count, multilabel, segmentation, weighted_loss

drawn = {"seed": st.integers(0, 10_000), "rows": st.integers(1, 5), "gone": st.floats(0, 1)}


def log_loss(logit: float, label: float) -> float:
    """−log of the probability that the logit gives to the label."""
    return math.log1p(math.exp(-logit if label > 0.5 else logit))


@settings(max_examples=40, deadline=None)
@given(labels=st.integers(1, 5), **drawn)
def test_missing_labels_count_nowhere(seed, rows, gone, labels):
    """A row's loss is the mean over the labels it has; nothing if it has none."""
    generator = np.random.default_rng(seed)
    out, y = generator.normal(size=(rows, labels)), generator.integers(0, 2, size=(rows, labels))
    y = np.where(generator.random((rows, labels)) < gone, np.nan, y)
    logits = torch.tensor(out, requires_grad=True)
    found = multilabel(logits, torch.tensor(y))
    for row in range(rows):
        there = [k for k in range(labels) if not math.isnan(y[row, k])]
        wanted = [log_loss(out[row, k], y[row, k]) for k in there]
        mean = sum(wanted) / len(wanted) if wanted else 0.0
        assert float(found[row].detach()) == pytest.approx(mean, abs=1e-9)
        if there:
            present = F.binary_cross_entropy_with_logits(
                logits[row, there], torch.tensor(y[row, there])
            )
            assert float(found[row].detach()) == pytest.approx(float(present.detach()), abs=1e-9)
    slope = torch.autograd.grad(found.sum(), logits)[0]
    assert slope.isfinite().all()
    assert (slope[torch.tensor(np.isnan(y))] == 0).all()  # exactly
    for row, k in np.argwhere(~np.isnan(y)):
        count = (~np.isnan(y[row])).sum()
        wanted = (1 / (1 + math.exp(-out[row, k])) - y[row, k]) / count
        assert float(slope[row, k]) == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(heads=st.integers(1, 3), classes=st.integers(2, 4), **drawn)
def test_missing_pixels_count_nowhere(seed, rows, gone, heads, classes):
    generator = np.random.default_rng(seed)
    high, wide = generator.integers(1, 4, size=2)
    out = generator.normal(size=(rows, heads * classes, high, wide))
    y = generator.integers(0, classes, size=(rows, heads, high, wide)).astype(np.int8)
    y[generator.random(y.shape) < gone] = -1
    logits = torch.tensor(out, requires_grad=True)
    found = segmentation(logits, torch.tensor(y))
    for row in range(rows):
        lost = []
        for head in range(heads):
            for i in range(high):
                for j in range(wide):
                    if y[row, head, i, j] >= 0:
                        scores = out[row, head * classes : (head + 1) * classes, i, j]
                        total = sum(math.exp(score) for score in scores)
                        lost.append(math.log(total) - scores[y[row, head, i, j]])
        wanted = sum(lost) / len(lost) if lost else 0.0
        assert float(found[row].detach()) == pytest.approx(wanted, abs=1e-9)
    slope = torch.autograd.grad(found.sum(), logits)[0].unflatten(1, (heads, classes))
    assert slope.isfinite().all()
    missing = torch.tensor(y < 0).unsqueeze(2).expand_as(slope)
    assert (slope[missing] == 0).all()


def test_one_head_of_pixels_is_torchs_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    out = torch.randn(3, 4, 5, 6, generator=generator)
    y = torch.randint(-1, 4, (3, 1, 5, 6), generator=generator)
    found = segmentation(out, y.to(torch.int8))
    for row in range(3):
        wanted = F.cross_entropy(out[row : row + 1], y[row], ignore_index=-1)
        assert float(found[row]) == pytest.approx(float(wanted), rel=1e-5)


def test_extreme_outputs_have_finite_losses_and_slopes():
    """Also at missing labels, where an infinite loss times nothing would be no number."""
    out = torch.tensor([[1e30, -1e30, 1e30]], requires_grad=True)
    y = torch.tensor([[1.0, torch.nan, torch.nan]])
    found = multilabel(out, y)
    assert float(found.detach()) == pytest.approx(0.0, abs=1e-6)
    assert torch.autograd.grad(found.sum(), out)[0].tolist() == [[0.0, 0.0, 0.0]]
    pixels = torch.tensor([1e30, -1e30]).reshape(1, 2, 1, 1).requires_grad_()
    lost = segmentation(pixels, torch.full((1, 1, 1, 1), -1, dtype=torch.int8))
    assert float(lost.detach()) == 0.0
    assert torch.autograd.grad(lost.sum(), pixels)[0].abs().sum() == 0


def test_counts_lose_what_torchs_poisson_loss_says():
    out, y = torch.tensor([-2.0, 0.5, 4.0, 1.6]), torch.tensor([0.0, 3.0, 50.0, 1.0])
    wanted = F.poisson_nll_loss(out, y, reduction="none")
    assert torch.allclose(count(out, y), wanted)
    far = torch.tensor([3.0], requires_grad=True)  # more than e times 1 + 1 is expected
    slope = torch.autograd.grad(count(far, torch.ones(1)).sum(), far)[0]
    assert float(slope) == pytest.approx(2 * math.e - 1, rel=1e-6)
    wild = torch.tensor([1e4, 1e8], requires_grad=True)
    lost = count(wild, torch.tensor([0.0, 5.0])).sum()
    assert lost.isfinite() and torch.autograd.grad(lost, wild)[0].isfinite().all()


@pytest.mark.parametrize("kind", ROW_LOSSES)
def test_a_batch_is_the_weighted_sum_of_its_rows(kind):
    generator = torch.Generator().manual_seed(1)
    out, y = {
        "regression": (torch.randn(4, generator=generator), torch.randn(4, generator=generator)),
        "count": (torch.randn(4, generator=generator), torch.tensor([0.0, 3.0, 1.0, 7.0])),
        "binary": (torch.randn(4, generator=generator), torch.tensor([0.0, 1.0, 1.0, 0.0])),
        "multiclass": (torch.randn(4, 3, generator=generator), torch.tensor([0, 2, 1, 1])),
        "multilabel": (
            torch.randn(4, 2, generator=generator),
            torch.tensor([[0.0, 1.0], [torch.nan, 1.0], [torch.nan, torch.nan], [1.0, 0.0]]),
        ),
        "segmentation": (
            torch.randn(4, 4, 2, 2, generator=generator),
            torch.randint(-1, 2, (4, 2, 2, 2), generator=generator),
        ),
        "survival": (
            torch.randn(4, 2, generator=generator),
            torch.tensor([[1.0, -0.5], [-0.1, torch.nan], [1.0, 1.0], [0.3, torch.nan]]),
        ),
    }[kind]
    weight = torch.tensor([0.5, 0.25, 0.25, 0.0])
    each = [
        float(weighted_loss(kind, out[k : k + 1], y[k : k + 1], torch.ones(1))) for k in range(4)
    ]
    found = float(weighted_loss(kind, out, y, weight))
    assert found == pytest.approx(0.5 * each[0] + 0.25 * each[1] + 0.25 * each[2], rel=1e-5)
