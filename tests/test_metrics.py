"""Scores against scikit-learn, task by task, on ragged random tasks."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    d2_tweedie_score,
    f1_score,
    jaccard_score,
    log_loss,
    mean_poisson_deviance,
    r2_score,
    roc_auc_score,
)

from tacit.data import from_arrays
from tacit.data.federation import TargetScale
from tacit.data.heads import Heads
from tacit.errors import TacitError
from tacit.metrics import evaluate, evaluate_rows, main_score, original_units, task_score

shapes = {
    "counts": st.lists(st.integers(0, 9), min_size=1, max_size=15),
    "seed": st.integers(0, 10_000),
}


def spans(counts):
    ends = np.cumsum(counts)
    return [slice(e - c, e) for e, c in zip(ends, counts, strict=True)]


def offsets(counts):
    return torch.tensor([0, *np.cumsum(counts)])


def check(values, expected):
    """Task by task: NaN exactly where None is expected."""
    assert len(values) == len(expected)
    for got, wanted in zip(values, expected, strict=True):
        assert math.isnan(got) if wanted is None else got == pytest.approx(wanted, abs=1e-9)


def mean_of(values):
    known = [v for v in values if v is not None]
    return pytest.approx(np.mean(known), abs=1e-9) if known else None


@settings(max_examples=50, deadline=None)
@given(**shapes)
def test_binary(counts, seed):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = rng.integers(0, 2, n).astype(np.float32)
    z = rng.integers(-3, 4, n) / 2.0  # few values: many ties
    got = evaluate("binary", torch.tensor(z), torch.tensor(y), offsets(counts))
    aucs, losses, right = [], [], []
    for span in spans(counts):
        a, b = y[span], z[span]
        aucs.append(roc_auc_score(a, b) if len(set(a)) == 2 else None)
        p = 1 / (1 + np.exp(-b))
        losses.append(log_loss(a, np.stack([1 - p, p], 1), labels=[0, 1]) if len(a) else None)
        right.append(accuracy_score(a, b > 0) if len(a) else None)
    check(got.per_task["auc"], aucs)
    check(got.per_task["loss"], losses)
    check(got.per_task["accuracy"], right)
    assert got.overall["auc"] == mean_of(aucs)
    assert got.overall["loss_per_task"] == mean_of(losses)
    assert got.overall["accuracy_per_task"] == mean_of(right)
    if len(set(y)) == 2:
        assert got.overall["auc_pooled"] == pytest.approx(roc_auc_score(y, z))
    else:
        assert got.overall["auc_pooled"] is None
    if n:
        assert got.overall["accuracy"] == pytest.approx(accuracy_score(y, z > 0))
    else:
        assert set(got.overall.values()) == {None}


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_regression(counts, seed):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = rng.integers(0, 3, n) / 3 + 100.0  # some tasks are constant
    p = y + rng.normal(size=n)
    got = evaluate("regression", p, y, offsets(counts))
    losses = [np.mean((y[s] - p[s]) ** 2) if len(y[s]) else None for s in spans(counts)]
    nmse = [1 - r2_score(y[s], p[s]) if len(set(y[s])) > 1 else None for s in spans(counts)]
    check(got.per_task["loss"], losses)
    for value, wanted in zip(got.per_task["nmse"], nmse, strict=True):
        assert math.isnan(value) if wanted is None else value == pytest.approx(wanted, rel=1e-6)
    if len(set(y)) > 1:
        assert got.overall["nmse_pooled"] == pytest.approx(1 - r2_score(y, p), rel=1e-6)
    known = [v for v in nmse if v is not None]
    if known:
        assert got.overall["nmse_per_task"] == pytest.approx(np.mean(known), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_count(counts, seed):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = rng.integers(0, 3, n).astype(float)  # some tasks are constant
    z = rng.normal(size=n)
    got, mean = evaluate("count", z, y, offsets(counts)), np.exp(z)
    losses = [mean_poisson_deviance(y[s], mean[s]) if len(y[s]) else None for s in spans(counts)]
    shares = [
        1 - d2_tweedie_score(y[s], mean[s], power=1) if len(set(y[s])) > 1 else None
        for s in spans(counts)
    ]
    check(got.per_task["loss"], losses)
    check(got.per_task["deviance"], shares)
    wild = evaluate("count", np.where(z > 0, 1e5, -1e5), y, offsets(counts))
    assert all(v is None or np.isfinite(v) for v in wild.overall.values())
    assert "accuracy" not in got.per_task
    if len(set(y)) > 1:
        wanted = 1 - d2_tweedie_score(y, mean, power=1)
        assert got.overall["deviance_pooled"] == pytest.approx(wanted)
        assert got.overall["deviance_per_task"] == mean_of(shares)
    assert (main_score("count"), task_score("count")) == (
        ("deviance_pooled", False), ("loss", False),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_multiclass(counts, seed):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = rng.integers(0, 4, n)
    z = rng.normal(size=(n, 4)) * 3
    got = evaluate("multiclass", torch.tensor(z), torch.tensor(y), offsets(counts))
    losses, right = [], []
    for s in spans(counts):
        full = len(y[s]) > 0
        soft = torch.softmax(torch.tensor(z[s]), dim=1).numpy()
        losses.append(log_loss(y[s], soft, labels=range(4)) if full else None)
        right.append(accuracy_score(y[s], z[s].argmax(1)) if full else None)
    check(got.per_task["loss"], losses)
    check(got.per_task["accuracy"], right)
    if n:
        wanted = torch.nn.functional.cross_entropy(torch.tensor(z), torch.tensor(y))
        assert got.overall["loss"] == pytest.approx(wanted.item())


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_multilabel(counts, seed):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = (rng.random((n, 3)) < 0.3).astype(np.float64)
    z = rng.normal(size=(n, 3))
    got = evaluate("multilabel", z, y, offsets(counts))
    f1, right, losses = [], [], []
    for s in spans(counts):
        said = z[s] > 0
        defined = said.any() or y[s].any()
        f1.append(f1_score(y[s].ravel(), said.ravel()) if defined else None)
        right.append((said == y[s]).mean() if len(said) else None)
        bce = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.tensor(z[s]), torch.tensor(y[s])
        )
        losses.append(bce.item() if len(said) else None)
    check(got.per_task["f1"], f1)
    check(got.per_task["accuracy"], right)
    check(got.per_task["loss"], losses)
    assert got.overall["f1_per_task"] == mean_of(f1)
    if n and (y.any() or (z > 0).any()):
        assert got.overall["f1"] == pytest.approx(f1_score(y.ravel(), (z > 0).ravel()))


def test_rows_weigh_in_one_mean_and_tasks_in_the_other():
    got = evaluate("binary", np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 1, 0]), [0, 3, 4])
    assert got.overall["accuracy"] == 0.75 and got.overall["accuracy_per_task"] == 0.5


def test_rounding_does_not_give_equal_targets_a_variance():
    y = np.array([0.1] * 10 + [0.1, 0.2])
    got = evaluate("regression", y + 1.0, y, [0, 10, 12])
    assert got.task(0)["nmse"] is None and got.task(1)["nmse"] == pytest.approx(400.0)
    assert evaluate("regression", y[:10] + 1, y[:10], [0, 10]).overall["nmse_pooled"] is None


def test_worst_tenth():
    # 20 tasks of one row, errors 0..19: the worst two have squared errors 18² and 19².
    got = evaluate("regression", np.arange(20.0), np.zeros(20), np.arange(21))
    assert got.overall["worst_tenth"] == (18**2 + 19**2) / 2
    y = np.arange(20) % 2
    accuracy = evaluate("binary", np.append(1.0, 2 * y[1:] - 1), y, np.arange(21))
    assert accuracy.overall["worst_tenth"] == 0.5
    few = evaluate("binary", np.ones(3), np.array([1, 0, 1]), np.arange(4))
    assert few.overall["worst_tenth"] == 0.0  # at least one task


def test_main_score_exists_and_points_the_right_way():
    good = {
        "regression": (np.array([0.1, 1.1]), np.array([0.0, 1.0])),
        "binary": (np.array([-1.0, 1.0]), np.array([0.0, 1.0])),
        "multiclass": (np.array([[3.0, 0, 0], [0, 3, 0]]), np.array([0, 1])),
        "multilabel": (np.array([[3.0, -1], [-3, 2]]), np.array([[1.0, 0], [0, 1]])),
    }
    for kind, (out, y) in good.items():
        better, worse = evaluate(kind, out, y, [0, 2]), evaluate(kind, out[::-1], y, [0, 2])
        for (name, higher), of in (
            (main_score(kind), lambda m: m.overall),
            (task_score(kind), lambda m: m.task(0)),
        ):
            assert (of(better)[name] > of(worse)[name]) == higher


def test_a_model_that_broke_down_is_bad_not_undefined():
    y = np.array([0.0, 1.0, 0.0, 1.0])
    got = evaluate("binary", np.array([np.nan, np.nan, -1.0, 1.0]), y, [0, 2, 4])
    assert got.task(0)["accuracy"] == 0.0 and got.task(0)["loss"] == math.inf
    assert got.task(0)["auc"] is None and got.task(1)["auc"] == 1.0
    assert got.overall["auc_pooled"] is None and got.overall["accuracy"] == 0.5
    line = evaluate("regression", np.array([np.nan, 1e300, 0.0, 1.0]), y, [0, 2, 4])
    assert line.overall["nmse_pooled"] == math.inf and line.overall["worst_tenth"] == math.inf
    wide = np.array([[np.nan, 0.0], [0.0, np.inf], [1.0, 0.0], [-np.inf, 0.0]])
    classes = evaluate("multiclass", wide, y, [0, 2, 4])
    assert classes.task(0)["accuracy"] == 0.5 and classes.task(1)["accuracy"] == 1.0
    labels = evaluate("multilabel", np.full((2, 2), np.nan), np.eye(2), [0, 2])
    assert labels.overall["f1"] == 0.0 and labels.overall["accuracy"] == 0.0
    json.dumps([got.to_json(), line.to_json(), classes.to_json()], allow_nan=False)


def test_extreme_logits_are_exact():
    got = evaluate("binary", np.array([1000.0, -1000.0]), np.array([0.0, 1.0]), [0, 1, 2])
    assert got.per_task["loss"].tolist() == [1000.0, 1000.0]
    got = evaluate("multiclass", np.array([[1000.0, 0.0]]), np.array([1]), [0, 1])
    assert got.overall["loss"] == 1000.0


def test_scaled_targets_are_scored_in_their_own_units():
    rng = np.random.default_rng(0)
    y = rng.normal(50, 20, 40)
    made = from_arrays(rng.normal(size=(40, 1)), y, np.arange(40) % 2)
    got = evaluate_rows(
        "regression", torch.zeros(len(made.test.y), 1), made.test, made.target_scale
    )
    raw = from_arrays(rng.normal(size=(40, 1)), y, np.arange(40) % 2, scale="none")
    for k in range(2):  # predicting 0 in scaled units is predicting the task's training mean
        wanted = ((raw.test.of(k)[1] - raw.train.of(k)[1].mean()) ** 2).mean().item()
        assert got.task(k)["loss"] == pytest.approx(wanted, rel=1e-4)
    back = original_units(
        [1.0, 2.0], [0, 1, 2], TargetScale(torch.tensor([5.0, 7.0]), torch.ones(2))
    )
    assert back.tolist() == [6.0, 9.0]
    binary = from_arrays(rng.normal(size=(40, 1)), y > 50, np.arange(40) % 2)
    assert evaluate_rows("binary", binary.test.y - 0.5, binary.test).overall["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("kind", "out", "y"),
    [
        ("binary", (3,), (4,)),
        ("binary", (4, 2), (4,)),
        ("multiclass", (4,), (4,)),
        ("multilabel", (4, 2), (4, 3)),
        ("regression", (5,), (5,)),
    ],
)
def test_shapes_that_do_not_fit(kind, out, y):
    with pytest.raises(TacitError, match="does not fit"):
        evaluate(kind, np.zeros(out), np.zeros(y), [0, 4])


# --- several targets in a row, some of them missing ---


def one_head_each(names, outputs):
    return Heads(names, outputs, torch.ones(1, len(names), dtype=torch.bool))


@settings(max_examples=40, deadline=None)
@given(gone=st.floats(0, 1), **shapes)
def test_multilabel_with_missing_labels_counts_the_present_ones_only(counts, seed, gone):
    """Also rows, tasks and labels that have none at all; NaN outputs are wrong on all they have."""
    rng = np.random.default_rng(seed)
    n = sum(counts)
    y = (rng.random((n, 4)) < 0.4).astype(np.float64)
    y[rng.random((n, 4)) < gone] = np.nan
    y[rng.random(n) < 0.2] = np.nan
    z = rng.normal(size=(n, 4))
    broken = rng.random(n) < 0.15
    z[broken, rng.integers(4)] = np.nan
    heads = one_head_each(("a", "b"), (3, 1))
    got = evaluate("multilabel", torch.tensor(z), torch.tensor(y), offsets(counts), heads)

    def scores(rows):
        """Loss, accuracy and F1 of some rows, label by label."""
        losses, right, known, hits, said_or_true = [], 0, 0, 0, 0
        for row in rows:
            there = [k for k in range(4) if not math.isnan(y[row, k])]
            if not there:
                continue
            each = [math.inf if broken[row] else np.logaddexp(0, z[row, k] * (1 - 2 * y[row, k]))
                    for k in there]  # fmt: skip
            losses.append(np.mean(each))
            for k in there:
                said = bool(z[row, k] > 0 and not broken[row])
                known += 1
                right += not broken[row] and said == (y[row, k] > 0)
                hits += 2 * (said and y[row, k] > 0)
                said_or_true += said + int(y[row, k])
        return (
            np.mean(losses) if losses else None,
            right / known if known else None,
            hits / said_or_true if said_or_true else None,
        )

    tasks = [scores(range(s.start, s.stop)) for s in spans(counts)]
    for name, column in (("loss", 0), ("accuracy", 1), ("f1", 2)):
        wanted = [task[column] for task in tasks]
        check(got.per_task[name], wanted)
        whole = scores(range(n))[column]
        assert got.overall[name] == (None if whole is None else pytest.approx(whole, abs=1e-9))
        assert got.overall[f"{name}_per_task"] == mean_of(wanted)

    def share(labels):
        cells = [(row, k) for row in range(n) for k in labels if not math.isnan(y[row, k])]
        right = [not broken[r] and (z[r, k] > 0) == (y[r, k] > 0) for r, k in cells]
        return np.mean(right) if cells else None

    check(got.per_label, [share([k]) for k in range(4)])
    check(got.per_head, [share([0, 1, 2]), share([3])])
    assert evaluate("multilabel", z, y, offsets(counts)).per_head is None
    json.dumps(got.to_json(), allow_nan=False)


def images(rng, counts, heads, classes, gone):
    """Random outputs and targets of small images; nothing is smooth, so nothing is easy."""
    n, (high, wide) = sum(counts), rng.integers(1, 5, size=2)
    y = rng.integers(0, classes, size=(n, heads, high, wide)).astype(np.int8)
    y[rng.random(y.shape) < gone] = -1
    return rng.normal(size=(n, heads * classes, high, wide)), y


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seed=st.integers(0, 10_000),
    heads=st.integers(1, 3),
    classes=st.integers(2, 3),
    gone=st.floats(0, 1),
)
def test_segmentation(counts, seed, heads, classes, gone):
    rng = np.random.default_rng(seed)
    out, y = images(rng, counts, heads, classes, gone)
    n, (high, wide) = len(y), y.shape[2:]
    broken = rng.random(n) < 0.15
    out[broken, rng.integers(heads * classes)] = np.nan
    names = tuple(f"h{k}" for k in range(heads))
    table = one_head_each(names, (classes,) * heads)
    got = evaluate("segmentation", torch.tensor(out), torch.tensor(y), offsets(counts), table)

    def cells(row):
        """Head, truth, answer and loss of every pixel of a row that has a class."""
        for h, i, j in np.ndindex(heads, high, wide):
            if y[row, h, i, j] >= 0:
                z = out[row, h * classes : (h + 1) * classes, i, j]
                said = None if broken[row] else int(np.argmax(z))
                lost = math.inf
                if not broken[row]:
                    lost = math.log(sum(math.exp(v) for v in z)) - z[y[row, h, i, j]]
                yield h, int(y[row, h, i, j]), said, lost

    def scores(rows):
        found = [list(cells(row)) for row in rows]
        losses = [np.mean([lost for *_, lost in row]) for row in found if row]
        flat = [cell for row in found for cell in row]
        overlaps = []
        for h in range(heads):
            for c in range(classes):
                both = sum(g == h and t == c == s for g, t, s, _ in flat)
                either = sum(g == h and c in (t, s) for g, t, s, _ in flat)
                overlaps += [both / either] if either else []
        return (
            np.mean(losses) if losses else None,
            np.mean([t == s for _, t, s, _ in flat]) if flat else None,
            np.mean(overlaps) if overlaps else None,
        )

    tasks = [scores(range(s.start, s.stop)) for s in spans(counts)]
    for name, column in (("loss", 0), ("accuracy", 1), ("miou", 2)):
        wanted = [task[column] for task in tasks]
        check(got.per_task[name], wanted)
        whole = scores(range(n))[column]
        assert got.overall[name] == (None if whole is None else pytest.approx(whole, abs=1e-9))
        assert got.overall[f"{name}_per_task"] == mean_of(wanted)
    flat = [cell for row in range(n) for cell in cells(row)]
    by_head = [[t == s for g, t, s, _ in flat if g == h] for h in range(heads)]
    check(got.per_head, [np.mean(v) if v else None for v in by_head])
    by_class = [
        [t == s for g, t, s, _ in flat if (g, t) == (h, c)]
        for h in range(heads) for c in range(classes)
    ]  # fmt: skip
    check(got.per_label, [np.mean(v) if v else None for v in by_class])
    json.dumps(got.to_json(), allow_nan=False)


@pytest.mark.parametrize("seed", range(6))
def test_miou_is_scikit_learns_jaccard_score(seed):
    rng = np.random.default_rng(seed)
    out, y = images(rng, [3, 2], 1, 4, 0.3)
    got = evaluate("segmentation", out, y, [0, 3, 5])
    for task, rows in enumerate((slice(0, 3), slice(3, 5))):
        truth, said = y[rows, 0].ravel(), out[rows].argmax(axis=1).ravel()
        known = truth >= 0
        if known.any():
            classes = np.union1d(truth[known], said[known])  # of those that occur
            each = jaccard_score(truth[known], said[known], average=None, labels=classes)
            assert got.task(task)["miou"] == pytest.approx(each.mean())
            right = accuracy_score(truth[known], said[known])
            assert got.task(task)["accuracy"] == pytest.approx(right)


def test_what_a_model_says_of_pixels_without_a_class_does_not_matter():
    rng = np.random.default_rng(0)
    out, y = images(rng, [4], 2, 3, 0.5)
    other = out.copy()
    hidden = np.repeat(y < 0, 3, axis=1)
    other[hidden] = rng.normal(size=hidden.sum()) * 50
    one, two = (evaluate("segmentation", z, y, [0, 4]) for z in (out, other))
    assert one.overall == pytest.approx(two.overall)


def test_perfect_areas_overlap_wholly_and_a_broken_model_with_nothing():
    y = np.array([[[[0, 1], [1, -1]]], [[[0, 0], [1, 1]]]], dtype=np.int8)
    perfect = np.where(np.stack([y[:, 0] == 0, y[:, 0] == 1], axis=1), 5.0, -5.0)
    assert evaluate("segmentation", perfect, y, [0, 2]).overall["miou"] == 1.0
    perfect[0, 1, 0, 0] = np.nan
    got = evaluate("segmentation", perfect, y, [0, 1, 2])
    assert got.task(0) == {"loss": math.inf, "accuracy": 0.0, "miou": 0.0}
    assert got.task(1)["miou"] == 1.0 and got.overall["accuracy"] == pytest.approx(4 / 7)


def test_scores_of_heads_are_compared_by_the_mean_over_tasks():
    heads = one_head_each(("a",), (2,))
    assert main_score("multilabel", heads) == ("accuracy_per_task", True)
    assert task_score("multilabel", heads) == ("accuracy", True)
    assert main_score("segmentation", heads) == ("miou_per_task", True)
    assert task_score("segmentation") == ("miou", True)
    out, y = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.0], [0.0, np.nan]])
    got = evaluate("multilabel", out, y, [0, 1, 2], heads)
    assert got.overall["accuracy_per_task"] == 0.5 and got.overall["worst_tenth"] == 0.0


def test_segmentation_without_any_rows_is_undefined():
    got = evaluate("segmentation", np.zeros((0, 6, 4, 4)), np.zeros((0, 2, 4, 4)), [0, 0, 0])
    assert set(got.overall.values()) == {None}
    assert np.isnan(got.per_task["miou"]).all() and got.rows.tolist() == [0, 0]


def test_infinite_outputs_are_scored_without_a_complaint():
    """A model on its way to break down: the class of an infinite output is chosen."""
    y = np.array([[[[0, 1]]]], dtype=np.int8)
    out = np.array([[[[np.inf, 0.0]], [[0.0, -np.inf]]]])
    got = evaluate("segmentation", out, y, [0, 1])
    assert got.overall["accuracy"] == 0.5
    labels = evaluate(
        "multilabel", np.array([[np.inf, -np.inf]]), np.array([[1.0, np.nan]]), [0, 1]
    )
    assert labels.overall["accuracy"] == 1.0 and labels.overall["loss"] == 0.0


def test_accuracy_heads_nothing_where_classes_are_rare():
    """At 5 %, a model that always says no is 95 % accurate."""
    offsets = np.array([0, 50, 100])
    y = np.zeros(100)
    y[[1, 2, 3, 51, 52]] = 1
    never = evaluate("binary", np.full(100, -3.0), y, offsets)
    assert never.overall["majority"] == never.overall["accuracy"] == 0.95
    majority = never.overall["majority"]
    assert main_score("binary", None, majority) == ("auc_pooled", True)
    assert task_score("binary", None, majority) == ("loss", False)
    assert never.overall["auc_pooled"] == 0.5
    assert never.overall["worst_tenth"] == never.per_task["loss"].max()
    knows = evaluate("binary", 4 * y - 5, y, offsets)  # never says yes, but ranks
    assert knows.overall["accuracy"] == 0.95 and knows.overall["auc_pooled"] == 1
    # A run is measured on rows of one class: no curve, and still a score.
    only = evaluate("binary", np.full(100, -3.0), np.zeros(100), offsets)
    assert main_score("binary", None, only.overall["majority"]) == ("loss", False)
    classes = np.zeros((100, 3))
    many = evaluate("multiclass", classes, (y * 2).astype(int), offsets)
    assert main_score("multiclass", None, many.overall["majority"]) == ("loss", False)
    # Where nobody looked at rows, the choice is public.
    assert main_score("binary") == ("accuracy", True) == task_score("binary")
    assert main_score("binary", None, 0.9) == ("accuracy", True)
    assert "majority" not in evaluate("regression", y, y, offsets).overall
