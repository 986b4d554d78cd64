"""The target: which kind of learning problem it is, and its values as the models need them.

| target                                              | kind       |
|-----------------------------------------------------|------------|
| numbers with fractions, or more than 20 whole ones   | regression |
| two distinct values of any sort                      | binary     |
| text, or at most 20 distinct whole numbers           | multiclass |
| several columns of 0 and 1                           | multilabel |
| whole numbers, 0 or more, where `kind="count"` is said | count    |
| a time, and whether the event came then (`event=`)   | survival   |

Where `kind="multilabel"` is said, cells of `y` may be NaN: labels that nobody wrote down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from tacit.data.cells import number_text
from tacit.data.federation import NUMBERS, Kind
from tacit.errors import TacitError

FEW = 20
MOST_CLASSES = 1000
CLASSES = "the names of the classes or labels are taken to be public"
KIND = "the kind of the target, and the names of its classes if it has any, are taken to be public"
"""What is assumed where rows told the kind: the same words, whatever they told."""


@dataclass(frozen=True)
class Target:
    """`y` is numbers (regression, count, binary, multilabel), int64 class numbers (multiclass), or
    int8 class numbers of pixels [N, heads, height, width] (segmentation). The labels of survival
    are the ends of the intervals.

    A source whose classes are known to everybody makes one itself: then no row is looked at to
    find them, and a class that nobody has keeps its output.
    """

    kind: Kind
    y: np.ndarray
    outputs: int
    labels: tuple[str, ...] = ()
    said: tuple[str, ...] | None = None
    """What is assumed of it, if not just that labels are public."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        if self.said is not None:
            return self.said
        return (CLASSES,) if self.labels else ()

    def at(self, rows: np.ndarray) -> Target:
        """The same target for some of the rows."""
        return replace(self, y=self.y[rows])


def check_kind(kind: str | None) -> None:
    if kind is not None and kind not in get_args(Kind):
        raise TacitError(f"kind is {kind!r}, expected one of: {', '.join(get_args(Kind))}")


@dataclass(frozen=True)
class RawTarget:
    """A target as it stands in a table, whose kind and classes its rows tell; see `encode`."""

    y: np.ndarray
    kind: Kind | None = None
    name: str = "y"
    names: Sequence[str] | None = None

    def at(self, rows: np.ndarray) -> Target:
        """Told by some of the rows."""
        return encode(self.y[rows], self.kind, self.name, self.names)


def encode(
    y: np.ndarray, kind: Kind | None, name: str = "y", names: Sequence[str] | None = None
) -> Target:
    """Infer the kind and code the classes as 0, 1, 2 … in sorted order.

    `y` has no missing cells, except NaN where kind is multilabel: numbers, bools, or text (as
    objects). `name` is for messages, `names` are those of several target columns.
    """
    check_kind(kind)
    if kind == "segmentation":
        raise TacitError(
            f"kind='segmentation' needs an image of classes for each row, but {name} has shape "
            f"{y.shape}; use tacit.data.from_masks"
        )
    if kind == "survival":
        raise TacitError(
            f"kind='survival' needs a time and whether the event came then, but {name} has shape "
            f"{y.shape}; pass both as columns"
        )
    if y.ndim == 2 and y.shape[1] == 1 and kind != "multilabel":
        y = y[:, 0]
    if y.ndim == 2:
        return _multilabel(y, kind, name, names)
    if kind == "multilabel":
        raise TacitError(
            f"kind='multilabel' needs several target columns of 0 and 1, but {name} is one column; "
            "pass a target with one column per label"
        )
    plain = kind in NUMBERS and y.dtype.kind in "iuf"  # nobody asks how many distinct ones
    values, codes = (np.array([y.min(), y.max()]), y) if plain and len(y) else _distinct(y)
    if len(values) < 2 or (plain and values[0] == values[1]):
        raise TacitError(
            f"{name} has the same value {_label(values[0])!r} in every row, so there is nothing to "
            "learn; choose another target"
        )
    numeric = values.dtype.kind in "iuf"
    said = (KIND,) if kind is None else None
    kind = kind or _infer(values, numeric)
    if kind in NUMBERS:
        if not numeric:
            raise TacitError(
                f"{name} holds text such as {_label(values[0])!r}, but kind={kind!r} needs "
                "numbers; pass kind='multiclass' or choose another target"
            )
        if kind == "count" and (wrong := no_count(y)).any():
            row = int(np.argmax(wrong))
            raise TacitError(
                f"row {row + 1} of {name} is {_label(y[row].item())}, but kind='count' needs whole "
                "numbers, 0 or more; correct it, or pass kind='regression'"
            )
        return Target(kind, y.astype(np.float64), 1, said=said)
    labels = tuple(_label(value) for value in values.tolist())
    if kind == "binary":
        if len(values) != 2:
            raise TacitError(
                f"{name} has {len(values)} distinct values, but kind='binary' needs two; pass "
                "kind='multiclass' or choose another target"
            )
        return Target("binary", codes.astype(np.float64), 1, labels, said)
    if len(values) > 2 and (len(values) > MOST_CLASSES or 3 * len(values) > len(y)):
        remedy = "pass kind='regression' or choose" if numeric else "choose"
        raise TacitError(
            f"{name} has {len(values)} distinct values in {len(y)} rows: is it really a class? "
            f"{remedy} another target"
        )
    return Target("multiclass", codes.astype(np.int64), len(values), labels, said)


def no_count(y: np.ndarray) -> np.ndarray:
    """Which numbers are negative or have a fraction."""
    return (y < 0) | (y != np.floor(y))


def _infer(values: np.ndarray, numeric: bool) -> Kind:
    whole = not numeric or values.dtype.kind in "iu" or bool((values == np.floor(values)).all())
    if not whole:
        return "regression"
    if len(values) == 2:
        return "binary"
    return "regression" if numeric and len(values) > FEW else "multiclass"


def _distinct(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct values and the code of each row."""
    if y.dtype.kind != "O":
        return np.unique(y, return_inverse=True)
    # Text: sorting a few distinct values beats sorting all the rows.
    code: dict[object, int] = {}
    rows = np.array([code.setdefault(value, len(code)) for value in y.tolist()], dtype=np.int64)
    found = list(code)
    order = sorted(range(len(found)), key=lambda i: str(found[i]))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    values = np.empty(len(found), dtype=object)
    values[:] = [found[i] for i in order]
    return values, rank[rows]


def class_codes(cells: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """The number of each cell's class (text, or None for a gap); -1 for an unknown class."""
    number = {number_text(name): k for k, name in enumerate(classes)}
    listed = cells.tolist()
    code = {cell: -1 if cell is None else number.get(number_text(cell), -1) for cell in set(listed)}
    return np.array([code[cell] for cell in listed], dtype=np.int64)


def _label(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _multilabel(y: np.ndarray, kind: Kind | None, name: str, names: Sequence[str] | None) -> Target:
    if kind not in (None, "multilabel"):
        raise TacitError(f"{name} has {y.shape[1]} columns, but kind={kind!r} needs one")
    if y.shape[1] == 0:
        raise TacitError(f"{name} has no columns; pass one column of 0 and 1 for each label")
    if y.dtype.kind not in "biuf":
        raise TacitError(f"{name} has several columns, which must hold 0 and 1, but it holds text")
    missing = np.isnan(y)
    other = (y != 0) & (y != 1) & ~missing
    if other.any():
        row, column = map(int, np.argwhere(other)[0])
        which = repr(names[column]) if names else f"{column + 1}"
        raise TacitError(
            f"row {row + 1}, column {which} of {name} is {_label(y[row, column].item())}: several "
            "target columns must hold 0 and 1 only; choose one target"
        )
    unknown = missing.all(axis=0)
    if unknown.any():
        column = int(np.argmax(unknown))
        which = repr(names[column]) if names else f"{column + 1}"
        raise TacitError(f"column {which} of {name} is missing in every row; leave it out")
    if bool(((y == np.nanmax(y, axis=0)) | missing).all()):
        raise TacitError(f"{name} is the same in every row; choose another target")
    labels = tuple(names) if names else tuple(f"label{i}" for i in range(y.shape[1]))
    return Target("multilabel", y.astype(np.float64), y.shape[1], labels)
