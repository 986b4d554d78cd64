"""Weights of several models: the best there are, and drawn to where everybody begins."""

import numpy as np
import torch
from scipy.optimize import minimize

from tacit.local.stack import HOPELESS, ROWS, ROWS_OF_NUMBERS, folds, losses, weigh

OFFSETS = torch.tensor([0, 60, 140])


def said(seed=0, kind="regression"):
    random = np.random.default_rng(seed)
    truth = random.normal(size=140)
    models = [truth + random.normal(size=140) * spread for spread in (0.3, 0.6, 1.5)]
    stacked = torch.from_numpy(np.stack(models)).unsqueeze(2)
    if kind == "regression":
        return stacked, torch.from_numpy(truth)
    y = torch.from_numpy((random.random(140) < 1 / (1 + np.exp(-2 * truth))).astype(float))
    return torch.sigmoid(2 * stacked), y


LEAN = torch.tensor([[0.2, 0.6, 0.2], [0.2, 0.6, 0.2]], dtype=torch.float64)
EVERY = torch.ones(140, dtype=torch.bool)


def penalised(kind, stacked, y, weights, first, last):
    """What a task minimises, written plainly."""
    rows = slice(first, last)
    mixed = np.einsum("m,mno->no", weights, stacked[:, rows].numpy())
    target, lean = y[rows].numpy(), LEAN[0].numpy()
    if kind == "regression":
        errors = target - stacked[:, rows, 0].numpy()
        squares = (errors**2).mean(axis=1)
        fit = ((target - mixed[:, 0]) ** 2).sum() / squares.min()
        lean = np.where(squares <= HOPELESS * squares.min(), lean / squares, 0.0)
        return fit + ROWS_OF_NUMBERS * ((weights - lean / lean.sum()) ** 2).sum()
    chance = np.where(target > 0.5, mixed[:, 0], 1 - mixed[:, 0])
    each = stacked[:, rows, 0].numpy()
    lean = lean * np.exp(np.log(np.where(target > 0.5, each, 1 - each)).mean(axis=1))
    lean = lean / lean.sum()
    return -np.log(chance).sum() - ROWS * (lean * np.log(weights)).sum()


def test_no_weights_are_better():
    for kind in ("regression", "binary"):
        stacked, y = said(kind=kind)
        found = weigh(kind, stacked, y, OFFSETS, LEAN, EVERY)
        assert torch.allclose(found.sum(dim=1), torch.ones(2).double()) and (found >= 0).all()
        for task, (first, last) in enumerate(((0, 60), (60, 140))):
            of = kind, stacked, y, first, last
            most = [1.0] * 3
            if kind == "regression":
                squares = ((y - stacked[..., 0])[:, first:last] ** 2).mean(dim=1)
                most = (squares <= HOPELESS * squares.min()).double().clamp(min=2e-9).tolist()
            best = minimize(
                lambda w, of=of: penalised(*of[:3], w, *of[3:]),
                np.full(3, 1 / 3), bounds=[(1e-9, each) for each in most], method="SLSQP",
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
                options={"ftol": 1e-12},
            )  # fmt: skip
            ours = penalised(kind, stacked, y, found[task].clamp(min=1e-9).numpy(), first, last)
            assert ours < best.fun + 1e-3


def test_few_numbers_have_no_say_in_what_they_are_pulled_to():
    """The second task has seven rows."""
    stacked, y = said(seed=5)
    stacked, y, offsets = stacked[:, :67], y[:67], torch.tensor([0, 60, 67])
    pull, every = torch.tensor([0.0, 6.0]), torch.ones(67, dtype=torch.bool)
    plain, found = (weigh("regression", stacked, y, offsets, LEAN, every, k) for k in (None, pull))
    assert torch.equal(plain[0], found[0])
    errors = (y - stacked[..., 0])[:, 60:].numpy()
    unit = (errors**2).mean(axis=1).min()
    there = (errors**2).mean(axis=1) <= HOPELESS * unit
    aim = LEAN[1].numpy() * there / (LEAN[1].numpy() * there).sum()

    def lost(w):
        return ((w @ errors) ** 2).sum() / unit + 6 * ((w - aim) ** 2).sum()

    bounds = [(0, float(one)) for one in there]
    sums = {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = minimize(lost, aim, bounds=bounds, method="SLSQP", constraints=sums)
    assert there.sum() > 1 and lost(found[1].numpy()) < best.fun + 1e-3
    assert abs(found[1] - torch.from_numpy(aim)).max() < abs(plain[1] - torch.from_numpy(aim)).max()


def test_what_a_task_does_not_have_gets_no_weight():
    """Even if a blank says more than anything else that is there."""
    for kind in ("regression", "binary"):
        stacked, y = said(kind=kind)
        stacked[0] = (y if kind == "regression" else y.clamp(1e-3, 0.999)).unsqueeze(1)
        lean = torch.tensor([[0.0, 0.6, 0.4], [0.2, 0.6, 0.2]], dtype=torch.float64)
        found = weigh(kind, stacked, y, OFFSETS, lean, EVERY)
        assert found[0, 0] == 0 and found[1, 0] > 0.5


def test_rows_that_do_not_count_and_tasks_do_not_matter():
    stacked, y = said()
    counted = EVERY.clone()
    counted[70:90] = False
    before = weigh("regression", stacked, y, OFFSETS, LEAN, counted)
    y[70:90], stacked[:, 100:] = 1e3, 0.0
    after = weigh("regression", stacked, y, OFFSETS, LEAN, counted)
    assert torch.equal(before[0], after[0]) and not torch.equal(before[1], after[1])
    stacked, y = said()
    y[70:90] = 1e3
    assert torch.equal(weigh("regression", stacked, y, OFFSETS, LEAN, counted)[1], before[1])


def test_without_rows_everybody_stays_where_they_begin():
    for kind in ("regression", "binary"):
        stacked, y = said(kind=kind)
        assert torch.allclose(weigh(kind, stacked, y, OFFSETS, LEAN, ~EVERY), LEAN)


def test_a_model_without_any_error():
    stacked, y = said()
    stacked[0, :, 0] = y
    found = weigh("regression", stacked, y, OFFSETS, LEAN, EVERY)
    assert (found[:, 0] > 0.999).all() and torch.allclose(found.sum(dim=1), torch.ones(2).double())


def test_losses_and_folds():
    stacked, y = said(kind="binary")
    wanted = -np.log(np.where(y > 0.5, stacked[..., 0], 1 - stacked[..., 0]))
    assert np.allclose(losses("binary", stacked, y), wanted)
    classes = torch.tensor([[0.2, 0.5, 0.3]]).double()
    assert float(losses("multiclass", classes, torch.tensor([1]))) == np.log(2)
    fold = folds(OFFSETS, torch.tensor([5, 6]))
    for first, last in ((0, 60), (60, 140)):
        assert set(fold[first:last].bincount().tolist()) == {(last - first) // 5}
    assert torch.equal(fold[:60], folds(torch.tensor([0, 60]), torch.tensor([5])))


def test_a_model_that_is_nearly_sure_does_not_pay_for_one_that_knows_nothing():
    """Ten classes and a dozen rows: the weight of the other costs each row as much in log loss."""
    sure = torch.full((12, 10), 0.02 / 9, dtype=torch.float64)
    sure[:, 3] = 0.98
    stacked = torch.stack([sure, torch.full_like(sure, 0.1)])
    lean = torch.tensor([[0.8, 0.2]], dtype=torch.float64)
    y, every = torch.full((12,), 3), torch.ones(12, dtype=torch.bool)
    weights = weigh("multiclass", stacked, y, torch.tensor([0, 12]), lean, every)
    assert float(weights[0, 1]) < 0.01
