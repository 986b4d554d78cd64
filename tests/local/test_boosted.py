"""Boosted trees of many tasks: fitted together, each as if alone, and about as good as others."""

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingRegressor

from tacit.local.boosted import BINS, CALM, DEPTH, FEWEST_IN_LEAF, SEEN, STEP, boost
from tacit.local.stack import folds
from tacit.local.trees import TREES_EACH, Forests
from tests.local.test_trees import keys, made


def test_one_column_is_fitted_as_by_a_plain_loop():
    """With a single column nothing is drawn, so that a greedy loop must end in the same numbers."""
    random = np.random.default_rng(0)
    x = random.permutation(np.arange(240) % (BINS - 8)).astype(np.float32)  # a bin for each number
    y = np.sin(x / 4) + 0.1 * random.normal(size=240)
    offsets, row = torch.tensor([0, 240]), torch.from_numpy(x).unsqueeze(1)
    forests = boost(row, torch.from_numpy(y).unsqueeze(1), offsets, keys(1)).forests
    said = np.full(240, y.mean())
    for _ in range(TREES_EACH):
        said += STEP * greedy(x, y - said, DEPTH)
    found = forests(row, torch.zeros(240, dtype=torch.int64))[:, 0].numpy()
    assert np.abs(found - said).max() < 1e-5


def greedy(x, left, depth):
    """What a tree says of the rows that it is grown on."""
    edges = np.unique(x)[:-1]
    mean = left.sum() / (len(left) + CALM)
    best, where = left.sum() ** 2 / (len(left) + CALM), None
    for edge in edges if depth else ():
        below = x <= edge
        sides = left[below], left[~below]
        gain = sum(side.sum() ** 2 / (len(side) + CALM) for side in sides)
        if min(map(len, sides)) >= FEWEST_IN_LEAF and gain > best * (1 + 1e-9):
            best, where = gain, edge
    if where is None:
        return np.full(len(left), mean)
    below, said = x <= where, np.empty(len(left))
    for side in (below, ~below):
        said[side] = greedy(x[side], left[side], depth - 1)
    return said


def test_about_as_good_as_scikit_learns():
    x, y, offsets = made(4, 200)
    new, truth, _ = made(4, 200, seed=1)
    task = torch.arange(4).repeat_interleave(200)
    found = boost(x, y, offsets, keys(4)).forests(new, task)
    ours = float(((found - truth) ** 2).mean())
    theirs = []
    for k in range(4):
        usual = GradientBoostingRegressor(
            n_estimators=TREES_EACH, max_depth=DEPTH, learning_rate=STEP, max_features=SEEN,
            min_samples_leaf=FEWEST_IN_LEAF, random_state=0,
        )  # fmt: skip
        mine = task == k
        usual.fit(x[mine], y[mine, 0])
        theirs.append(((usual.predict(new[mine]) - truth[mine, 0].numpy()) ** 2).mean())
    assert ours < 1.15 * np.mean(theirs) and ours < 0.6 * float(truth.var())


def test_what_a_task_has_does_not_depend_on_the_others():
    x, y, offsets = made()
    fold = folds(offsets, keys(6))
    together = boost(x, y, offsets, keys(6), fold=fold)
    one = slice(160, 240)
    alone = boost(x[one], y[one], torch.tensor([0, 80]), keys(6)[2:3], fold=fold[one])
    assert torch.equal(together.unseen[one], alone.unseen)
    mine = together.forests.of(torch.tensor([2]))
    assert torch.equal(mine.value, alone.forests.value)
    assert torch.equal(mine.cut, alone.forests.cut)


def test_what_is_said_of_a_row_was_fitted_without_it():
    x, y, offsets = made(2, 120)
    fold = folds(offsets, keys(2))
    before = boost(x, y, offsets, keys(2), fold=fold).unseen
    held = fold == 1
    moved = torch.where(held.unsqueeze(1), y + 100, y)
    after = boost(x, moved, offsets, keys(2), fold=fold).unseen
    assert torch.equal(before[held], after[held]) and not torch.equal(before, after)


def test_classes_add_up_to_one_and_files_hold_them():
    x, y, offsets = made(3, 120)
    label = torch.nn.functional.one_hot((y[:, 0] > 0).long() + (y[:, 0] > 1).long(), 3).float()
    forests = boost(x, label, offsets, keys(3)).forests
    task = torch.arange(3).repeat_interleave(120)
    said = forests(x, task)
    assert torch.allclose(said.sum(dim=1), torch.ones(360), atol=1e-5)
    again = Forests.from_tensors(forests.to_tensors(), columns=5)
    assert torch.equal(again(x, task), said)


def test_odd_tables():
    """No task, one column that never differs, a target that never differs, rows far away."""
    none = boost(torch.zeros(0, 3), torch.zeros(0, 1), torch.tensor([0]), keys(0))
    assert len(none.forests) == 0
    x, y, offsets = made(2, 100)
    flat = boost(torch.zeros_like(x), y, offsets, keys(2)).forests
    assert bool((flat.column < 0).all())
    same = boost(x, torch.full_like(y, 7.0), offsets, keys(2)).forests
    task = torch.arange(2).repeat_interleave(100)
    assert torch.equal(same(x, task), torch.full_like(y, 7.0))
    far = x.clone()
    far[0] = 1e30
    said = boost(far, y, offsets, keys(2)).forests(torch.full_like(x, 1e38), task)
    assert bool(said.isfinite().all())
