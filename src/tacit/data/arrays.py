"""A federation from arrays: features, targets, and the task of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tacit.data.assemble import About, assemble
from tacit.data.cells import is_gap
from tacit.data.federation import Federation, Kind
from tacit.data.persons import owners_of
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.split import SplitRule
from tacit.data.survival import check_cuts, survival_target, with_events
from tacit.data.targets import RawTarget, check_kind
from tacit.errors import TacitError


def from_arrays(
    x: Any,
    y: Any,
    tasks: Any,
    *,
    kind: Kind | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    split_seed: int = 0,
    min_rows: int = 0,
    scale: Scale = "auto",
    target_scale: TargetScaling = "auto",
    features: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    persons: Any = None,
    cuts: Sequence[float] | None = None,
    source: str = "arrays in memory",
) -> Federation:
    """A federation from arrays or tensors.

    Parameters
    ----------
    x : [N, p] numbers, or [N, ...] for images and the like.
    y : [N] targets, or [N, labels] of 0 and 1; see `tacit.data.targets` for the kinds. With
        kind="multilabel" it may hold NaN where a label is missing; it then counts nowhere. With
        kind="survival" it is [N, 2]: times, and 1 where the event came then or 0 where it did not.
    tasks : [N] text, numbers or anything hashable; tasks are kept in order of first appearance.
    kind : what to learn, where it should not be inferred from `y`.
    validation, test : share of each task's rows; at least one row each, none where 0 is passed.
    split_seed : seed of the shuffle that splits each task's rows.
    min_rows : leave out tasks with fewer rows.
    scale : "task" (each by its own training rows), "none", "pooled" (a leak, and recorded as one)
        or public constants; "auto" is "task" for tables of numbers and "none" for images.
    target_scale : the same for a regression target; "auto" does what `scale` does, inside the
        task where `scale` is constants.
    features, labels : names of the columns of `x`, and of `y` where it has several.
    persons : [N], whose row each is, where persons are to be protected (unit="person"); True where
        every row is one (unit="row"). Then columns are scaled by constants, or privately by a run.
    cuts : the ends of the intervals of an outcome over time, see `from_table`.
    """
    rule = SplitRule(validation, test, split_seed, min_rows)
    check_kind(kind)
    x, y = _array(x, "x"), _array(y, "y")
    names = task_array(tasks)
    if not len(x):
        raise TacitError("x has no rows; pass at least three rows for each of two tasks")
    if not len(x) == len(y) == len(names):
        raise TacitError(
            f"x has {len(x)} rows, y has {len(y)} and tasks has {len(names)}; they must be equal"
        )
    if x.ndim < 2:
        raise TacitError(
            "x has one dimension, expected rows and columns; pass x.reshape(-1, 1) for one feature"
        )
    if x[0].size < 1:
        raise TacitError(f"x has shape {x.shape}, so there are no features; pass at least one")
    columns = _feature_names(x, features)
    if y.ndim > 2:
        raise TacitError(
            f"y has shape {y.shape}, expected [rows] or [rows, labels]; for images of classes use "
            "tacit.data.from_masks"
        )
    if cuts is not None and kind != "survival":
        raise TacitError("cuts are ends of intervals of time: pass kind='survival' too, or none")
    if labels is not None and (y.ndim != 2 or y.shape[1] != len(labels)):
        raise TacitError(f"labels has {len(labels)} names, but y has shape {y.shape}")
    checked = _check_target(y, missing=kind == "multilabel" and y.ndim == 2)
    target = RawTarget(checked, kind, names=labels)
    if kind == "survival" and checked.shape[1:] == (2,) and checked.dtype.kind in "biuf":
        time, event = checked.astype(np.float64).T
        target = with_events(survival_target(time, event, check_cuts(cuts)))
    numbers = _numbers(x, columns)
    if persons is not None and persons is not True and len(persons) != len(x):
        raise TacitError(f"persons has {len(persons)} entries for {len(x)} rows; give one each")
    return assemble(
        numbers,
        target,
        names,
        About(source=source, features=columns, owners=owners_of(persons, numbers, checked)),
        rule=rule,
        scale=scale,
        target_scale=target_scale,
    )


def _array(values: Any, name: str) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise TacitError(f"{name} has rows of different lengths; make them equal") from None
    if array.ndim == 0:
        raise TacitError(f"{name} is a single {type(values).__name__}, expected an array of rows")
    return array


def pixels(x: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Images as float32 without gaps, and a name for each of their values."""
    array = _array(x, "x")
    if not len(array):
        raise TacitError("x has no rows; pass at least three images for each of two tasks")
    names = _feature_names(array, None)
    return _numbers(array, names), names


def task_array(tasks: Any) -> np.ndarray:
    """The task of each row, [N]; a gap is an error that names the row."""
    if isinstance(tasks, torch.Tensor):
        tasks = tasks.detach().cpu().numpy()
    array: np.ndarray
    if isinstance(tasks, (list, tuple)) and any(isinstance(t, (tuple, str)) for t in tasks):
        # numpy would make a table of tuples, and text of numbers beside text.
        array = np.empty(len(tasks), dtype=object)
        array[:] = list(tasks)
    else:
        array = np.asarray(tasks)
    if array.ndim == 2 and array.size == len(array):
        array = array.reshape(-1)  # a column
    if array.ndim != 1:
        raise TacitError(
            f"tasks has {array.ndim} dimensions, expected one task name or number for each row"
        )
    gaps = _gaps(array)
    if gaps.any():
        raise TacitError(
            f"row {int(np.argmax(gaps)) + 1} has no task; give it one or remove the row"
        )
    return array


def _gaps(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return ~np.isfinite(array)
    if array.dtype.kind != "O":
        return np.zeros(array.shape, dtype=bool)
    return np.array([is_gap(v) for v in array.flat], dtype=bool).reshape(array.shape)


def _feature_names(x: np.ndarray, features: Sequence[str] | None) -> tuple[str, ...]:
    count = x[0].size
    if features is None:
        return tuple(f"x{i}" for i in range(count))
    if len(features) != count:
        raise TacitError(f"features has {len(features)} names, but x has {count} columns")
    return tuple(str(name) for name in features)


def _numbers(x: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Without gaps or infinities; in double precision where tables have it, else in single."""
    try:
        if x.dtype.kind not in "biufO":
            raise ValueError
        with np.errstate(over="ignore"):
            small = x.astype(np.float32)
    except (TypeError, ValueError):
        raise TacitError(
            f"x holds {x.dtype.name} values, expected numbers; use from_table for text columns"
        ) from None
    bad = ~np.isfinite(small.reshape(len(x), -1))
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        value = x.reshape(len(x), -1)[row, column]
        raise TacitError(
            f"row {row + 1}, column {columns[column]!r} of x is {value}, expected a finite number; "
            "correct it, or fill it in"
        )
    return x.astype(np.float64) if x.ndim == 2 and x.dtype.itemsize > 4 else small


def _check_target(y: np.ndarray, missing: bool) -> np.ndarray:
    """Numbers, bools, or text as objects; no gaps, but NaN where labels may be missing."""
    if y.dtype.kind not in "biufUO":
        raise TacitError(f"y holds {y.dtype.name} values, expected numbers or text")
    if y.dtype.kind == "O" and all(_is_number(v) for v in y.flat):
        y = y.astype(np.float64)
    elif y.dtype.kind == "U":
        y = y.astype(object)
    if y.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(y.astype(np.float32))
        if missing and y.dtype.kind == "f":
            bad &= ~np.isnan(y)
    else:
        bad = _gaps(y)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise TacitError(
            f"row {where[0] + 1} of y is {y[where]}, expected a value; correct it or remove the row"
        )
    return y


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
