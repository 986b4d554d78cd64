"""Pixels with classes: made-up scenes, and NYUD2 in a small folder made here."""

import time

import numpy as np
import pytest
import torch

from tacit.data import load
from tacit.data.federation import PARTS, Federation
from tacit.data.sets.nyud2 import CLASSES
from tacit.data.sets.scenes import FORMS, HEADS, KINDS, TEXTURES, draw
from tacit.errors import TacitError


def error(name, **options) -> str:
    with pytest.raises(TacitError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check_heads(made: Federation):
    """Pixels have classes of heads that are held, and of no others."""
    assert made.heads is not None and made.heads.names == ("T1", "T2", "T3", "T4")
    assert made.heads.outputs == (3, 3, 3, 3) and made.outputs == 12 == len(made.labels)
    assert int(made.heads.holders.min()) >= 2
    for part in PARTS:
        rows = made.part(part)
        held = made.heads.holds.repeat_interleave(rows.counts, dim=0)
        assert rows.y.dtype == torch.int8 and (rows.y[~held] == -1).all()
        assert rows.y.min() == -1 and rows.y.max() == 2
        assert ((rows.y >= 0).sum(dim=1) <= 1).all()  # a pixel is in one head at most


def test_scenes_are_dealt_once_with_their_heads():
    made = load("scenes", seed=2)
    assert (made.kind, made.input_shape) == ("segmentation", (3, 32, 32))
    assert made.labels == tuple(name for group in HEADS.values() for name in group)
    assert sorted(made.labels) == sorted(KINDS) and not made.leaks
    check_heads(made)
    assert made.heads is not None and (made.heads.holds.sum(dim=1) == 2).all()
    counts = sum(made.part(p).counts for p in PARTS)
    assert counts.sum() == 600 and counts.min() >= 10 and counts.max() > 40
    images = torch.cat([made.part(p).x for p in PARTS])
    assert len(images.flatten(1).unique(dim=0)) == 600
    assert abs(images.mean()) < 0.5 and 0.7 < images.std() < 1.3
    again, other = load("scenes", seed=2), load("scenes", seed=3)
    assert torch.equal(again.train.x, made.train.x) and torch.equal(again.test.y, made.test.y)
    assert not torch.equal(other.train.offsets, made.train.offsets)


def test_number_of_heads_leaves_scenes_alone():
    two, many = (
        load("scenes", scenes=60, clients=5),
        load("scenes", scenes=60, clients=5, heads_per_client=0),
    )
    check_heads(many)
    assert torch.equal(two.train.x, many.train.x)
    every = load("scenes", scenes=60, clients=5, heads_per_client=4)
    assert torch.equal(every.train.x, two.train.x)
    assert torch.equal(torch.where(two.train.y < 0, -1, every.train.y), two.train.y)


def test_no_head_is_told_by_form_or_texture_alone():
    for group in HEADS.values():
        textures, forms = zip(*(name.split() for name in group), strict=True)
        assert len(set(forms)) == 2 and len(set(textures)) == 2
        assert set(forms) <= set(FORMS) and set(textures) <= set(TEXTURES)


def test_masks_lie_where_the_shapes_are():
    x, masks = draw(80, 64, np.random.default_rng(0), noise=0.0)
    empty, nothing = draw(80, 64, np.random.default_rng(0), shapes=(0, 0), noise=0.0)
    assert (nothing == -1).all() and masks.dtype == np.int8 and x.dtype == np.float32
    changed = np.abs(x - empty).max(axis=1) > 1e-6
    assert not (changed & (masks < 0)).any()
    assert changed[masks >= 0].mean() > 0.99  # a shape may have the colour of what it lies on
    assert set(np.unique(masks).tolist()) == set(range(-1, 12))
    assert x.min() >= 0 and x.max() <= 1


def test_a_kind_has_its_form_and_its_texture():
    x, masks = draw(4000, 32, np.random.default_rng(1), shapes=(1, 1), noise=0.0)
    grey = x.mean(axis=1)
    filled = np.zeros(12)
    for kind in range(12):
        fills, jumps = [], []
        for image, mask in zip(grey, masks == kind, strict=True):
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            edge = {0, 31} & {*rows.tolist(), *columns.tolist()}
            if not len(rows) or edge:  # all of the shape is in the picture
                continue
            box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
            fills.append(mask.sum() / box)
            across = mask[:, 1:] & mask[:, :-1]
            along = mask[1:] & mask[:-1]
            ratio = np.abs(np.log(image[:, 1:] / image[:, :-1]))[across] > 0.2
            other = np.abs(np.log(image[1:] / image[:-1]))[along] > 0.2
            jumps.append((ratio.mean(), other.mean()))
        filled[kind] = np.mean(fills)
        low, high = np.sort(jumps, axis=1).mean(axis=0)
        texture = TEXTURES[kind % 3]
        if texture == "plain":
            assert high < 0.01
        elif texture == "striped":  # steps in one direction mostly
            assert high > 0.4 and low < 0.2
        else:
            assert low > 0.4
    disc, square, triangle, cross = filled.reshape(4, 3)
    assert (np.abs(disc - np.pi / 4) < 0.03).all() and (square > 0.74).all()
    assert (triangle < 0.6).all() and (cross < 0.6).all()


def test_colour_alone_does_not_tell():
    """The nearest mean colour finds fewer than two thirds of a head's pixels."""
    x, masks = draw(600, 32, np.random.default_rng(0))
    pixels = x.transpose(0, 2, 3, 1)
    for group in HEADS.values():
        kinds = [KINDS.index(name) for name in group]
        means = np.stack([pixels[:400][masks[:400] == kind].mean(axis=0) for kind in kinds])
        own = np.isin(masks[400:], kinds)
        away = ((pixels[400:][own][:, None] - means) ** 2).sum(axis=2)
        right = np.array(kinds)[away.argmin(axis=1)] == masks[400:][own]
        assert 0.3 < right.mean() < 0.66


def test_six_hundred_scenes_take_no_time():
    start = time.perf_counter()
    load("scenes")
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 48}, "multiple of 32"),
        ({"size": 0}, "multiple of 32"),
        ({"scenes": 100}, "100 rows are too few for 20 clients"),
        ({"scenes": 0.5}, "scenes is 0.5"),
        ({"noise": -1}, "noise is -1"),
        ({"heads_per_client": 5}, "from 1 to 4, or 0"),
        ({"min_rows": 1}, "needs 3 rows to split"),
        ({"head": 3}, "no option 'head'"),
    ],
)
def test_wrong_options(options, words):
    assert words in error("scenes", **options)


@pytest.fixture
def rooms(tmp_path):
    """24 + 12 rooms whose red is the class, green the number; halves of two classes."""
    for part, count in (("train", 24), ("val", 12)):
        for side in ("image", "label"):
            (tmp_path / part / side).mkdir(parents=True)
        for k in range(count):
            number = k + (24 if part == "val" else 0)
            label = np.full((48, 64), number % 14 - 1.0)
            label[:, 32:] = (number + 5) % 14 - 1
            image = np.zeros((48, 64, 3), dtype=np.float32)
            image[..., 0], image[..., 1] = (label + 1) / 20, number / 100
            np.save(tmp_path / part / "image" / f"{k}.npy", image)
            np.save(tmp_path / part / "label" / f"{k}.npy", label)
    return tmp_path


SMALL = {"size": 32, "clients": 6, "min_rows": 3}


def test_nyud2(rooms):
    made = load("nyud2", path=rooms, **SMALL)
    assert (made.kind, made.input_shape) == ("segmentation", (3, 32, 32))
    assert made.labels == CLASSES[:12] and made.source == "NYUD2" and not made.leaks
    check_heads(made)
    numbers = []
    for part in PARTS:
        rows = made.part(part)
        x = rows.x * 0.25 + 0.5
        numbers += (x[:, 1, 0, 0] * 100).round().int().tolist()
        task = torch.arange(6).repeat_interleave(rows.counts)
        for half in (slice(0, 14), slice(18, 32)):  # away from where the halves meet
            label = (x[:, 0, 4, half] * 20).round().long() - 1
            for head in range(4):
                assert made.heads is not None
                own = (label // 3 == head) & (label >= 0) & made.heads.holds[task, head][:, None]
                assert torch.equal(rows.y[:, head, 4, half].long(), torch.where(own, label % 3, -1))
    assert sorted(numbers) == list(range(36))
    fewer = load("nyud2", path=rooms, images=20, **SMALL)
    assert sum(len(fewer.part(p).y) for p in PARTS) == 20


def test_bytes_are_read_as_shares_of_255(rooms):
    for file in rooms.glob("*/image/*.npy"):
        np.save(file, (np.load(file) * 255).round().astype(np.uint8))
    made = load("nyud2", path=rooms, **SMALL)
    assert (made.train.x * 0.25 + 0.5).max() < 0.71


def test_damaged_nyud2(rooms):
    def said(**options):
        return error("nyud2", path=rooms, **SMALL | options)

    image, label = rooms / "train/image/3.npy", rooms / "train/label/3.npy"
    good = image.read_bytes(), label.read_bytes()
    np.save(label, np.full((48, 64), 13))
    assert "has the class 13, expected 0 to 12" in said()
    np.save(label, np.full((48, 60), 1))
    assert "(48, 60)" in said()
    np.save(label, np.array([None]), allow_pickle=True)
    assert "cannot be read as an array" in said()
    label.write_bytes(b"junk")
    assert "3.npy cannot be read as an array" in said()
    label.write_bytes(good[1])
    np.save(image, np.full((48, 64, 3), 2.0))
    assert "numbers from 0 to 1" in said()
    image.unlink()
    assert "3.npy in only one of image/ and label/" in said()
    image.write_bytes(good[0])
    assert "NYUD2 has only 36; pass images=36" in said(images=40)
    assert "multiple of 32" in said(size=100)
    assert "holds no train/image" in error("nyud2", path=rooms / "train", **SMALL)
