"""Scores against scikit-learn, task by task, on ragged random tasks."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, log_loss, r2_score, roc_auc_score

from tacit.data import from_arrays
from tacit.errors import TacitError
from tacit.federation import TargetScale
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
    accuracy = evaluate("binary", np.ones(20), np.arange(20) > 0, np.arange(21))
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
