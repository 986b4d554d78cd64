"""From each task's own units to common ones, and back to those of the table."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from tacit import data
from tacit.data.common import in_common_units, in_original_units, in_own_units
from tacit.data.preprocess import Preprocessing


def table(tasks: int = 6, rows: int = 9, seed: int = 0):
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(tasks), rows)
    x = 1e4 + 5.0 * rng.normal(size=(len(site), 3)) + site[:, None]
    return x, x.sum(1) + rng.normal(size=len(site)), site


def test_common_units_are_those_of_the_table_shifted_and_scaled():
    x, y, site = table()
    federation = data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.3)
    centre, spread = torch.tensor([1e4, 1e4, 0.0, 3e4]), torch.tensor([5.0, 50.0, 1e4, 10.0])
    found = in_common_units(federation, centre, spread)
    direct = data.from_arrays(
        x, y, site, kind="regression", validation=0.0, test=0.3,
        scale=(centre[:3].tolist(), spread[:3].tolist()), target_scale=(3e4, 10.0),
    )  # fmt: skip
    for part in ("train", "test"):
        assert torch.allclose(found.part(part).x, direct.part(part).x, atol=1e-4)
        assert torch.allclose(found.part(part).y, direct.part(part).y, atol=1e-4)
    assert found.preprocessing is not None and direct.preprocessing is not None
    again = found.preprocessing.apply(x[:2], 0)
    assert torch.allclose(again, direct.preprocessing.apply(x[:2], 0), atol=1e-4)
    assert found.units is None and not found.own_scaling


def test_own_units_are_made_of_all_rows_that_a_task_learns_from():
    x, y, site = table(rows=4)
    columns = {f"x{k}": x[:, k] for k in range(3)} | {"y": y, "site": site}
    options = {"task": "site", "target": "y", "test": 0.25, "split_seed": 3}
    split = data.from_table(columns, validation=0.25, **options)
    whole = data.from_table(columns, validation=0.0, **options)
    found = in_own_units(split.without_validation())
    assert found.preprocessing is not None and whole.preprocessing is not None
    assert found.units is not None and whole.units is not None and split.units is not None
    for name in ("centre", "spread"):
        made, known = getattr(found.units, name), getattr(whole.units, name)
        assert torch.allclose(made, known, rtol=1e-6)
        assert not torch.allclose(getattr(split.units, name), known, rtol=1e-5)
    for part in ("train", "test"):  # in the same units, whatever the order of rows
        ours, known = found.part(part), whole.part(part)
        assert torch.allclose(ours.x.sort(0).values, known.x.sort(0).values, atol=1e-4)
        assert torch.allclose(ours.y.sort().values, known.y.sort().values, atol=1e-4)
    made, known = (one.preprocessing.apply(x[:4], 0) for one in (found, whole))
    assert torch.allclose(made, known, atol=1e-5)
    assert found.target_scale is not None and whole.target_scale is not None
    assert torch.allclose(found.target_scale.scale, whole.target_scale.scale, rtol=1e-6)


def test_gaps_are_no_values_of_a_task():
    """With every other value lacking, a unit of all rows is that of the values there are."""
    x, y, site = table(rows=40)
    columns = {"a": x[:, 0].copy(), "b": x[:, 1], "y": y, "site": site}
    columns["a"][::2] = np.nan
    columns["a"][site == 5] = np.nan
    options = {"task": "site", "target": "y", "test": 0.0, "split_seed": 3}
    split = data.from_table(columns, validation=0.25, **options)
    whole = data.from_table(columns, validation=0.0, **options)
    found = in_own_units(split.without_validation())
    assert found.units is not None and whole.units is not None
    assert torch.allclose(found.units.spread, whole.units.spread, rtol=1e-6, equal_nan=True)
    assert torch.allclose(found.units.centre, whole.units.centre, rtol=1e-6)
    assert found.units.spread[5, 0].isnan() and found.units.spread[4, 0] > 3.0
    gap = found.train.x[:, list(found.features).index("a (missing)")] > 0
    filled = found.train.x[gap, list(found.features).index("a")]
    assert gap.sum() == 140 and not filled.any()


def test_features_end_at_the_farthest_unit_also_those_that_are_predicted_later():
    x, y, site = table()
    x[0, 0], x[20, 1], new = 1e7, -1e9, np.array([[1e4, 2e4, -1e30]])
    federation = data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.0)
    units = torch.full((4,), 1e4), torch.full((4,), 10.0)
    found, free = (in_common_units(federation, *units, far) for far in (5.0, math.inf))
    assert found.train.x.abs().max() == 5 and free.train.x.abs().max() > 1e7
    assert torch.equal(found.train.x, free.train.x.clamp(-5, 5))
    assert torch.equal(found.train.y, free.train.y)  # a target is what it is
    made = found.preprocessing
    assert made is not None and made.apply(new, 3).tolist() == [[0.0, 5.0, -5.0]]
    assert Preprocessing.from_tensors(made.to_tensors()).apply(new, 3).tolist() == [
        [0.0, 5.0, -5.0]
    ]
    assert made.within(new, np.array([3])).tolist() == [[1e4, 1e4 + 50, 1e4 - 50]]


def test_a_column_that_a_task_never_saw_is_at_the_common_centre():
    x, y, site = table()
    columns = {"a": x[:, 0].copy(), "b": x[:, 1], "y": y, "site": site}
    columns["a"][site == 2] = np.nan
    federation = data.from_table(columns, task="site", target="y", kind="regression", test=0.0)
    assert federation.units is not None
    found = in_common_units(federation, torch.full((3,), 1e4), torch.full((3,), 5.0))
    place = list(federation.features).index("a")
    assert not found.train.of(2)[0][:, place].any() and found.train.of(1)[0][:, place].any()


def test_the_shared_model_never_uses_constants_that_tasks_keep():
    x, y, site = table()
    federation = data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.0)
    nan = float("nan")
    kept = in_common_units(
        federation, torch.tensor([1e4, nan, 1e4, 3e4]), torch.tensor([5.0, nan, 5.0, 10.0])
    )
    w = torch.ones(7, 4, dtype=torch.float64)
    found = in_original_units(kept, w)
    assert found[-1, 1] == 0 and found[:6, 1].all()
    assert torch.allclose(found[-1, :3], torch.tensor([2.0, 0.0, 2.0]).double())
    assert found[-1, 3] == 3e4 + 10 * (1 - 2e4 / 5)
    # What a task has of its own moves no number of the shared model.
    assert kept.preprocessing is not None
    moved = dataclasses.replace(kept.preprocessing, shift=kept.preprocessing.shift.clone())
    moved.shift[0, 1] += 100.0
    again = in_original_units(dataclasses.replace(kept, preprocessing=moved), w)
    assert torch.equal(again[-1], found[-1]) and not torch.equal(again[0], found[0])
    without = in_common_units(
        federation, torch.tensor([1e4, 1e4, 1e4, nan]), torch.tensor([5.0, 5.0, 5.0, nan])
    )
    assert in_original_units(without, w)[-1].isnan().all()


def test_constants_that_are_given_stay_and_nobody_votes_on_them():
    x, y, site = table()
    columns = {f"x{k}": x[:, k] for k in range(3)} | {"y": y, "site": site}
    options = {"task": "site", "target": "y", "target_scale": (3e4, 20.0)}
    made = data.from_table(columns, **options)
    assert made.units is not None and len(made.units) == 3  # columns, and no target
    assert made.target_scale is not None
    found = in_own_units(made.without_validation())
    shared = in_common_units(found, torch.full((3,), 1e4), torch.full((3,), 5.0))
    for one in (found, shared):
        assert one.target_scale is not None and set(one.target_scale.scale.tolist()) == {20.0}
    assert torch.equal(found.test.y, made.test.y) and torch.equal(shared.test.y, made.test.y)
    assert shared.without_unit == ()
