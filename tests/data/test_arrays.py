"""From arrays to a federation: nothing lost, nothing doubled, each task on its own."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data import from_arrays
from tacit.data.federation import PARTS
from tacit.data.split import SplitRule, leave_out_small, split
from tacit.errors import TacitError


def ragged(counts, seed=0, features=3):
    rng = np.random.default_rng(seed)
    tasks = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return rng.normal(size=(len(tasks), features)), rng.normal(size=len(tasks)), tasks


def error(*args, **options) -> str:
    with pytest.raises(TacitError) as caught:
        from_arrays(*args, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(3, 12), min_size=2, max_size=12),
    validation=st.floats(0, 0.49),
    test=st.floats(0, 0.49),
    seed=st.integers(0, 5),
)
def test_every_row_lands_once_in_its_own_task(counts, validation, test, seed):
    _, _, tasks = ragged(counts, seed)
    # A row is marked by its number and its task, so a row that strays is seen.
    x = np.stack([np.arange(len(tasks)), tasks], axis=1).astype(float)
    made = from_arrays(
        x, x[:, 0] + 0.5, tasks, validation=validation, test=test, split_seed=seed, scale="none"
    )
    seen = []
    for name in PARTS:
        part = made.part(name)
        assert part.offsets[0] == 0 and part.offsets[-1] == len(part.y) == len(part.x)
        for k, task in enumerate(made.names):
            px, py = part.of(k)
            assert (px[:, 1] == int(task)).all()
            assert torch.equal(px[:, 0] + 0.5, py)
            seen += px[:, 0].tolist()
            share = {"train": 1.0, "validation": validation, "test": test}[name]
            assert (len(px) >= 1) == (share > 0)
    assert sorted(seen) == list(range(len(tasks)))


def test_split_sizes_and_seed():
    x, y, tasks = ragged([100, 50])
    made = from_arrays(x, y, tasks, validation=0.1, test=0.3)
    sizes = {
        name: int(made.part(p).counts[k])
        for p in PARTS
        for k, t in enumerate(made.names)
        if t == "0"
        for name in [p]
    }
    assert sizes == {"train": 60, "validation": 10, "test": 30}
    again = from_arrays(x, y, tasks, validation=0.1, test=0.3)
    other = from_arrays(x, y, tasks, validation=0.1, test=0.3, split_seed=1)
    assert torch.equal(made.test.x, again.test.x)
    assert not torch.equal(made.test.x, other.test.x)


def test_shares_are_rounded_to_the_nearest_and_leave_a_row_to_every_part_in_use():
    def sizes(count, **shares):
        made = from_arrays(*ragged([count, 9]), **shares)
        return [int(made.part(p).counts[made.names.index("0")]) for p in PARTS]

    assert sizes(8, validation=0.2, test=0.2) == [4, 2, 2]  # 1.6 each
    assert sizes(7, validation=0.2, test=0.2) == [5, 1, 1]  # 1.4 each
    assert sizes(5, validation=0.5, test=0.1) == [1, 3, 1]  # a half is rounded up
    assert sizes(2, validation=0.0, test=0.9) == [1, 0, 1]
    assert sizes(2, validation=0.9, test=0.0) == [1, 1, 0]
    assert sizes(3, validation=0.01, test=0.9) == [1, 1, 1]
    assert sizes(3, validation=0.9, test=0.01) == [1, 1, 1]


def test_a_rule_shares_out_as_from_arrays_does_unless_told_otherwise():
    given, rule = inspect.signature(from_arrays).parameters, SplitRule()
    named = {"validation": rule.validation, "test": rule.test, "split_seed": rule.split_seed}
    assert {name: given[name].default for name in named} == named
    assert rule.min_rows == given["min_rows"].default == 0


def test_rows_held_by_the_publishers_are_the_test_part_and_no_others():
    codes, held = np.repeat([0, 1], 6), np.tile([False, False, True], 4)
    parts = split(codes, ["a", "b"], SplitRule(validation=0.25, test=0.5), held)
    assert parts["test"].rows.tolist() == np.flatnonzero(held).tolist()
    assert [len(parts[name].rows) for name in PARTS] == [6, 2, 4]
    assert parts["validation"].task.tolist() == [0, 1]
    held[6:] = True  # nothing is left of the second task to train on
    with pytest.raises(TacitError, match="task 'b' has fewer than 2 rows"):
        leave_out_small(codes, ["a", "b"], SplitRule(), held)


def test_the_split_leaves_the_global_random_state_alone():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    from_arrays(*ragged([5, 5]))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize(
    ("tasks", "names"),
    [
        (["b", "a", "b", "a"] * 3, ["b", "a"]),
        (np.array([10, 2, 10, 2] * 3), ["10", "2"]),
        (np.array([1.0, 0.0] * 6), ["1", "0"]),
        (torch.tensor([7, 5] * 6), ["7", "5"]),
        ([("x", 1), ("x", 2)] * 6, ["('x', 1)", "('x', 2)"]),
        (np.array(["p", "q"] * 6), ["p", "q"]),
    ],
)
def test_task_names_in_order_of_first_appearance(tasks, names):
    x, y, _ = ragged([12])
    assert list(from_arrays(x, y, tasks).names) == names


def test_small_tasks_are_named_or_left_out():
    x, y, tasks = ragged([5, 6] + [2] * 17)
    message = error(x, y, tasks)
    assert (
        "and 12 more" in message and "pass min_rows=3 (--min-rows 3) to leave them out" in message
    )
    made = from_arrays(x, y, tasks, min_rows=3)
    assert sorted(made.names) == ["0", "1"]
    assert made.assumptions[0].startswith("which tasks have at least 3 rows is taken to be public")
    whole = from_arrays(*ragged([5, 6]), min_rows=3)
    assert whole.assumptions == made.assumptions  # nobody learns whether a task was left out
    assert from_arrays(*ragged([5, 6])).assumptions == made.assumptions[1:]
    assert sum(len(made.part(p).y) for p in PARTS) == 11
    assert len(from_arrays(x, y, tasks, validation=0)) == 19  # two rows are enough for two parts
    assert "only one task" in error(x, y, tasks, min_rows=6)
    assert "tasks '1', '2' have fewer" in error(*ragged([5, 2, 2, 5]))
    assert "task '1' has fewer" in error(*ragged([5, 2, 5]))
    assert " more" not in error(*ragged([5, *[2] * 5]))
    assert "only one task" in error(*ragged([2]))
    assert "task '1' has fewer" in error(*ragged([5, 2]))


@pytest.mark.parametrize(
    ("y", "kind", "outputs", "labels"),
    [
        (np.arange(60) * 0.25, "regression", 1, ()),
        (np.arange(60), "regression", 1, ()),
        (np.arange(60) % 20, "multiclass", 20, tuple(map(str, range(20)))),
        (np.arange(60) % 21, "regression", 1, ()),
        (np.arange(60) % 2 == 0, "binary", 1, ("False", "True")),
        (np.arange(60) % 2 * 2.0 - 1, "binary", 1, ("-1", "1")),
        (["no", "yes"] * 30, "binary", 1, ("no", "yes")),
        (["b", "c", "a"] * 20, "multiclass", 3, ("a", "b", "c")),
        (np.arange(60)[:, None] % 2, "binary", 1, ("0", "1")),
        (np.arange(120).reshape(60, 2) // 2 % 2, "multilabel", 2, ("label0", "label1")),
        ([0.25, 0.75] * 30, "regression", 1, ()),
    ],
)
def test_kind_is_inferred(y, kind, outputs, labels):
    x, _, _ = ragged([60])
    made = from_arrays(x, y, np.arange(60) % 3)
    assert (made.kind, made.outputs, made.labels) == (kind, outputs, labels)
    assert made.train.y.dtype == (torch.int64 if kind == "multiclass" else torch.float32)
    assert bool(made.target_scale) == (kind == "regression")
    assert any("kind of the target" in a for a in made.assumptions) == (kind != "multilabel")


def test_class_codes_follow_the_labels():
    tasks = np.arange(60) % 3
    words = np.array(["pear", "apple", "fig", "fig"] * 15)
    made = from_arrays(np.arange(60.0)[:, None], words, tasks, scale="none")
    for part in PARTS:
        rows = made.part(part)
        for x, y in zip(rows.x[:, 0].int().tolist(), rows.y.tolist(), strict=True):
            assert made.labels[y] == words[x]
    numbers = from_arrays(np.arange(60.0)[:, None], np.array([10, 9, 2] * 20), tasks)
    assert numbers.labels == ("2", "9", "10")  # by size, not by spelling


def test_kind_overrides():
    x, _, tasks = ragged([30, 30])
    five = np.arange(60) % 5
    assert from_arrays(x, five, tasks, kind="regression").kind == "regression"
    many = np.arange(60) % 21 % 20
    assert from_arrays(x, many, tasks, kind="multiclass").outputs == 20
    assert "5 distinct values, but kind='binary' needs two" in error(x, five, tasks, kind="binary")
    assert "needs numbers" in error(x, ["a", "b"] * 30, tasks, kind="regression")
    assert "multilabel" in error(x, five, tasks, kind="multilabel")
    assert "expected one of: regression" in error(x, five, tasks, kind="ranking")


def test_counts_are_never_guessed_and_are_whole():
    x, _, tasks = ragged([30, 30])
    y = np.arange(60) % 7
    made = from_arrays(x, y, tasks, kind="count")
    assert (made.kind, made.outputs, made.labels, made.target_scale) == ("count", 1, (), None)
    assert made.train.y.dtype == torch.float32 and set(made.train.y.tolist()) <= set(range(7))
    assert from_arrays(x, y, tasks, kind="count", target_scale="task").target_scale is None
    assert from_arrays(x, y, tasks).kind == from_arrays(x, y * 3, tasks).kind == "multiclass"
    for wrong, shown in ((-1.0, "-1"), (2.5, "2.5")):
        bad = y.astype(float)
        bad[9] = wrong
        found = error(x, bad, tasks, kind="count")
        assert f"row 10 of y is {shown}, but kind='count' needs whole numbers, 0 or more" in found
        assert "kind='regression'" in found
    assert "needs numbers" in error(x, ["a", "b"] * 30, tasks, kind="count")


def test_errors_say_what_and_what_to_do():
    x, y, tasks = ragged([30, 30])
    assert "only one task" in error(x, y, np.zeros(60))
    assert "same value '3' in every row" in error(x, np.full(60, 3.0), tasks)
    assert "60 rows, y has 59" in error(x, y[:-1], tasks)
    assert "no rows" in error(x[:0], y[:0], tasks[:0])
    assert "no features" in error(x[:, :0], y, tasks)
    assert "reshape" in error(x[:, 0], y, tasks)
    assert "from_table" in error(x.astype(str), y, tasks)
    assert "is it really a class? choose another target" in error(x, [f"r{i}" for i in y], tasks)
    message = error(x, np.arange(60), tasks, kind="multiclass")
    assert "60 distinct values" in message and "pass kind='regression'" in message
    assert "column 2 of y is 2" in error(x, np.tile([0, 2], (60, 1)), tasks)
    for value in (np.nan, np.inf, 1e300):
        bad = x.copy()
        bad[16, 1] = value
        assert "row 17, column 'x1' of x" in error(bad, y, tasks)
        bad_y = y.copy()
        bad_y[4] = value
        assert "row 5 of y" in error(x, bad_y, tasks)
    gap = np.array(["a", "b"] * 30, dtype=object)
    gap[9] = None
    assert "row 10 of y" in error(x, gap, tasks)
    assert "row 10 has no task" in error(x, y, gap)
    assert "both written '1'" in error(x, y, [1, "1"] * 30)
    assert "below 1" in error(x, y, tasks, validation=0.5, test=0.5)
    assert "test is 1.5" in error(x, y, tasks, test=1.5)
    assert "split_seed is -1" in error(x, y, tasks, split_seed=-1)
    assert "expected one of: auto, task" in error(x, y, tasks, scale="columns")
    assert "features has 2 names" in error(x, y, tasks, features=["a", "b"])


def test_more_than_a_thousand_classes():
    y = np.arange(6000) % 1001
    x = np.ones((6000, 1))
    assert "1001 distinct values" in error(x, y, np.arange(6000) % 2, kind="multiclass")


def test_images_keep_their_shape_and_values():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (40, 2, 3, 4)).astype(np.uint8)
    made = from_arrays(torch.from_numpy(x), np.arange(40) % 4, np.arange(40) % 2)
    assert made.input_shape == (2, 3, 4) and made.features == ()
    assert made.train.x.max() > 200
    scaled = from_arrays(x, np.arange(40) % 4, np.arange(40) % 2, scale="task")
    assert scaled.train.of(0)[0].mean(dim=0).abs().max() < 1e-5


def test_a_hundred_thousand_tasks():
    tasks = np.repeat(np.arange(100_000), 3)
    rng = np.random.default_rng(0)
    made = from_arrays(rng.normal(size=(300_000, 2)), rng.normal(size=300_000), tasks)
    assert len(made) == 100_000
    assert all((made.part(p).counts == 1).all() for p in PARTS)
