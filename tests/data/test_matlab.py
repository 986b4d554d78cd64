"""School and LSOA II: small MATLAB files made here, and the real ones where they are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

import tacit
from tacit.data import load
from tacit.data.federation import PARTS
from tacit.data.sets.school import FEATURES, PERCENTAGES
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SIZES = (10, 21, 8)
PEOPLE = {"train": 30, "valid": 20, "test": 40}


def real(folder: str) -> Path:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"the real files of {folder} are not beside the repository")
    return SHARED / folder


def error(name, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pupils() -> tuple[np.ndarray, np.ndarray]:
    """x [39, 28] and y: the score is the number of the row, from 1."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (sum(SIZES), 28), dtype=np.uint8)
    x[:, 3:5] = rng.integers(0, 101, (sum(SIZES), 2))
    x[:, 27] = 1
    return x, np.arange(1, sum(SIZES) + 1, dtype=np.uint8)


def as_cells(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    cells = np.empty((2, 1, len(SIZES)), dtype=object)
    ends = np.cumsum(SIZES)
    for k, (size, end) in enumerate(zip(SIZES, ends, strict=True)):
        cells[0, 0, k], cells[1, 0, k] = x[end - size : end], y[end - size : end, None]
    savemat(folder / "school.mat", {"X": cells[0], "Y": cells[1]})
    return folder / "school.mat"


def as_one(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    starts = (np.cumsum(SIZES) - SIZES + 1)[:, None].astype(np.uint16)
    savemat(folder / "school_b.mat", {"x": x.T, "y": y[:, None], "task_indexes": starts})
    return folder / "school_b.mat"


@pytest.fixture
def school(tmp_path) -> Path:
    as_one(tmp_path, *pupils())
    tst = np.array([10, 3, 11, 31, 32, 39], dtype=np.uint16)
    tr = np.setdiff1d(np.arange(1, 40), tst)[::-1]  # the real ones are shuffled too
    savemat(tmp_path / "school_2_indexes.mat", {"tr": tr, "tst": tst})
    return tmp_path


def test_school_rows_are_with_their_school(school):
    made = load("school", path=school)
    assert (made.kind, made.outputs, made.input_shape) == ("regression", 1, (27,))
    assert list(made.names) == ["school-1", "school-2", "school-3"]
    assert made.train.counts.tolist() == [3, 6, 2] and made.test.counts.tolist() == [7, 15, 6]
    assert len(made.validation.y) == 0 and made.target_scale is None
    x, _ = pupils()
    expected = x[:, :27].astype(np.float32)
    expected[:, 3] = (expected[:, 3] - 50) / 25
    expected[:, 4] = (expected[:, 4] - 25) / 12.5
    ends = np.cumsum(SIZES)
    for k in range(3):
        own = torch.cat([made.part(p).of(k)[1] for p in PARTS]).int()
        assert sorted(own.tolist()) == list(range(ends[k] - SIZES[k] + 1, ends[k] + 1))
        for part in PARTS:
            rows, scores = made.part(part).of(k)
            assert np.array_equal(rows.numpy(), expected[scores.int().numpy() - 1])
    assert not made.leaks and any("percentages" in said for said in made.assumptions)


def test_both_layouts_hold_the_same(school, tmp_path):
    other = tmp_path / "cells"
    other.mkdir()
    file = as_cells(other, *pupils())
    first = load("school", path=school)
    for path in (file, other, school / "school_b.mat"):
        again = load("school", path=path)
        assert torch.equal(again.train.x, first.train.x)
        assert torch.equal(again.test.y, first.test.y)
        assert torch.equal(again.test.offsets, first.test.offsets)


def test_school_shares_and_seeds(school):
    made = load("school", path=school, train=0.6, validation=0.5, split_seed=1)
    assert made.train.counts.tolist() == [3, 7, 3]
    assert made.validation.counts.tolist() == [3, 6, 2]
    assert made.test.counts.tolist() == [4, 8, 3]
    scores = torch.cat([made.part(p).y for p in PARTS])
    assert sorted(scores.tolist()) == list(range(1, 40))
    again = load("school", path=school, train=0.6, validation=0.5, split_seed=2)
    assert not torch.equal(again.train.y, made.train.y)


def test_a_fixed_split_of_school(school):
    made = load("school", path=school, split=2)
    assert made.test.y.tolist() == [3, 10, 11, 31, 32, 39]
    assert made.test.counts.tolist() == [2, 2, 2] and made.train.counts.tolist() == [8, 19, 6]
    held = load("school", path=school / "school_b.mat", split=2, validation=0.25, train=0.9)
    assert torch.equal(held.test.y, made.test.y) and "split 2" in held.source
    assert held.validation.counts.tolist() == [2, 5, 2]
    assert sorted([*held.train.y.tolist(), *held.validation.y.tolist()]) == made.train.y.tolist()


def test_scaling_of_school(school):
    raw = load("school", path=school, scale="none")
    assert raw.train.x[:, 3:5].max() > 20 and not raw.assumptions
    made = load("school", path=school, rows="unit")
    torch.testing.assert_close(made.test.x.norm(dim=1), torch.ones(len(made.test.y)))
    plain = load("school", path=school)
    length = plain.test.x.norm(dim=1, keepdim=True)
    torch.testing.assert_close(made.test.x * length, plain.test.x)
    assert made.representation == "unit" and plain.representation is None
    assert load("school", path=school, scale="pooled").leaks
    scaled = load("school", path=school, target_scale="task")
    assert scaled.target_scale is not None and abs(scaled.train.of(1)[1].mean()) < 1e-6


def test_models_of_unit_rows_predict_from_rows_of_the_file(school, tmp_path):
    made = load("school", path=school, rows="unit")
    assert made.features == FEATURES
    method = tacit.FedAvg(lr=0.1, batch=None)
    settings = {"rounds": 3, "seed": 0, "baselines": False, "personalise": "none"}
    run = tacit.train(made, method, out=tmp_path / "run", **settings)
    x, _ = pupils()
    rows = x[:, : len(FEATURES)].astype(np.float32)
    names = np.repeat(made.names, SIZES)
    said = run.predict(rows, names)
    assert np.allclose(tacit.SavedModels.load(tmp_path / "run").predict(rows, names), said)
    # Rows are scaled by public constants and then brought to length one, so that a row which is
    # twice as far from the centre says the same.
    twice = rows.copy()
    columns, centres = [FEATURES.index(name) for name in PERCENTAGES], (50, 25)
    twice[:, columns] = 2 * rows[:, columns] - centres
    others = [k for k in range(len(FEATURES)) if k not in columns]
    twice[:, others] *= 2
    assert np.allclose(run.predict(twice, names), said, atol=1e-5)


def test_school_options_that_cannot_be_used(school, monkeypatch):
    # None of them gets as far as looking for the files.
    monkeypatch.delenv("TACIT_DATA", raising=False)
    for wrong in (0, 11, 2.5, "2"):
        assert "1 to 10" in error("school", split=wrong)
    for wrong in (0, 1, -0.1, "half", float("nan")):
        assert error("school", train=wrong).startswith("train is")
        assert error("lsoa2", train=wrong).startswith("train is")
    assert "below 1" in error("school", validation=1.0)
    assert "split_seed" in error("school", split_seed=-1)
    assert "choose raw or unit" in error("school", rows="long")
    assert "choose raw or unit" in error("lsoa2", rows="long")
    assert "expected 'file'" in error("lsoa2", split="own")
    assert "no option 'share'" in error("school", share=0.3)
    assert "set TACIT_DATA" in error("school") and "set TACIT_DATA" in error("lsoa2")
    monkeypatch.setenv("TACIT_DATA", str(school))
    assert "no school/ in it" in error("school") and "no lsoa2/ in it" in error("lsoa2")
    (school / "school").mkdir()
    assert "holds no school_b.mat or school.mat" in error("school")
    as_one(school / "school", *pupils())
    assert len(load("school")) == 3


def test_wrong_school_files(school):
    assert "school_3_indexes.mat" in error("school", path=school, split=3)
    index = school / "school_2_indexes.mat"
    whole = index.read_bytes()
    for tr, tst in (
        (np.arange(1, 31), np.arange(30, 40)),  # row 30 in both
        (np.arange(1, 30), np.arange(31, 40)),  # row 30 in none
        (np.arange(0, 30), np.arange(30, 39)),  # from 0
    ):
        savemat(index, {"tr": tr, "tst": tst})
        assert "each of the 39 rows once" in error("school", path=school, split=2)
    savemat(index, {"train": np.arange(3)})
    assert "holds train, expected tr, tst" in error("school", path=school, split=2)
    index.write_bytes(whole[:-40])
    assert "cannot be read as a MATLAB file" in error("school", path=school, split=2)

    file = school / "school_b.mat"
    for damaged in (b"", b"junk", file.read_bytes()[:200], b"MATLAB 7.3 MAT-file".ljust(600, b" ")):
        file.write_bytes(damaged)
        assert "cannot be read as a MATLAB file" in error("school", path=school)
    savemat(file, {"x": np.ones(3)})
    assert "expected x, y, task_indexes or X, Y" in error("school", path=file)

    x, y = pupils()
    for column, value in ((27, 0), (3, 101), (5, 2)):
        wrong = x.copy()
        wrong[7, column] = value
        as_one(school, wrong, y)
        assert "is not the School data" in error("school", path=school)
    as_one(school, x[:, 1:], y)
    assert "is not the School data" in error("school", path=school)
    as_one(school, x, y[:-1])
    assert "is not the School data" in error("school", path=school)
    file.unlink()
    cells = loadmat(as_cells(school, x, y))
    cells["Y"] = cells["Y"][:, [1, 0, 2]]  # the scores of another school
    savemat(school / "school.mat", {"X": cells["X"], "Y": cells["Y"]})
    assert "is not the School data" in error("school", path=school)
    savemat(school / "school.mat", {"X": x, "Y": y})  # no cells
    assert "is not the School data" in error("school", path=school)


def outcomes() -> dict[str, np.ndarray]:
    """Two numbers and three outcomes; the first feature is the number of the person, from 1."""
    rng = np.random.default_rng(1)
    made: dict[str, np.ndarray] = {
        "task_type": np.array([[1, 2, 1, 2, 2]], dtype=np.uint8),
        "task_type_name": np.array([["gauss", "bnl", "poiss"]], dtype=object),
    }
    first = 1
    for part, count in PEOPLE.items():
        x = rng.normal(size=(count, 4))
        x[:, 0], x[:, 1] = 1, np.arange(first, first + count)
        omega = (rng.random((count, 5)) < 0.7).astype(np.uint8)
        y = rng.normal(size=(count, 5))
        # An outcome tells whom it belongs to: odd people, then every third, then every fifth.
        for column, step in ((1, 2), (3, 3), (4, 5)):
            y[:, column] = x[:, 1] % step == 1
        made |= {f"{part}_X": x, f"{part}_Y": y * omega, f"{part}_Omega": omega}
        first += count
    return made


@pytest.fixture
def lsoa(tmp_path) -> Path:
    savemat(tmp_path / "data_processed_LSOAII.mat", outcomes())
    return tmp_path


def check_people(made) -> list[list[list[int]]]:
    """Everybody is with an outcome that was observed and is theirs; people by part and task."""
    held = outcomes()
    omega = np.concatenate([held[f"{part}_Omega"] for part in PEOPLE])
    found = []
    for k, (column, step) in enumerate(((1, 2), (3, 3), (4, 5))):
        by_part = []
        for part in PARTS:
            x, y = made.part(part).of(k)
            assert torch.equal(y, (x[:, 0].round() % step == 1).float())
            by_part.append(x[:, 0].int().tolist())
        everybody = sorted(person for people in by_part for person in people)
        assert everybody == (np.flatnonzero(omega[:, column]) + 1).tolist()
        found.append(by_part)
    return found


def test_lsoa_has_a_task_for_each_outcome(lsoa):
    made = load("lsoa2", path=lsoa)
    assert (made.kind, made.outputs, made.input_shape) == ("binary", 1, (3,))
    assert list(made.names) == ["target-2", "target-4", "target-5"] and made.labels == ("0", "1")
    check_people(made)
    share = made.train.counts / (made.train.counts + made.test.counts)
    assert ((share - 0.3).abs() < 0.01).all() and len(made.validation.y) == 0
    assert not made.leaks and any("does not protect a person" in said for said in made.assumptions)

    held = load("lsoa2", path=lsoa / "data_processed_LSOAII.mat", train=0.5, validation=0.4)
    check_people(held)
    total = sum(held.part(p).counts for p in PARTS)
    assert ((held.validation.counts / total - 0.2).abs() < 0.01).all()
    short = load("lsoa2", path=lsoa, rows="unit")
    torch.testing.assert_close(short.train.x.norm(dim=1), torch.ones(len(short.train.y)))
    assert torch.equal(short.train.y, made.train.y) and short.representation == "unit"


def test_the_parts_of_the_lsoa_file(lsoa):
    made = load("lsoa2", path=lsoa, split="file")
    for train, validation, test in check_people(made):
        assert min(train) >= 1 and max(train) <= 30 < min(validation)
        assert max(validation) <= 50 < min(test) and max(test) <= 90


def test_wrong_lsoa_files(lsoa):
    file = lsoa / "data_processed_LSOAII.mat"

    def message(**changed: np.ndarray) -> str:
        savemat(file, outcomes() | changed)
        return error("lsoa2", path=lsoa, split="file" if "valid_Omega" in changed else None)

    held = outcomes()
    other = held["train_X"].copy()
    other[3, 0] = 0
    assert "not LSOA II as expected" in message(train_X=other)
    assert "not LSOA II as expected" in message(test_X=held["test_X"][:, :3])
    assert "not LSOA II as expected" in message(test_Y=held["test_Y"][1:])
    assert "not LSOA II as expected" in message(train_Y=held["train_Y"] + 1)
    assert "not LSOA II as expected" in message(
        task_type_name=np.array([["gauss", "poiss"]], dtype=object)
    )
    assert "target-2" in message(valid_Omega=np.zeros((20, 5)))
    rare = {f"{part}_Omega": held[f"{part}_Omega"].copy() for part in PEOPLE}
    for omega in rare.values():
        omega[:, 3] = 0
    savemat(file, held | rare)
    assert "target-4" in error("lsoa2", path=lsoa) and "too few" in error("lsoa2", path=lsoa)
    savemat(file, {"train_X": np.ones((2, 2))})
    assert "holds train_X, expected" in error("lsoa2", path=lsoa)
    file.write_bytes(b"junk")
    assert "cannot be read" in error("lsoa2", path=lsoa)
    file.unlink()
    assert "holds no data_processed_LSOAII.mat" in error("lsoa2", path=lsoa)


def test_the_real_school():
    folder = real("school")
    made = load("school", path=folder)
    assert len(made) == 139 and made.input_shape == (27,) and made.features == FEATURES
    assert sum(len(made.part(p).y) for p in PARTS) == 15362 and not made.leaks
    counts = made.train.counts + made.test.counts
    assert (counts.min(), counts.max()) == (22, 251)
    assert ((made.train.counts - 0.3 * counts).abs() < 0.501).all()
    x = torch.cat([made.train.x, made.test.x])
    y = torch.cat([made.train.y, made.test.y])
    assert (y.min(), y.max()) == (1, 70)
    both = {FEATURES.index("% free meals"), FEATURES.index("% band 1")}
    zero_one = [k for k in range(27) if ((x[:, k] == 0) | (x[:, k] == 1)).all()]
    assert set(range(27)) - set(zero_one) == both
    assert x[:, sorted(both)].abs().max() < 4 and x[:, sorted(both)].std(dim=0).min() > 0.5

    # What the names claim: band 1 scores best, and pupils are of the gender of their school.
    def having(name):
        return x[:, FEATURES.index(name)] == 1

    assert y[having("band=1")].mean() > y[having("band=2")].mean() > y[having("band=3")].mean()
    assert x[having("school=male"), FEATURES.index("gender=male")].mean() > 0.99
    assert x[having("school=female"), FEATURES.index("gender=female")].mean() > 0.99

    cells = load("school", path=folder / "school.mat")
    assert torch.equal(cells.train.x, made.train.x) and torch.equal(cells.test.y, made.test.y)


@pytest.mark.parametrize("number", range(1, 11))
def test_the_real_splits_of_school(number):
    folder = real("school")
    made = load("school", path=folder, split=number, scale="none")
    assert (len(made.train.y), len(made.test.y)) == (11472, 3890)
    share = made.train.counts / (made.train.counts + made.test.counts)
    assert ((share - 0.74).abs() < 0.021).all()
    content = loadmat(folder / "school_b.mat")
    rows = loadmat(folder / f"school_{number}_indexes.mat")
    wanted = content["x"][:27, np.sort(rows["tst"].ravel()).astype(int) - 1].T
    assert np.array_equal(made.test.x.numpy(), wanted.astype(np.float32))
    assert made.test.offsets[:-1].tolist() == (rows["tst_indexes"].ravel().astype(int) - 1).tolist()


@pytest.mark.parametrize("split", [None, "file"])
def test_the_real_lsoa(split):
    made = load("lsoa2", path=real("lsoa2"), split=split)
    assert len(made) == 41 and made.kind == "binary" and made.input_shape == (292,)
    counts = sum(made.part(p).counts for p in PARTS)
    assert (int(counts.max()), int(counts.sum())) == (3473, 130235)  # the first as in MP-MTL
    assert (len(made.validation.y) > 0) == (split == "file")
    for k in range(41):
        assert 0 < made.train.of(k)[1].mean() < 1
