"""The four ways of fine-tuning, each against what it says it minimises."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tacit.local.flat import FlatModel
from tacit.local.objectives import OBJECTIVES, Anchor, squared_slope, symmetrised_kl

ROWS = 9


def problem(kind: str, outputs: int):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 3, generator=generator)
    y = {
        "regression": torch.randn(ROWS, generator=generator),
        "binary": torch.arange(ROWS).remainder(2).float(),
        "multiclass": torch.arange(ROWS).remainder(3),
        "multilabel": torch.arange(ROWS * 4).remainder(3).eq(0).float().reshape(ROWS, 4),
    }[kind]
    weight = torch.full((ROWS,), 1 / ROWS)
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)), kind)
    a = model.start
    w = a + 0.3 * torch.randn(a.shape, generator=generator)
    return (
        model,
        Anchor(a, model.buffers, torch.rand(a.shape, generator=generator)),
        w,
        (x, y, weight),
    )


def distribution(kind: str, raw: torch.Tensor):
    return {
        "regression": lambda: torch.distributions.Normal(raw, 1.0),
        "binary": lambda: torch.distributions.Bernoulli(logits=raw),
        "multilabel": lambda: torch.distributions.Bernoulli(logits=raw),
        "multiclass": lambda: torch.distributions.Categorical(logits=raw),
    }[kind]()


KINDS = [("regression", 1), ("binary", 1), ("multiclass", 3), ("multilabel", 4)]


@pytest.mark.parametrize(("kind", "outputs"), KINDS)
def test_symmetrised_kl_is_that_of_the_distributions(kind, outputs):
    shape = (ROWS,) if outputs == 1 else (ROWS, outputs)
    one, other = torch.randn(shape), torch.randn(shape)
    p, q = distribution(kind, one), distribution(kind, other)
    both = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    each = both.mean(dim=1) if kind == "multilabel" else both
    weight = torch.rand(ROWS)
    expected = (each * weight).sum()
    assert torch.allclose(symmetrised_kl(kind, one, other, weight), expected, atol=1e-5)


@pytest.mark.parametrize(("kind", "outputs"), KINDS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_direction_is_the_slope_of_what_is_written(name, kind, outputs):
    """Against autograd on the penalty written out, with a vanishing step so that no rate enters."""
    model, anchor, w, step = problem(kind, outputs)
    strength = 0.7
    found, _ = OBJECTIVES[name](model, anchor, (strength, 0.0), w, model.buffers, step)

    def written(w: torch.Tensor) -> torch.Tensor:
        x, _, weight = step
        loss, _ = model.loss(w, model.buffers, *step)
        if name == "mean":
            loss = loss + strength / 2 * ((w - anchor.w) ** 2).sum()
        if name == "ewc":
            loss = loss + strength / 2 * (anchor.fisher * (w - anchor.w) ** 2).sum()
        if name == "kl":
            p = distribution(kind, model.predict(w, model.buffers, x))
            q = distribution(kind, model.predict(anchor.w, model.buffers, x))
            both = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
            each = both.mean(dim=1) if kind == "multilabel" else both
            loss = loss + strength * (each * weight).sum()
        return loss

    expected = torch.autograd.functional.jacobian(written, w)
    assert torch.allclose(found, expected, atol=1e-5)


def test_ewc_with_zero_fisher_is_vanilla():
    model, anchor, w, step = problem("multiclass", 3)
    none = anchor._replace(fisher=torch.zeros_like(w))
    plain, _ = OBJECTIVES["vanilla"](model, none, (5.0, 0.1), w, model.buffers, step)
    ewc, _ = OBJECTIVES["ewc"](model, none, (5.0, 0.1), w, model.buffers, step)
    assert torch.equal(plain, ewc)


@pytest.mark.parametrize("name", ["mean", "ewc"])
def test_a_huge_strength_goes_back_to_the_anchor_instead_of_diverging(name):
    model, anchor, w, step = problem("binary", 1)
    for _ in range(3):
        way, _ = OBJECTIVES[name](model, anchor, (1e6, 0.1), w, model.buffers, step)
        w = w - 0.1 * way
    assert torch.allclose(w, anchor.w, atol=1e-2)


def test_the_fisher_is_the_mean_squared_gradient_of_single_rows():
    model, _, w, (x, y, weight) = problem("multiclass", 3)
    total = torch.zeros_like(w)
    for k in range(ROWS):
        row = (x[k : k + 1], y[k : k + 1], weight[k : k + 1])
        total += squared_slope(model, w, model.buffers, row)
    one = torch.ones(1)
    slopes = [
        torch.autograd.functional.jacobian(
            lambda v, k=k: model.loss(v, model.buffers, x[k : k + 1], y[k : k + 1], one)[0], w
        )
        for k in range(ROWS)
    ]
    assert torch.allclose(total, torch.stack(slopes).square().mean(dim=0), atol=1e-6)
