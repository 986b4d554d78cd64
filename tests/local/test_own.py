"""What a task does by itself: as good as what a user would type."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeCV

from tacit.data.federation import Rows
from tacit.local.batches import all_rows
from tacit.local.own import constants, linear_alone, linear_raw, mean_of, raw_of


def fitted(kind, x, y, outputs=1):
    offsets = torch.tensor([0, len(x)])
    rows = Rows(torch.from_numpy(x), torch.from_numpy(y), offsets)
    batches = all_rows(rows, torch.tensor([0]), len(x) + 3)  # some filler
    one = type(batches)(*(side[0] for side in batches))
    return linear_alone(kind, one, outputs)


def predicted(kind, w, x):
    every = w.expand(len(x), *w.shape)
    return mean_of(kind, linear_raw(every, torch.from_numpy(x))).numpy()


@pytest.mark.parametrize("noise", [0.001, 0.5, 3.0])
def test_numbers_in_raw_units_with_equal_columns(noise):
    random = np.random.default_rng(0)
    x = random.normal(size=(160, 6))
    y = 1e4 + 50 * (x @ [1, -1, 0.5, 0, 0, 0] + noise * random.normal(size=160))
    x = np.c_[x * [1e-4, 1, 1e4, 1, 1, 1] + [0, 100, 0, 0, 0, 0], np.ones(160), x[:, 0]]
    x, y = x.astype(np.float32), y.astype(np.float32)
    ours = predicted("regression", fitted("regression", x[:60], y[:60]), x[60:])[:, 0]
    spread = x[:60].std(axis=0) + 1e-9
    ridge = RidgeCV(10.0 ** np.arange(-6, 4)).fit(x[:60] / spread, y[:60])
    theirs = ridge.predict(x[60:] / spread)
    assert ((ours - y[60:]) ** 2).mean() < 1.05 * ((theirs - y[60:]) ** 2).mean() + 1e-2


@pytest.mark.parametrize("whole", [100, 0])
def test_classes(whole, monkeypatch):
    monkeypatch.setattr("tacit.local.bayes.WHOLE", whole)
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 4)).astype(np.float32)
    y = (x[:, :3] + 0.5 * random.normal(size=(400, 3))).argmax(axis=1)
    found = predicted("multiclass", fitted("multiclass", x[:200], y[:200], 3), x[200:])
    assert np.allclose(found.sum(axis=1), 1)
    theirs = LogisticRegression().fit(x[:200], y[:200]).predict_proba(x[200:])
    right = np.arange(200), y[200:]
    assert -np.log(found[right]).mean() < 1.05 * -np.log(theirs[right]).mean()


def test_constants_leave_every_class_possible():
    rows = Rows(torch.zeros(5, 1), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 2, 5, 5]))
    found = constants("multiclass", rows, 3)
    assert torch.allclose(found.sum(dim=1), torch.ones(3).double()) and (found > 0).all()
    assert torch.allclose(found[2], torch.full((3,), 1 / 3).double())
    numbers = Rows(rows.x, torch.tensor([1.0, 2, 3, 3, 6]), rows.offsets)
    assert constants("regression", numbers, 1)[:, 0].tolist() == [1.5, 4.0, 0.0]


def test_raw_outputs_and_what_they_expect():
    for kind, out in (("regression", [[2.0]]), ("count", [[1.5]]), ("binary", [[-0.7]])):
        out = torch.tensor(out).double()
        assert torch.allclose(raw_of(kind, mean_of(kind, out)), out, atol=1e-6)
    out = torch.tensor([[0.1, 2.0, -1.0]]).double()
    back = raw_of("multiclass", mean_of("multiclass", out))
    assert torch.allclose(back.softmax(dim=1), out.softmax(dim=1), atol=1e-6)


def test_columns_that_say_nothing_cost_little():
    """Eight rows and six columns of noise: far less is lost to them than without a prior belief."""
    random, losses = np.random.default_rng(0), []
    for _ in range(60):
        x, y = random.normal(size=(8, 6)), random.normal(size=8)
        said = predicted("regression", fitted("regression", x, y), random.normal(size=(50, 6)))
        losses.append((said[:, 0] ** 2).mean())
    assert np.mean(losses) < 0.6


@pytest.mark.parametrize("kind", ["regression", "count", "binary", "multiclass"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_expected_of_a_row_has_the_same_bits_in_every_place(kind, dtype):
    """torch.sigmoid has not: its last numbers go another way than those before them."""
    out = 3 * torch.randn(200, 3 if kind == "multiclass" else 1, dtype=dtype)
    whole = mean_of(kind, out)
    for begin in range(20):
        for end in range(180, 200):
            part = mean_of(kind, out[begin:end].clone())
            assert torch.equal(part, whole[begin:end])
            assert torch.equal(raw_of(kind, part), raw_of(kind, whole)[begin:end])
