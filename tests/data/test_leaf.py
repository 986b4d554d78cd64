"""LEAF files and MNIST by writer: small ones made here, and the real ones where they are."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tacit.data import load
from tacit.data.federation import PARTS
from tacit.data.sets.leaf import BOTH
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def real(folder: str) -> Path:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"the real files of {folder} are not beside the repository")
    return SHARED / folder


def error(name, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def leaf(users: dict[str, tuple[list, list]]) -> str:
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    return json.dumps({"users": list(users), "num_samples": counts, "user_data": data})


def characters(user: int, rows: int, first_class: int = 0):
    """Rows whose first pixel tells the user and whose second tells the class."""
    classes = [(first_class + row) % 62 for row in range(rows)]
    x = [[user / 100, label / 100, *[0.5] * 782] for label in classes]
    return x, classes


def check_rows(made, users: dict[str, int]):
    """Every row is with its own user and has its own class."""
    for part in PARTS:
        for k, name in enumerate(made.names):
            x, y = made.part(part).of(k)
            assert torch.allclose(x[:, 0, 0, 0] * 100, torch.tensor(float(users[name])))
            assert torch.allclose(x[:, 0, 0, 1] * 100, y.float(), atol=1e-4)


def test_femnist_from_a_file_a_zip_and_a_folder(tmp_path):
    users = {f"f{k}": characters(k, 10) for k in range(3)}
    numbers = {f"f{k}": k for k in range(3)}
    (tmp_path / "all.json").write_text(leaf(users))
    made = load("femnist", path=tmp_path / "all.json")
    assert (made.kind, made.outputs, made.input_shape) == ("multiclass", 62, (1, 28, 28))
    assert list(made.names) == ["f0", "f1", "f2"] and not made.leaks
    assert made.labels[10] == "A" and made.labels[61] == "z"
    assert [int(made.part(p).counts[0]) for p in PARTS] == [6, 2, 2]
    check_rows(made, numbers)

    with zipfile.ZipFile(tmp_path / "all.json.zip", "w") as archive:
        archive.writestr("__MACOSX/._all.json", b"\x00\x05\x16\x07")
        archive.writestr("all.json", leaf(users))
    zipped = load("femnist", path=tmp_path / "all.json.zip")
    assert torch.equal(zipped.train.x, made.train.x)

    folder = tmp_path / "parts"
    folder.mkdir()
    for k, (user, rows) in enumerate(users.items()):
        (folder / f"all_data_{k}.json").write_text(leaf({user: rows}))
    assert torch.equal(load("femnist", path=folder).train.x, made.train.x)
    few = load("femnist", path=folder, users=2, validation=0)
    assert list(few.names) == ["f0", "f1"] and len(few.validation.y) == 0


def test_absent_classes_keep_their_outputs(tmp_path):
    file = tmp_path / "two.json"
    file.write_text(leaf({"a": characters(1, 6, 40), "b": characters(2, 6, 40)}))
    made = load("femnist", path=file)
    assert made.outputs == 62 and made.train.y.min() >= 40


def test_a_test_part_stays_the_test_part(tmp_path):
    for part in ("train", "test"):
        (tmp_path / "data" / part).mkdir(parents=True)
    train = {"a": characters(1, 10), "b": characters(2, 5), "only-train": characters(3, 8)}
    test = {"b": characters(2, 3, 30), "a": characters(1, 4, 30), "only-test": characters(4, 4)}
    (tmp_path / "data/train/train.json").write_text(leaf(train))
    (tmp_path / "data/test/test.json").write_text(leaf(test))
    made = load("femnist", path=tmp_path)
    assert list(made.names) == ["a", "b"]
    assert made.test.counts.tolist() == [4, 3] and made.test.y.min() == 30
    assert made.validation.counts.tolist() == [2, 1] and made.train.counts.tolist() == [8, 4]
    assert torch.cat([made.train.y, made.validation.y]).max() < 10
    check_rows(made, {"a": 1, "b": 2})
    assert len(load("femnist", path=tmp_path, min_rows=0)) == 2
    assert BOTH in made.assumptions
    (tmp_path / "data/test/test.json").write_text(leaf({"only-test": characters(4, 4)}))
    assert "split it by user" in error("femnist", path=tmp_path)


def test_wrong_leaf_files(tmp_path):
    file = tmp_path / "a.json"

    def message(text: str) -> str:
        file.write_text(text)
        return error("femnist", path=file)

    assert "cannot be read as JSON" in message("{")
    assert "not a LEAF file" in message("[1]")
    assert "not a LEAF file" in message('{"user_data": {}}')
    assert "no users with rows" in message(leaf({}))
    assert "not 784 numbers" in message(leaf({"a": ([[0.0] * 3], [1])}))
    assert "not 784 numbers" in message(leaf({"a": ([[0.0] * 784, [0.0]], [1, 2])}))
    assert "not 784 numbers" in message(leaf({"a": (["0001.jpg"], [1])}))
    assert "class 62, expected 0 to 61" in message(leaf({"a": ([[0.0] * 784], [62])}))
    assert "same length" in message(leaf({"a": ([[0.0] * 784], [1, 2])}))
    assert "only one task" in message(leaf({"a": characters(1, 9)}))
    both = leaf({"a": characters(1, 9), "b": characters(2, 9)})
    (tmp_path / "b.json").write_text(both)
    file.write_text(both)
    assert "is in two files" in error("femnist", path=tmp_path)
    assert "users is 1" in error("femnist", path=file, users=1)
    (tmp_path / "c.json.zip").write_bytes(b"no zip")
    assert "get it again" in error("femnist", path=tmp_path / "c.json.zip")
    (tmp_path / "empty").mkdir()
    assert "train/ and test/" in error("femnist", path=tmp_path / "empty")
    (tmp_path / "a.txt").write_text("")
    assert "not a LEAF file" in error("femnist", path=tmp_path / "a.txt")
    assert "no option 'writers'" in error("femnist", writers=3)


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    assert "set TACIT_DATA" in error("femnist") and "path=" in error("celeba")
    assert "does not exist" in error("writers", path=tmp_path / "nowhere")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert "no femnist/ or femnist_pmtl/ in it" in error("femnist")
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist/a.json").write_text(
        leaf({"a": characters(1, 6), "b": characters(2, 6)}),
    )
    assert len(load("femnist")) == 2


def test_celeba_reads_images(tmp_path):
    folder = tmp_path / "data" / "raw" / "img_align_celeba"
    folder.mkdir(parents=True)
    reds = {}
    for number in range(12):
        name, red = f"{number:06}.jpg", 20 * number
        Image.new("RGB", (178, 218), (red, 100, 255)).save(folder / name, quality=95)
        reds[red] = number
    (tmp_path / "data/all_data").mkdir()
    names = [f"{number:06}.jpg" for number in range(12)]
    labels = [0, 1] * 6
    made_of = {"7": (names[:6], labels[:6]), "8": (names[6:], labels[6:])}
    file = tmp_path / "data/all_data/celeba.json"
    file.write_text(leaf(made_of))
    made = load("celeba", path=file)
    assert (made.kind, made.outputs, made.input_shape) == ("binary", 1, (3, 84, 84))
    assert made.train.y.dtype == torch.float32 and made.labels == ("not smiling", "smiling")
    for part in PARTS:
        x, y = made.part(part).x, made.part(part).y
        number = (x[:, 0].mean(dim=(1, 2)) * 255 / 20).round().int()
        assert torch.equal(number % 2, y.int())
        assert (x[:, 1] - 100 / 255).abs().max() < 0.02 and (x[:, 2] > 0.97).all()
    again = load("celeba", path=file, images=folder)
    assert torch.equal(again.test.x, made.test.x)

    assert "which is not a folder" in error("celeba", path=file, images=tmp_path / "none")
    (folder / names[3]).write_bytes(b"no image")
    assert "cannot be read" in error("celeba", path=file)
    (folder / names[3]).unlink()
    assert "does not exist; add the image" in error("celeba", path=file)
    alone = tmp_path / "deep" / "down" / "alone.json"
    alone.parent.mkdir(parents=True)
    alone.write_text(leaf(made_of))
    assert "pass images=" in error("celeba", path=alone)


def test_writers(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 784), dtype=np.uint8)
    y, who = np.arange(40) % 10, np.array([5, 2, 9, 2] * 10)
    x[:, 0], x[:, 1] = who, y
    path = tmp_path / "mnist_by_writer.npz"
    np.savez(path, x_train=x, y_train=y, writer_train=who)
    made = load("writers", path=tmp_path)
    assert list(made.names) == ["writer-2", "writer-5", "writer-9"]
    assert made.input_shape == (1, 28, 28) and made.outputs == 10 and made.train.x.max() <= 1
    for k, number in enumerate((2, 5, 9)):
        images, digits = made.train.of(k)
        assert torch.allclose(images[:, 0, 0, 0] * 255, torch.tensor(float(number)))
        assert torch.allclose(images[:, 0, 0, 1] * 255, digits.float())

    def message(**arrays) -> str:
        np.savez(path, **{"x_train": x, "y_train": y, "writer_train": who} | arrays)
        return error("writers", path=path)

    assert "expected uint8 [N, 784]" in message(x_train=x / 255)
    assert "one writer for each image" in message(writer_train=who[1:])
    assert "from 0 to 9" in message(y_train=y + 1)
    np.savez(path, x=x)
    assert "but not x_train, y_train, writer_train" in error("writers", path=path)
    path.unlink()
    assert "holds no mnist_by_writer.npz" in error("writers", path=tmp_path)


def test_the_real_femnist():
    made = load("femnist", path=real("femnist_pmtl"), min_rows=20)
    assert len(made) == 189 and made.outputs == 62
    whole = load("femnist", path=real("femnist_pmtl"))
    assert len(whole) == 206 and sum(len(whole.part(p).y) for p in PARTS) == 6237
    for part in PARTS:
        x = whole.part(part).x
        assert x.min() >= 0 and x.max() <= 1 and (x[:, 0, 0, 0] == 1).float().mean() > 0.9


def test_other_writers_to_choose_settings_by(tmp_path):
    """The two groups of an archive are read apart, and neither sees the other's rows."""
    both = {}
    for people, digit in (("train", 1), ("test", 7)):
        both[f"x_{people}"] = np.full((12, 784), digit, dtype=np.uint8)
        both[f"y_{people}"] = np.full(12, digit)
        both[f"writer_{people}"] = np.repeat([digit * 10, digit * 10 + 1], 6)
    np.savez(tmp_path / "mnist_by_writer.npz", **both)
    first = load("writers", path=tmp_path)
    others = load("writers", path=tmp_path, people="test")
    assert list(first.names) == ["writer-10", "writer-11"]
    assert list(others.names) == ["writer-70", "writer-71"]
    assert set(others.train.y.tolist()) == {7} and first.outputs == others.outputs == 10
    with pytest.raises(TacitError, match="choose train or test"):
        load("writers", path=tmp_path, people="all")


def test_the_real_writers(monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(real("qmnist_writer").parent))
    made = load("writers")
    assert len(made) == 539 and sum(len(made.part(p).y) for p in PARTS) == 60000
    rows = sum(made.part(p).counts for p in PARTS)
    assert int(rows.min()) == 19 and int(rows.max()) == 131
    assert all((torch.bincount(made.part(p).y, minlength=10) > 500).all() for p in PARTS)
