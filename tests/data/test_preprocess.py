"""Scaling: inside each task, from training rows only, the same at prediction time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from tacit.data import from_arrays, from_table, preprocess
from tacit.data.preprocess import Preprocessing, fit, moments, two_valued
from tacit.errors import TacitError


def table(seed=0, rows=90, tasks=3):
    rng = np.random.default_rng(seed)
    site = np.repeat([f"s{k}" for k in range(tasks)], rows // tasks)
    return {
        "site": site,
        "age": rng.normal(50, 10, rows) + np.repeat(np.arange(tasks) * 100.0, rows // tasks),
        "smoker": rng.integers(0, 2, rows),
        "y": rng.normal(7, 3, rows),
    }


def test_training_rows_of_every_task_have_mean_0_and_deviation_1():
    made = from_table(table(), task="site", target="y")
    for k in range(3):
        x, y = made.train.of(k)
        assert abs(x[:, 0].mean()) < 1e-5 and abs(x[:, 0].std(correction=0) - 1) < 1e-5
        assert abs(y.mean()) < 1e-5 and abs(y.std(correction=0) - 1) < 1e-5
        assert set(x[:, 1].tolist()) == {0.0, 1.0}  # an indicator is never scaled
    assert not made.leaks
    assert any("only two codes" in a for a in made.assumptions)


def test_one_task_and_its_held_out_rows_change_nothing_elsewhere():
    plain = table()
    made = from_table(plain, task="site", target="y")
    changed = {**plain, "age": plain["age"].copy(), "y": plain["y"].copy()}
    changed["age"][:30] *= 1000.0
    changed["y"][:30] -= 5000.0
    other = from_table(changed, task="site", target="y")
    for part in ("train", "validation", "test"):
        for k in (1, 2):
            for a, b in zip(made.part(part).of(k), other.part(part).of(k), strict=True):
                assert torch.equal(a, b)
    # Moving the test rows of a task must not move its training rows.
    raw = np.arange(60.0)
    base = from_arrays(raw[:, None], raw + 0.5, np.repeat([0, 1], 30), scale="none")
    held = base.test.x[:, 0].long().numpy()
    moved = raw.copy()
    moved[held] = 1e6
    a = from_arrays(raw[:, None], raw + 0.5, np.repeat([0, 1], 30))
    b = from_arrays(moved[:, None], moved + 0.5, np.repeat([0, 1], 30))
    assert torch.equal(a.train.x, b.train.x) and torch.equal(a.train.y, b.train.y)
    assert not torch.equal(a.test.x, b.test.x)


def test_target_scale_turns_targets_back():
    plain = table()
    made = from_table(plain, task="site", target="y")
    scale = made.target_scale
    assert scale is not None
    back = []
    for part in (made.train, made.validation, made.test):
        task = torch.repeat_interleave(torch.arange(3), part.counts)
        back += (scale.shift[task] + scale.scale[task] * part.y).tolist()
    np.testing.assert_allclose(sorted(back), np.sort(plain["y"]), rtol=1e-5)


@pytest.mark.parametrize("scale", ["task", "pooled", "none"])
def test_apply_at_prediction_time_is_what_training_saw(scale):
    made = from_table(table(), task="site", target="y", scale=scale)
    assert made.schema is not None and made.preprocessing is not None
    from tacit.data.tabular import as_table

    x, _ = made.schema.matrix(as_table(table()))
    task = np.repeat([0, 1, 2], 30)
    all_rows = made.preprocessing.apply(x, task)
    got = torch.cat([made.part(p).x for p in ("train", "validation", "test")])
    key = lambda rows: sorted(map(tuple, rows.tolist()))  # noqa: E731
    assert key(all_rows) == key(got)
    assert torch.equal(made.preprocessing.apply(x[:30], 0), all_rows[:30])
    with pytest.raises(TacitError, match="training had 2 features"):
        made.preprocessing.apply(x[:, :1], task)


def test_pooled_scaling_is_a_leak_in_words():
    made = from_table(table(), task="site", target="y", scale="pooled")
    assert len(made.leaks) == 2 and all("without noise" in leak for leak in made.leaks)
    assert abs(made.train.x[:, 0].mean()) < 1e-5
    assert made.target_scale is not None and len(set(made.target_scale.shift.tolist())) == 1
    only_x = from_table(table(), task="site", target="y", scale="pooled", target_scale="none")
    assert len(only_x.leaks) == 1 and only_x.target_scale is None


def test_public_constants():
    plain = table()
    made = from_table(
        plain, task="site", target="y", scale={"age": (150.0, 10.0)}, target_scale=(7.0, 3.0)
    )
    raw = from_table(plain, task="site", target="y", scale="none")
    torch.testing.assert_close(made.train.x[:, 0], (raw.train.x[:, 0] - 150.0) / 10.0)
    torch.testing.assert_close(made.train.y, (raw.train.y - 7.0) / 3.0)
    assert torch.equal(made.train.x[:, 1], raw.train.x[:, 1])
    assert not made.leaks and sum("public" in a for a in made.assumptions) == 4
    pair = from_table(plain, task="site", target="y", scale=([150.0, 0.0], [10.0, 1.0]))
    assert torch.equal(pair.train.x, made.train.x)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": {"agee": (0, 1)}}, "did you mean 'age'"),
        ({"scale": {"age": (0, 0)}}, "above 0"),
        ({"scale": {"age": 3}}, "must be {column"),
        ({"scale": ([1.0], [1.0])}, "expected 2 of each"),
        ({"scale": 3.0}, "scale is a float"),
        ({"target_scale": (1.0, -1.0)}, "above 0"),
        ({"target_scale": (1.0,)}, "expected 'task'"),
        ({"target_scale": "each"}, "target_scale is 'each'"),
    ],
)
def test_wrong_constants(options, words):
    with pytest.raises(TacitError, match=words):
        from_table(table(), task="site", target="y", **options)


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    columns=st.sampled_from([1, 3, 70]),
    gaps=st.floats(0, 0.9),
    seed=st.integers(0, 1000),
)
def test_moments_against_numpy(counts, columns, gaps, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (sum(counts), columns))
    x[rng.random(x.shape) < gaps] = np.nan
    offsets = np.concatenate([[0], np.cumsum(counts)])
    mean, sd = moments(x, offsets)
    for k in range(len(counts)):
        for j in range(columns):
            cells = x[offsets[k] : offsets[k + 1], j]
            cells = cells[~np.isnan(cells)]
            assert mean[k, j] == pytest.approx(cells.mean() if len(cells) else 0.0)
            assert sd[k, j] == pytest.approx(cells.std() if len(cells) else 0.0)


def test_rounding_does_not_give_a_constant_column_a_deviation():
    x = np.full((30, 3), 0.1)  # ten times 0.1 is not 1 in double precision
    mean, sd = moments(x, np.array([0, 10, 30]))
    assert (sd == 0).all() and (mean == 0.1).all()


def test_constant_and_empty_columns():
    more = [[0.2, 2.0, 6.0], [0.3, 3.0, 7.0], [0.3, 4.0, 8.0]]
    x = np.array([[0.1, np.nan, 5.0]] * 3 + more, dtype=np.float32)
    made = fit(x, np.array([0, 3, 6]), "task", ["a", "b", "c"]).preprocessing
    assert made.scale[0].tolist() == [1.0, 1.0, 1.0] and made.shift[0, 1] == 0.0
    out = made.apply(x, np.array([0, 0, 0, 1, 1, 1]))
    assert (out[:3] == 0).all() and not torch.isnan(out).any()
    assert out[3:, 1].tolist() == pytest.approx([-math.sqrt(1.5), 0, math.sqrt(1.5)])


@pytest.mark.parametrize("rows", [6, 40_000])
def test_columns_of_two_values_become_zero_and_one(rows):
    """Whatever the values are, and wherever in the table they are seen first."""
    odd = np.arange(rows) % 2.0
    late = np.where(np.arange(rows) < rows - 2, 5.0, 7.0)
    columns = {
        "0 and 1": (odd, odd),
        "1 and 2": (odd + 1, odd),
        "-1 and 1": (2 * odd - 1, odd),
        "with gaps": (np.where(np.arange(rows) == 1, np.nan, 3 - odd), None),
        "one late": (late, (late == 7) * 1.0),
        "only ones": (np.ones(rows), np.ones(rows)),
    }
    others = {
        "a large one": 1e6 * odd,
        "a fraction": odd / 2,
        "constant": np.full(rows, 3.0),
        "three": np.where(late == 7, 9.0, odd),
    }
    others |= {"three late": np.append(odd[:-2], [0.5, 0.5]), "between": np.append(late[:-1], 6.0)}
    x = np.column_stack([*(value for value, _ in columns.values()), *others.values()])
    found, low, wide = two_valued(x)
    assert found.tolist() == [True] * len(columns) + [False] * len(others)
    for k, (_, expected) in enumerate(columns.values()):
        if expected is not None:
            assert ((x[:, k] - low[k]) / wide[k]).tolist() == expected.tolist()
    assert not low[len(columns) :].any() and (wide[len(columns) :] == 1).all()


@pytest.mark.parametrize("scale", ["task", "none", "pooled", ([3.0, 0.0], [2.0, 1.0])])
def test_gaps_are_filled_from_the_task_itself(scale):
    x = np.array([[1.0, 1.0], [3.0, 0.0], [np.nan, np.nan], [10.0, 1.0], [np.nan, 1.0]], "f4")
    made = fit(x, np.array([0, 3, 5]), scale, ["a", "b"]).preprocessing
    out = made.apply(x, np.array([0, 0, 0, 1, 1]))
    assert not torch.isnan(out).any()
    if scale == "none":
        assert out[2].tolist() == [2.0, 0.5] and out[4, 0] == 10.0
    if scale == "task":
        assert out[2].tolist() == [0.0, 0.5] and out[4, 0] == 0.0


def test_saved_and_read_back():
    x = np.array([[1.0, 1.0], [3.0, 0.0], [np.nan, np.nan], [10.0, 1.0]], "f4")
    made = fit(x, np.array([0, 3, 4]), "task", ["a", "b"]).preprocessing
    assert made.fill is not None
    again = Preprocessing.from_tensors(load(save(made.to_tensors())))
    task = np.array([0, 0, 0, 1])
    assert torch.equal(again.apply(x, task), made.apply(x, task))
    with pytest.raises(TacitError, match="damaged"):
        Preprocessing.from_tensors({})


def test_how_many_rows_are_looked_at_at_a_time_changes_no_bit(monkeypatch):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 30, 40)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    x = rng.normal(size=(offsets[-1], 11)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 3] = rng.integers(0, 2, len(x))
    task = np.repeat(np.arange(40), counts)

    def found():
        made = fit(x, offsets, "task", [str(k) for k in range(11)])
        assert made.own is not None
        return [*made.own, made.preprocessing.apply(x, task).numpy()]

    at_once = found()
    for name, few in (("ROWS_AT_ONCE", 7), ("NUMBERS_AT_ONCE", 30), ("COLUMNS_AT_ONCE", 2)):
        monkeypatch.setattr(preprocess, name, few)
    for one, other in zip(at_once, found(), strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_rows_that_are_all_for_training_are_in_their_order():
    rng = np.random.default_rng(0)
    x, site = rng.normal(size=(60, 2)), np.repeat([2, 0, 1], 20)
    made = from_arrays(x, rng.normal(size=60), site, validation=0.0, test=0.0, scale="none")
    assert np.allclose(made.train.x.numpy(), x) and not len(made.test.y)
    apart = from_arrays(x, rng.normal(size=60), np.arange(60) % 3, validation=0.0, test=0.0)
    assert made.names == ["2", "0", "1"] and apart.train.counts.tolist() == [20, 20, 20]
