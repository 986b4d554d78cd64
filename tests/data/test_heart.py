"""Four hospitals that predict different things: small files made here, and the real ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.data import load
from tacit.data.federation import PARTS, Federation
from tacit.data.sets.heart import COLUMNS, HOSPITALS, LEFT_OUT, PREDICTS
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SIZES = dict(zip(HOSPITALS, (30, 25, 20, 24), strict=True))


def error(folder, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load("heart", path=folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def patients(seed: int, count: int) -> np.ndarray:
    """Blood pressure is the number of the patient, from 100: so rows can be found again."""
    rng = np.random.default_rng(seed)
    low = [30, 0, 1, 0, 150, 0, 0, 90, 0, -1, 1, 0, 3, 0]
    high = [80, 2, 5, 1, 300, 2, 3, 190, 2, 4, 4, 4, 8, 5]
    rows = rng.integers(low, high, (count, 14)).astype(float)
    rows[:, 3] = 100 + np.arange(count)
    rows[:3, 2], rows[:3, 6] = 1, [0, 1, 2]
    return rows


def write(folder: Path, name: str, rows: np.ndarray, mark=",", header=False):
    lines = [mark.join("?" if np.isnan(cell) else f"{cell:g}" for cell in row) for row in rows]
    if header:
        lines.insert(0, mark.join(COLUMNS))
    (folder / f"processed.{name}.data").write_text("\n".join(lines) + "\n")


@pytest.fixture
def hospitals(tmp_path):
    """Each file in another of the forms they come in; some gaps of every sort."""
    content = {}
    for k, (name, count) in enumerate(SIZES.items()):
        rows = content[name] = patients(k, count)
        rows[4, [5, 6, 7, 10, 11, 12]] = np.nan
        rows[5, 4] = 0
        if name == "switzerland":
            rows[:, 4] = 0
        rows[6, 8], rows[7, 9] = np.nan, np.nan
        write(tmp_path, name, rows, ",;"[k % 2], header=k > 1)
    return tmp_path, content


def everything(made: Federation, task: int) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [made.part(part).of(task) for part in PARTS]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def test_each_hospital_predicts_its_own_outcome(hospitals):
    folder, content = hospitals
    made = load("heart", path=folder, scale="none")
    assert (made.kind, made.outputs) == ("multilabel", 3)
    assert len(made.features) == 17  # no gap in the blood pressure here, or there were 18
    assert list(made.names) == list(HOSPITALS)
    assert made.labels == ("disease", "angina", "st-depression") and not made.leaks
    assert made.heads is not None and made.heads.outputs == (1, 1, 1)
    assert LEFT_OUT in made.assumptions
    for task, name in enumerate(HOSPITALS):
        assert made.heads.of(task) == (PREDICTS[name],)
        x, y = everything(made, task)
        label = made.labels.index(PREDICTS[name])
        assert y[:, [k for k in range(3) if k != label]].isnan().all()
        number = x[:, made.features.index("trestbps")].long().numpy() - 100
        rows = content[name]
        truth = (rows[:, 13] > 0, rows[:, 8] == 1, rows[:, 9] > 1)[label]
        known = ~np.isnan((rows[:, 13], rows[:, 8], rows[:, 9])[label])
        assert sorted(number) == np.flatnonzero(known).tolist()
        assert np.array_equal(y[:, label].numpy(), truth[number])
        assert np.array_equal(x[:, 0].numpy(), rows[number, 0].astype(np.float32))


def test_no_outcome_is_an_input(hospitals):
    folder, content = hospitals
    made = load("heart", path=folder)
    for name, rows in content.items():
        changed = rows.copy()
        for column in (8, 9, 10, 11, 12, 13):
            changed[:, column] = np.where(np.isnan(rows[:, column]), np.nan, 0)
        write(folder, name, changed)
    other = load("heart", path=folder)
    assert torch.equal(other.train.x, made.train.x)
    assert other.train.y.nansum() == 0 < made.train.y.nansum()


def test_gaps_are_filled_inside_the_hospital(hospitals):
    folder, content = hospitals
    made = load("heart", path=folder, scale="none")
    chol, gap = (made.features.index(name) for name in ("chol", "chol (missing)"))
    for task, name in enumerate(HOSPITALS):
        x, _ = everything(made, task)
        assert not x.isnan().any()
        number = x[:, made.features.index("trestbps")].long().numpy() - 100
        missing = content[name][number, 4] == 0
        assert np.array_equal(x[:, gap].numpy() == 1, missing)
        own = made.train.of(task)[0]
        known = own[own[:, gap] == 0][:, chol]
        mean = known.mean() if len(known) else torch.tensor(0.0)
        assert torch.allclose(x[missing, chol], mean)
    scaled = load("heart", path=folder)
    for task in range(4):
        age = scaled.train.of(task)[0][:, 0]
        assert abs(age.mean()) < 1e-5 and abs(age.std(correction=0) - 1) < 1e-5


def test_all_may_predict_the_same(hospitals):
    folder, _ = hospitals
    made = load("heart", path=folder, heads="same")
    assert made.labels == ("disease",) and made.kind == "multilabel" and made.outputs == 1
    assert made.heads is not None and made.heads.holds.tolist() == [[True]] * 4
    assert sum(len(made.part(p).y) for p in PARTS) == sum(SIZES.values())
    assert not any(made.part(p).y.isnan().any() for p in PARTS)
    assert LEFT_OUT in made.assumptions  # there as well, though here everybody is kept


def test_new_patients_are_read_the_same_way(hospitals):
    made = load("heart", path=hospitals[0])
    assert made.schema is not None and made.preprocessing is not None
    table = {
        "hospital": ["va"], "age": [50.0], "sex": [1.0], "cp": ["typical"], "trestbps": [None],
        "chol": [200.0], "fbs": [0.0], "thalach": [150.0], "restecg": ["normal"],
    }  # fmt: skip
    x, names = made.schema.matrix(table)
    assert names == made.features and x[0, names.index("cp=typical")] == 1
    assert torch.isfinite(made.preprocessing.apply(x, 3)).all()


def test_damaged_files(hospitals):
    folder, content = hospitals
    assert "expected 'different' or 'same'" in error(folder, heads="other")
    place = folder / "processed.va.data"
    assert "is a file; pass the folder" in error(place)
    good = place.read_text()
    for text, words in (
        ("", "has no patients"),
        (",".join(COLUMNS), "has no patients"),
        (good + "1,2,3\n", "line 26 of"),
        (good.replace("?", "x", 1), "does not have 14 numbers or gaps"),
        (good.replace("?", "inf", 1), "does not have 14 numbers or gaps"),
    ):
        place.write_text(text)
        assert words in error(folder)
    place.write_bytes(b"\xff\xff")
    assert "cannot be read" in error(folder)
    rows = content["va"].copy()
    rows[9, 2] = 0  # the version on Kaggle counts from 0
    write(folder, "va", rows)
    assert "line 10 of" in error(folder) and "has cp 0, expected 1 to 4" in error(folder)
    place.unlink()
    assert "processed.va.data does not exist" in error(folder)


def test_the_real_hospitals():
    folder = SHARED / "heart"
    if not folder.is_dir():
        pytest.skip("the real files of heart are not beside the repository")
    made = load("heart", path=folder)
    found = [everything(made, task)[1] for task in range(4)]
    assert [len(y) for y in found] == [303, 294, 122, 144]
    rates = [round(float(y.nanmean()), 2) for y in found]
    assert rates == [0.46, 0.36, 0.44, 0.53]
    same = load("heart", path=folder, heads="same")
    found = [everything(same, task)[1] for task in range(4)]
    assert [len(y) for y in found] == [303, 294, 123, 200]
    assert [round(float(y.mean()), 2) for y in found] == [0.46, 0.36, 0.93, 0.75]
