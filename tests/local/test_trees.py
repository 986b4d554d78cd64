"""Randomised trees of many tasks: grown together, each as if alone, and read as they were grown."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from tacit.local.trees import TREES_EACH, Forests, grow


def made(tasks=6, rows=80, columns=5, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(tasks * rows, columns)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * random.normal(size=len(x))
    offsets = torch.arange(tasks + 1) * rows
    return torch.from_numpy(x), torch.from_numpy(y).float().unsqueeze(1), offsets


def keys(tasks: int) -> torch.Tensor:
    return torch.arange(tasks) * 7919 + 13


def test_the_predictor_says_what_scikit_learn_says():
    x, y, _ = made(1, 200)
    forest = ExtraTreesRegressor(TREES_EACH, random_state=0).fit(x.numpy(), y[:, 0].numpy())
    roots, column, cut, child, value = [], [], [], [], []
    for tree in (one.tree_ for one in forest.estimators_):
        # Ours keeps two children side by side: number nodes level by level.
        order, queue = [], [0]
        while queue:
            order += queue
            parents = [k for k in queue if tree.children_left[k] >= 0]
            queue = [c for k in parents for c in (tree.children_left[k], tree.children_right[k])]
        place = {node: len(column) + k for k, node in enumerate(order)}
        roots.append(len(column))
        for node in order:
            leaf = tree.children_left[node] < 0
            column.append(-1 if leaf else int(tree.feature[node]))
            cut.append(float(tree.threshold[node]))
            child.append(0 if leaf else place[tree.children_left[node]])
            value.append([float(tree.value[node, 0, 0])])
    ours = Forests.from_tensors(
        {
            "roots": torch.tensor(roots),
            "column": torch.tensor(column),
            "cut": torch.tensor(cut, dtype=torch.float64),
            "child": torch.tensor(child),
            "value": torch.tensor(value, dtype=torch.float64),
        },
        columns=5,
    )
    new = made(1, 300, seed=1)[0]
    found = ours(new, torch.zeros(len(new), dtype=torch.int64))[:, 0].numpy()
    assert np.abs(found - forest.predict(new.numpy())).max() < 1e-12


def test_as_good_as_scikit_learns():
    x, y, offsets = made(4, 150)
    new, truth, _ = made(4, 150, seed=1)
    task = torch.arange(4).repeat_interleave(150)
    found = grow(x, y, offsets, keys(4), bagged=False).forests(new, task)
    ours = float(((found - truth) ** 2).mean())
    theirs = []
    for k in range(4):
        span = slice(150 * k, 150 * (k + 1))
        forest = ExtraTreesRegressor(TREES_EACH, max_features=0.6, random_state=k)
        forest.fit(x[span].numpy(), y[span, 0].numpy())
        theirs.append(((forest.predict(new[span].numpy()) - truth[span, 0].numpy()) ** 2).mean())
    assert ours < 1.1 * np.mean(theirs)


def test_a_tasks_trees_do_not_depend_on_others():
    x, y, offsets = made()
    together = grow(x, y, offsets, keys(6), bagged=True)
    task = torch.full((80,), 2)
    alone = grow(x[160:240], y[160:240], torch.tensor([0, 80]), keys(6)[2:3], bagged=True)
    here, there = together.forests(x[:80], task), alone.forests(x[:80], torch.zeros_like(task))
    assert torch.equal(here, there)
    assert torch.equal(together.unseen[160:240], alone.unseen)
    only = together.forests.of(torch.tensor([2]))
    assert torch.equal(only(x[:80], torch.zeros_like(task)), here)


def test_what_trees_have_not_seen_they_do_not_know():
    """Pure noise: every row is in some trees, and a judge that asked them would be flattered."""
    x, _, offsets = made(1, 400)
    y = torch.from_numpy(np.random.default_rng(1).normal(size=(400, 1))).float()
    grown = grow(x, y, offsets[:1].new_tensor([0, 400]), keys(1), bagged=True)
    inside = grown.forests(x, torch.zeros(400, dtype=torch.int64))
    assert float(((inside - y) ** 2).mean()) < 0.4
    assert float(((grown.unseen - y) ** 2).mean()) > 0.9


def test_classes_columns_that_differ_nowhere_and_tasks_without_rows():
    x, y, _ = made(2, 50)
    x[:, 3] = 1.0
    label = torch.nn.functional.one_hot((y[:, 0] > 0).long(), 2).float()
    offsets = torch.tensor([0, 50, 50, 100])
    found = grow(x, label, offsets, keys(3), bagged=True)
    said = found.forests(x, torch.tensor([0] * 50 + [2] * 50))
    assert torch.allclose(said.sum(dim=1), torch.ones(100), atol=1e-5)
    assert not bool((found.forests.column == 3).any())
    same = torch.ones(30, 2)
    flat = grow(same, torch.arange(30.0).unsqueeze(1), torch.tensor([0, 30]), keys(1), bagged=False)
    assert len(flat.forests.column) == TREES_EACH  # roots only
    assert torch.allclose(flat.forests(same, torch.zeros(30).long()), torch.tensor(14.5))


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("child", 0, 0), ("child", 0, 10**9), ("column", 0, 99), ("roots", 0, -1)],
)
def test_files_that_would_never_end(name, place, value):
    x, y, offsets = made(1)
    tensors = grow(x, y, offsets, keys(1), bagged=False).forests.to_tensors()
    assert Forests.from_tensors(tensors, 5).trees == TREES_EACH
    broken = {key: tensor.clone() for key, tensor in tensors.items()}
    broken[name][place] = value
    with pytest.raises(ValueError, match="fit together"):
        Forests.from_tensors(broken, 5)
