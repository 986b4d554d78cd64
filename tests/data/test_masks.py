"""Missing labels, and images whose pixels have classes."""

import numpy as np
import pytest
import torch

from tacit.data import from_arrays, from_masks
from tacit.data.federation import PARTS
from tacit.errors import TacitError

CLASSES = ("sky", "tree", "car", "road", "sign")
HEADS = {"green": ("tree", "sky"), "grey": ("road", "sign")}
HOLDS = {"a": ["green"], "b": ["grey"], "c": ["grey", "green"]}


def scenes(rows=30, height=3, width=4, seed=0):
    """Images whose first channel is the class of the pixel, and second the number of the row."""
    masks = np.random.default_rng(seed).integers(-1, 5, (rows, height, width))
    x = np.stack([masks, np.broadcast_to(np.arange(rows)[:, None, None], masks.shape)], axis=1)
    return x, masks, np.array(["a", "b", "c"])[np.arange(rows) % 3]


def error(call, *args, **options) -> str:
    with pytest.raises(TacitError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pixels_have_their_class_within_the_head_or_none():
    x, masks, tasks = scenes()
    made = from_masks(x, masks, tasks, classes=CLASSES, heads=HEADS, holds=HOLDS)
    assert (made.kind, made.outputs, made.input_shape) == ("segmentation", 4, (2, 3, 4))
    assert made.labels == ("tree", "sky", "road", "sign")
    assert made.heads is not None and made.heads.names == ("green", "grey")
    assert made.heads.holds.tolist() == [[True, False], [False, True], [True, True]]
    assert not made.leaks
    seen = 0
    for part in PARTS:
        for k, task in enumerate(made.names):
            rows, y = made.part(part).of(k)
            assert y.dtype == torch.int8 and y.shape[1:] == (2, 3, 4)
            seen += len(y)
            for head, (name, group) in enumerate(HEADS.items()):
                expected = torch.full(y[:, head].shape, -1)
                if name in HOLDS[task]:
                    for position, label in enumerate(group):
                        expected[rows[:, 0] == CLASSES.index(label)] = position
                assert torch.equal(y[:, head].long(), expected)
    assert seen == 30


def test_one_head_with_all_classes_unless_said_otherwise():
    x, masks, tasks = scenes()
    made = from_masks(torch.tensor(x), torch.tensor(masks), tasks, classes=CLASSES)
    assert made.labels == CLASSES and made.heads is not None and len(made.heads) == 1
    for part in PARTS:
        assert torch.equal(made.part(part).y[:, 0].float(), made.part(part).x[:, 0])


def test_masks_that_cannot_be_used():
    x, masks, tasks = scenes()

    def said(x=x, masks=masks, tasks=tasks, **options):
        return error(from_masks, x, masks, tasks, **{"classes": CLASSES, "heads": HEADS} | options)

    assert "has the class 4, expected 0 to 3" in said(classes=CLASSES[:4], heads=None)
    assert "row 1 of masks has the class 9" in said(masks=np.full_like(masks, 9).astype(np.uint8))
    assert "whole numbers" in said(masks=masks + 0.5)
    assert "and masks has shape (30, 3, 3)" in said(masks=masks[:, :, :3])
    assert "30 images, but tasks has 29" in said(tasks=tasks[:-1])
    assert "class 'boat'" in said(heads={"h": ("boat", "sky")})
    assert "two or more, each once" in said(heads={"h": ("sky",)})
    assert "two or more, each once" in said(heads={"h": ("sky", "sky")})
    assert "in two heads" in said(heads={"h": ("sky", "car"), "g": ("car", "road")})
    assert "heads is empty" in said(heads={})
    assert "two classes are named 'sky'" in said(classes=("sky", "sky"), heads=None)
    assert "task 'c' has no heads" in said(holds={"a": ["grey"], "b": ["grey"]})
    assert "no rows" in said(x=x[:0], masks=masks[:0], tasks=tasks[:0])


def test_labels_may_be_missing_where_multilabel_is_said():
    rng = np.random.default_rng(0)
    x, tasks = np.arange(60.0)[:, None], np.arange(60) % 3
    y = rng.integers(0, 2, (60, 4)).astype(np.float64)
    y[rng.random(y.shape) < 0.4] = np.nan
    made = from_arrays(x, y, tasks, kind="multilabel", scale="none")
    assert (made.kind, made.outputs) == ("multilabel", 4)
    for part in PARTS:
        rows = made.part(part)
        expected = torch.tensor(y[rows.x[:, 0].long().numpy()]).float()
        torch.testing.assert_close(rows.y, expected, equal_nan=True)
    as_tensor = from_arrays(x, torch.tensor(y), tasks, kind="multilabel", scale="none")
    torch.testing.assert_close(as_tensor.train.y, made.train.y, equal_nan=True)
    objects = np.where(np.isnan(y), None, y)
    assert "row 1 of y" in error(from_arrays, x, objects, tasks)


def test_other_targets_still_have_no_gaps():
    x, tasks = np.arange(60.0)[:, None], np.arange(60) % 3
    y = np.arange(60) % 2 * 1.0
    y[7] = np.nan
    for kind in (None, "binary", "regression", "multiclass"):
        assert "row 8 of y is nan" in error(from_arrays, x, y, tasks, kind=kind)
    several = np.stack([y, 1 - y], axis=1)
    assert "row 8 of y is nan" in error(from_arrays, x, several, tasks)
    several[3, 1] = np.inf
    assert "row 4 of y is inf" in error(from_arrays, x, several, tasks, kind="multilabel")
    several[3, 1] = 2
    assert "column 2 of y is 2" in error(from_arrays, x, several, tasks, kind="multilabel")
    several[:, 1] = np.nan
    message = error(from_arrays, x, several, tasks, kind="multilabel", labels=["p", "q"])
    assert "column 'q' of y is missing in every row" in message
    several[:] = [1, 0]
    several[2] = np.nan
    assert "same in every row" in error(from_arrays, x, several, tasks, kind="multilabel")
    whole = np.arange(60) % 2
    assert "use tacit.data.from_masks" in error(from_arrays, x, whole, tasks, kind="segmentation")
    assert "from_masks" in error(from_arrays, x, np.zeros((60, 2, 2)), tasks)
