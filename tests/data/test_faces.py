"""Faces with attributes in heads: small sets made here, and the stand-in where it is."""

import builtins
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from tacit.data import load
from tacit.data.federation import PARTS, Federation
from tacit.errors import TacitError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
NAMES = [f"Attribute_{k}" for k in range(40)]
SMALL = {"clients": 6, "min_rows": 4}


def error(name, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def raw(x: torch.Tensor) -> torch.Tensor:
    """Bytes again."""
    return ((x * 0.25 + 0.5) * 255).round()


def everything(made: Federation) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, y and the task of each row, of all parts."""
    rows = [made.part(part) for part in PARTS]
    task = [torch.arange(len(made)).repeat_interleave(part.counts) for part in rows]
    return torch.cat([p.x for p in rows]), torch.cat([p.y for p in rows]), torch.cat(task)


def check_heads(made: Federation):
    """Labels are missing where heads are not held, and nowhere else."""
    assert made.heads is not None
    assert made.heads.names == tuple(f"T{k}" for k in range(1, 9))
    assert made.heads.outputs == (5,) * 8 and made.outputs == 40
    assert int(made.heads.holders.min()) >= min(2, 2 * len(made) // 8)
    _, y, task = everything(made)
    held = made.heads.holds.repeat_interleave(5, dim=1)[task]
    assert torch.equal(~y.isnan(), held)
    assert set(y[held].unique().tolist()) <= {0.0, 1.0}


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """The labels that the made-up sets give to photographs of this number."""
    return (numbers[:, None] * torch.arange(1, 41) // 3 % 2).float()


@pytest.fixture
def archive(tmp_path) -> Path:
    """Images whose first value is their number; chances of attributes rise with it or fall."""
    x = np.full((90, 32, 32, 3), 7, dtype=np.uint8)
    x[:, 0, 0, 0] = np.arange(90)
    rising = (np.arange(90)[:, None] + 0.5) / 90
    chance = np.where(np.arange(40) % 2 == 0, rising, 1 - rising) ** 3
    file = tmp_path / "lfw_9000_32x32_facer40.npz"
    np.savez(file, x=x, attr_prob=chance.astype(np.float16), attr_names=np.array(NAMES))
    return file


def test_the_stand_in_is_dealt_once_and_cut_at_medians(archive):
    made = load("lfw-pseudo", path=archive, **SMALL)
    assert (made.kind, made.input_shape, made.labels) == ("multilabel", (3, 32, 32), tuple(NAMES))
    assert list(made.names) == [f"client-0{k}" for k in range(1, 7)]
    assert "stand-in: attributes predicted by a model, not LFWA's" in made.source
    assert not made.leaks
    assert any("above/below the median over all images" in said for said in made.assumptions)
    check_heads(made)
    assert made.heads is not None and (made.heads.holds.sum(dim=1) == 2).all()
    x, y, _ = everything(made)
    number = raw(x[:, 0, 0, 0])
    assert sorted(number.tolist()) == list(range(90))
    assert torch.equal(raw(x[:, 1]), torch.full((90, 32, 32), 7.0))  # channels come first
    expected = (number[:, None] >= 45) == (torch.arange(40) % 2 == 0)
    held = ~y.isnan()
    assert torch.equal(y[held], expected.float()[held])
    half = load("lfw-pseudo", path=archive, threshold="half", **SMALL)
    assert 0.15 < half.train.y.nanmean() < 0.27  # a chance of one half is reached by 21 %
    assert not any("median" in said for said in half.assumptions)


def test_parts_are_70_15_15(archive):
    made = load("lfw-pseudo", path=archive, **SMALL | {"concentration": 1e6})
    total = sum(made.part(p).counts for p in PARTS)
    assert (made.test.counts == (total * 0.15 + 0.5).long()).all()
    assert (made.validation.counts == made.test.counts).all()


def test_seeds_and_numbers_of_heads(archive):
    made, again, other = (load("lfw-pseudo", path=archive, seed=s, **SMALL) for s in (3, 3, 4))
    assert torch.equal(made.train.x, again.train.x)
    torch.testing.assert_close(made.train.y, again.train.y, equal_nan=True, rtol=0, atol=0)
    assert not torch.equal(made.train.offsets, other.train.offsets)
    for some in (None, 0):
        many = load("lfw-pseudo", path=archive, seed=3, heads_per_client=some, **SMALL)
        check_heads(many)
        assert torch.equal(many.train.x, made.train.x)
        assert many.heads is not None and len(set(many.heads.holds.sum(dim=1).tolist())) > 1
    everyone = load("lfw-pseudo", path=archive, heads_per_client=8, **SMALL)
    assert not everyone.train.y.isnan().any()


def test_the_second_domain_sees_negatives(archive):
    plain = load("lfw-pseudo", path=archive, clients=5, min_rows=4)
    both = load("lfw-pseudo", path=archive, clients=5, min_rows=4, domains=2)
    assert both.names == ["positive-01", "positive-02", "positive-03", "negative-04", "negative-05"]
    for task in range(5):  # tasks have other names here and there, so other rows are held back
        seen, real = (
            torch.cat([raw(fed.part(part).of(task)[0]) for part in PARTS]) for fed in (both, plain)
        )
        real = real if task < 3 else 255 - real
        assert sorted(map(str, seen.tolist())) == sorted(map(str, real.tolist()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": "mean"}, "expected 'median' or 'half'"),
        ({"domains": 3}, "expected 1 or 2"),
        ({"heads_per_client": 9}, "from 1 to 8, or 0"),
        ({"min_rows": 2}, "needs 3 rows to split; pass min_rows=3"),
        ({"clients": 60}, "90 rows are too few for 60 clients"),
        ({"clients": 1}, "clients is 1"),
        ({"test": 0.9}, "below 1"),
        ({"concentration": -1}, "concentration is -1"),
    ],
)
def test_wrong_options(archive, options, words):
    assert words in error("lfw-pseudo", path=archive, **SMALL | options)


def test_damaged_stand_ins(archive):
    with np.load(archive) as content:
        good = dict(content)
    for change, words in (
        ({"x": good["x"] / 255}, "expected uint8"),
        ({"attr_prob": good["attr_prob"][:, :39]}, "expected 40 probabilities"),
        ({"attr_prob": good["attr_prob"] * 2}, "must hold probabilities"),
        ({"attr_names": np.array(NAMES[:3])}, "40 names"),
    ):
        np.savez(archive, **good | change)
        assert words in error("lfw-pseudo", path=archive, **SMALL)
    assert "holds no lfw_9000" in error("lfw-pseudo", path=archive.parent / "..")


def photograph(file: Path, number: int, width: int, height: int):
    """Grey of this shade, green outside of the middle square of 112 points, red above it all."""
    pixels = np.full((height, width, 3), (0, 200, 0), dtype=np.uint8)
    top, left = (height - 112) // 2, (width - 112) // 2
    pixels[top : top + 112, left : left + 112] = number
    pixels[:10] = (200, 0, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, format="PNG")  # exact, whatever its name


def celeba(folder: Path, count=40, table=False) -> Path:
    rows = bits(torch.arange(count)).int() * 2 - 1
    for k in range(count):
        photograph(folder / f"img_align_celeba/{k + 1:06}.jpg", k, 178, 218)
    listed = [[f"{k + 1:06}.jpg", *map(str, row)] for k, row in enumerate(rows.tolist())]
    if table:
        lines = [["image_id", *NAMES], *listed]
        (folder / "list_attr_celeba.csv").write_text("\n".join(map(",".join, lines)) + "\n")
    else:
        lines = [f"{count}", " ".join(NAMES) + " ", *map("  ".join, listed)]
        (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    return folder


def lfwa(folder: Path, count=40, modern=True, release="lfw") -> Path:
    files = [f"Person_{k % 7}\\Person_{k % 7}_{k:04}.jpg" for k in range(count)]
    for k, name in enumerate(files):
        photograph(folder.joinpath(release, *name.split("\\")), k, 250, 250)
    labels = bits(torch.arange(count)).numpy()
    spaced = [name.replace("_", " ") for name in NAMES]
    if not modern:
        cells = {"label": labels, "name": np.array(files, dtype=object)[:, None]}
        names = np.array(spaced, dtype=object)[:, None]
        savemat(folder / "lfw_att_40.mat", {**cells, "AttrName": names})
        return folder
    with h5py.File(folder / "lfw_att_40.mat", "w", userblock_size=512) as file:
        file["label"] = labels.T
        for key, texts in (("name", files), ("AttrName", spaced)):
            refs = np.empty((1, len(texts)), dtype=object)
            for k, text in enumerate(texts):
                place = file.create_dataset(
                    f"#refs#/{key}{k}",
                    data=np.array(list(map(ord, text)), dtype=np.uint16)[:, None],
                )
                refs[0, k] = place.ref
            file.create_dataset(key, data=refs, dtype=h5py.ref_dtype)
    return folder


def check_photographs(made: Federation, count: int):
    """Every drawn photograph is there once, with its own labels."""
    check_heads(made)
    x, y, task = everything(made)
    number = raw(x).amax(dim=1)[:, 16, 16]
    assert len(x) == count and made.labels == tuple(NAMES) and not made.leaks
    held = ~y.isnan()
    assert torch.equal(y[held], bits(number.long())[held])
    return number, task


@pytest.mark.parametrize("table", [False, True])
def test_celeba(tmp_path, table):
    made = load("celeba-attributes", path=celeba(tmp_path, table=table), images=33, **SMALL)
    number, _ = check_photographs(made, 33)
    assert len(set(number.tolist())) == 33 and number.max() < 40
    # The full width of 178 is kept (so there is green on both sides), the red above is cut off.
    x = raw(everything(made)[0])
    assert made.input_shape == (3, 32, 32) and (x[:, 0] < 40).all()
    assert (x[:, 1, 16, 0] == 200).all() and (x[:, 1, 0, 16] == 200).all()
    assert torch.equal(x[:, 1, 12:20, 12:20], number[:, None, None].expand(33, 8, 8))


@pytest.mark.parametrize(("modern", "release"), [(True, "lfw"), (False, "lfw-deepfunneled")])
def test_lfwa(tmp_path, modern, release):
    place = lfwa(tmp_path, modern=modern, release=release)
    made = load("lfwa", path=place, images=30, size=16, **SMALL)
    x, _, _ = everything(made)
    assert made.input_shape == (3, 16, 16) and (raw(x)[:, 0] < 45).all()
    # 140 of 250 points are looked at, of which the middle 112 are grey.
    grey = (raw(x)[:, 1, 8] < 60).sum(dim=1)
    assert ((grey == 12) | (grey == 14)).all()
    held = ~everything(made)[1].isnan()
    number = raw(x)[:, 1, 8, 8].long()
    assert torch.equal(everything(made)[1][held], bits(number)[held])


def test_facea_gives_each_client_one_of_the_two(tmp_path):
    for name, make in (("celeba", celeba), ("lfwa", lfwa)):
        (tmp_path / name).mkdir()
        make(tmp_path / name)
    made = load("facea", path=tmp_path, images=61, **SMALL)
    assert list(made.names) == [
        *(f"celeba-0{k}" for k in (1, 2, 3)),
        *(f"lfwa-0{k}" for k in (4, 5, 6)),
    ]
    number, task = check_photographs(made, 61)
    assert (task < 3).sum() == 31
    for half in (task < 3, task >= 3):
        assert len(set(number[half].tolist())) == half.sum()
    edge = raw(everything(made)[0])[:, 1, 16, 2]  # only CelebA's crop is wide enough to be green
    assert torch.equal(edge == 200, task < 3)
    assert "does not exist" in error("facea", path=tmp_path / "celeba", images=61, **SMALL)


def test_damaged_celeba(tmp_path):
    def said(images=33, **options):
        return error("celeba-attributes", path=tmp_path, images=images, **SMALL | options)

    assert "holds no list_attr_celeba.txt or list_attr_celeba.csv" in said()
    place = tmp_path / "list_attr_celeba.txt"
    place.write_text("")
    assert "img_align_celeba" in said()
    celeba(tmp_path)
    good = place.read_text().splitlines()
    assert "CelebA has only 40; pass images=40" in said(images=41)
    for lines, words in (
        ([], "not a list of CelebA's attributes"),
        (["39", *good[1:]], "begins with '39', but has 40 photographs"),
        ([good[0], "a b", *good[2:]], "expected 40 names"),
        ([*good[:2], *(line.replace("-1", "2") for line in good[2:])], "numbers -1 or 1"),
        ([*good[:2], *(line[:-3] for line in good[2:])], "numbers -1 or 1"),
    ):
        place.write_text("\n".join(lines))
        assert words in said(images=40)
    place.write_bytes(b"\xff\xfe")
    assert "cannot be read" in said()
    place.write_text("\n".join(good))
    for options, words in (({"size": 4}, "from 8 to 256"), ({"images": 1}, "images is 1")):
        assert words in said(**options)
    (tmp_path / "img_align_celeba/000007.jpg").write_bytes(b"no photograph")
    assert "000007.jpg cannot be read" in said(images=40)
    (tmp_path / "img_align_celeba/000007.jpg").unlink()
    assert "000007.jpg is listed but does not exist" in said(images=40)


def test_damaged_lfwa(tmp_path):
    def said(**options):
        return error("lfwa", path=tmp_path, images=30, **SMALL | options)

    assert "holds no lfw_att_40.mat" in said()
    lfwa(tmp_path)
    file = tmp_path / "lfw_att_40.mat"
    whole = file.read_bytes()
    file.write_bytes(whole[:2000])
    assert "lfw_att_40.mat does not hold label" in said()
    file.write_bytes(b"junk")
    assert "cannot be read as a MATLAB file" in said()
    savemat(file, {"label": np.zeros((3, 40)), "name": np.array(["a"], dtype=object)})
    assert "expected label, name, AttrName" in said()
    names = {"name": np.array(["a", "b"], dtype=object), "AttrName": np.array(NAMES, dtype=object)}
    savemat(file, {"label": np.zeros((3, 40)), **names})
    assert "2 names of photographs" in said()
    savemat(file, {"label": np.full((2, 40), 7), **names})
    assert "must hold 0 and 1" in said()


@pytest.mark.parametrize("absent", ["PIL", "h5py"])
def test_without_pillow_or_h5py(tmp_path, monkeypatch, absent):
    lfwa(tmp_path)
    real = builtins.__import__

    def guarded(name, *args, **kwargs):
        if name == absent:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert "pip install 'tacit[data]'" in error("lfwa", path=tmp_path, images=30, **SMALL)


def test_the_real_stand_in():
    folder = SHARED / "lfw_pseudo_attr"
    if not folder.is_dir():
        pytest.skip("the real files of lfw_pseudo_attr are not beside the repository")
    made = load("lfw-pseudo", path=folder)
    check_heads(made)
    x, y, _ = everything(made)
    assert len(made) == 60 and len(x) == 9000 and made.labels[20] == "Male"
    assert abs(x.mean()) < 0.3 and 0.9 < x.std() < 1.1
    counts = sum(made.part(p).counts for p in PARTS)
    assert counts.min() >= 20 and counts.max() > 400
    means = y.nanmean(dim=0)
    assert (means - 0.5).abs().max() < 0.12 and abs(means.mean() - 0.5) < 0.01
