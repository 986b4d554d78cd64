"""Scaling and filling in, done by each task for itself from its own training rows.

Inside one task this is free. One mean over all tasks (`scale="pooled"`) tells every task something
about the others without noise; it is offered, and goes into `Federation.leaks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.checks import near
from tacit.data.federation import TargetScale
from tacit.errors import TacitError

Scale = Literal["auto", "task", "pooled", "none"] | Mapping[str, Any] | Sequence[Any]
"""How features are scaled: a mode, {column: (mean, sd)}, or (means, sds); constants are public."""

TargetScaling = Literal["auto", "task", "pooled", "none"] | tuple[float, float]

MODES = ("auto", "task", "pooled", "none")
TWO_VALUES = "which columns hold only two codes, like 1 and 2, and these, is taken to be public"
LARGEST_CODE = 9
"""Two larger numbers, or fractions, may be what one person has measured, and nobody's to tell."""
CONSTANTS = "the constants that features were scaled with were given, and are taken to be public"
TARGET_CONSTANTS = "constants given to scale a regression target are taken to be public"
POOLED = "features were scaled with means over all tasks' training rows, without noise"
COLUMNS_AT_ONCE, ROWS_AT_ONCE = 8, 1 << 14
"""Bound the double-precision copies that are made while fitting."""
NUMBERS_AT_ONCE = 1 << 14
"""… and while scaling: near the cache, and too few for threads to wait for each other."""


@dataclass(frozen=True)
class Preprocessing:
    """`(x - shift) / scale` with the row of `shift` and `scale` that belongs to the task.

    In double precision where there is something to scale: a column may lie far from zero.

    `shift` and `scale` are [m, p], or [1, p] where all tasks use the same. Missing values (NaN)
    become `fill`, or `shift` where there is no `fill`, before scaling. What would end farther from
    zero than `farthest` [p] ends there.
    """

    shift: Tensor
    scale: Tensor
    fill: Tensor | None = None
    farthest: Tensor | None = None

    def apply(self, x: np.ndarray | Tensor, task: np.ndarray | Tensor | int) -> Tensor:
        """Raw rows [n, ...] of the tasks with numbers `task` [n] (or one number for all)."""
        raw = torch.as_tensor(x)
        columns = self.shift.shape[1]
        if math.prod(raw.shape[1:]) != columns or raw.ndim < 2:
            raise TacitError(
                f"the rows have shape {tuple(raw.shape)}, but training had {columns} features; "
                "give the same columns"
            )
        flat = raw.reshape(len(raw), columns)
        numbers = torch.as_tensor(task, dtype=torch.int64).expand(len(raw))
        found = torch.empty(flat.shape)
        many = max(1, NUMBERS_AT_ONCE // max(1, columns))
        sides = (side.split(many) for side in (found, flat, numbers))
        for into, some, of in zip(*sides, strict=True):
            into.copy_(self._scaled(some, of))
        return found.reshape(raw.shape)

    def _scaled(self, flat: Tensor, task: Tensor) -> Tensor:
        shift, gaps = _of_rows(self.shift, task), flat.isnan()
        if bool(gaps.any()):
            flat = torch.where(
                gaps, shift if self.fill is None else _of_rows(self.fill, task), flat
            )
        found = (flat - shift).div_(_of_rows(self.scale, task))
        return found if self.farthest is None else found.clamp_(-self.farthest, self.farthest)

    def within(self, x: np.ndarray, task: np.ndarray) -> np.ndarray:
        """Raw rows [n, p] as a linear model in their own units has to see them."""
        if self.farthest is None:
            return x
        last = np.minimum(task, len(self.shift) - 1)  # somebody new has what all have
        shift, scale = self.shift.numpy()[last], self.scale.numpy()[last]
        far = np.where(np.isfinite(self.farthest.numpy()), self.farthest.numpy() * scale, np.inf)
        return np.clip(x, shift - far, shift + far)

    def to_tensors(self) -> dict[str, Tensor]:
        """For safetensors; `from_tensors` turns it back."""
        sides = {name: getattr(self, name) for name in ("shift", "scale", "fill", "farthest")}
        return {name: side for name, side in sides.items() if side is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Preprocessing:
        if "shift" not in tensors or "scale" not in tensors:
            raise TacitError(
                f"saved scaling has {sorted(tensors)}, expected 'shift' and 'scale'; the file is "
                "not one that tacit wrote, or is damaged"
            )
        sides = (tensors.get(name) for name in ("fill", "farthest"))
        return cls(tensors["shift"], tensors["scale"], *sides)


def _of_rows(per_task: Tensor, task: Tensor) -> Tensor:
    return per_task if len(per_task) == 1 else per_task.index_select(0, task)


@dataclass(frozen=True)
class Fitted:
    """Preprocessing and what must be said about it."""

    preprocessing: Preprocessing
    assumptions: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    own: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """Columns that tasks scaled by themselves, their centres [m, p] and spreads (NaN: no value)."""


def fit(
    x: np.ndarray,
    offsets: np.ndarray,
    scale: Scale,
    names: Sequence[str],
    *,
    indicators: np.ndarray | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> Fitted:
    """Fit on training rows x [n, p], sorted by task (NaN: missing); every task has some.

    A table's schema knows its `indicators`, the columns of 0 and 1, and the constants (`scales`)
    of single columns, whatever the mode. Without `indicators` rows tell, and it is said so.
    """
    check_scale(scale)
    if not isinstance(scale, str):
        mean, sd = _constants(scale, names)
        return Fitted(_preprocessing(mean, sd), assumptions=(CONSTANTS,))
    # Arrays have no gaps; a table is filled in whether or not there are any, because a gap of one
    # task must not change what becomes of a gap of another.
    missing = np.isnan(x)
    gaps = indicators is not None or bool(missing.any())
    said, leaks, fill, own = (), (), None, None
    if scale == "none":
        shift, spread = np.zeros((1, x.shape[1])), np.ones((1, x.shape[1]))
        fill = moments(x, offsets)[0] if gaps else None
    else:
        pooled = scale == "pooled"
        leaks = (POOLED,) if pooled else ()
        shift, sd = moments(x, np.array([0, len(x)]) if pooled else offsets)
        spread, fill = _safe(sd), shift if gaps else None
        low, wide = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if indicators is None:
            (indicators, low, wide), said = two_valued(x), (TWO_VALUES,)
        # Scaled inside a task, the same answer would get another number in every task.
        if not pooled:
            never = np.logical_and.reduceat(missing, offsets[:-1], axis=0) if gaps else False
            known = np.isin(names, list(scales or {}))
            own = (np.flatnonzero(~indicators & ~known), shift, np.where(never, np.nan, sd))
        shift, spread = np.where(indicators, low, shift), np.where(indicators, wide, spread)
    for name, pair in (scales or {}).items():
        place = list(names).index(name)
        shift[:, place], spread[:, place] = pair
        if fill is not None and scale != "pooled":  # without any value a task has no mean
            never = np.logical_and.reduceat(np.isnan(x[:, place]), offsets[:-1])
            fill[:, place] = np.where(never, pair[0], fill[:, place])
        said = (CONSTANTS,)
    kind = np.float32 if scale == "none" else np.float64  # images are not scaled, and large
    return Fitted(_preprocessing(shift, spread, fill, kind), said, leaks, own)


def _preprocessing(
    shift: np.ndarray,
    scale: np.ndarray,
    fill: np.ndarray | None = None,
    kind: type[np.floating] = np.float64,
) -> Preprocessing:
    sides = (shift, scale) if fill is None else (shift, scale, fill)
    return Preprocessing(*(torch.from_numpy(side.astype(kind)) for side in sides))


def check_scale(scale: Any, name: str = "scale") -> None:
    if isinstance(scale, str) and scale not in MODES:
        raise TacitError(
            f"{name} is {scale!r}, expected one of: {', '.join(MODES)}, or public constants"
        )
    if not isinstance(scale, (str, Mapping, Sequence)):
        raise TacitError(
            f"{name} is a {type(scale).__name__}, expected one of: {', '.join(MODES)}, or public "
            "constants"
        )


def _constants(scale: Any, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Public constants as two [1, p] arrays; columns a mapping does not name stay as they are."""
    if isinstance(scale, Mapping):
        pairs = {name: (0.0, 1.0) for name in names}
        for name, pair in scale.items():
            if name not in pairs:
                raise TacitError(f"scale names {name!r}, which is not a feature{near(name, names)}")
            pairs[name] = pair
        scale = tuple(pairs.values())
        try:
            scale = (tuple(pair[0] for pair in scale), tuple(pair[1] for pair in scale))
        except (TypeError, IndexError):
            scale = ()
    try:
        shift, spread = (np.array(side, dtype=np.float64).reshape(1, -1) for side in scale)
    except (TypeError, ValueError):
        raise TacitError(
            "scale must be {column: (mean, standard deviation)} or two lists (means, standard "
            "deviations)"
        ) from None
    if shift.shape[1] != len(names) or spread.shape[1] != len(names):
        raise TacitError(
            f"scale has {shift.shape[1]} means and {spread.shape[1]} standard deviations, expected "
            f"{len(names)} of each, one per feature"
        )
    if not (np.isfinite(shift).all() and np.isfinite(spread).all() and (spread > 0).all()):
        raise TacitError(
            "scale must hold finite means and standard deviations above 0; use 1 for a column "
            "that should not be scaled"
        )
    return shift, spread


def two_valued(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns with nothing but two codes and gaps, the lower code and how far the other is.

    Codes are small whole numbers. Columns of 0 and 1 may have only one of them. For columns of
    anything else: 0 and 1.
    """
    found = np.ones(x.shape[1], dtype=bool)
    ends = np.full((2, x.shape[1]), np.nan)
    for start in range(0, len(x), ROWS_AT_ONCE):
        block, before = x[start : start + ROWS_AT_ONCE, found], ends[:, found]
        low = np.fmin(before[0], np.fmin.reduce(block, axis=0))
        high = np.fmax(before[1], np.fmax.reduce(block, axis=0))
        seen = np.concatenate([block, before])
        ends[:, found] = low, high
        found[found] = ((seen == low) | (seen == high) | np.isnan(seen)).all(axis=0)
        if not found.any():  # most tables say so in their first rows
            break
    (low, high), none = ends, np.isnan(ends[0])
    zero_one = found & (none | ((low == 0) | (low == 1)) & ((high == 0) | (high == 1)))
    code = (np.abs(ends) <= LARGEST_CODE) & (ends == np.round(ends))
    found &= zero_one | code.all(axis=0) & (high > low)
    return found, np.where(found & ~zero_one, low, 0.0), np.where(found & ~zero_one, high - low, 1)


def moments(x: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and plain standard deviation of each task and column, gaps left out.

    Nothing but gaps: mean 0, deviation 0. A constant column: its value, deviation exactly 0.
    """
    mean = np.zeros((len(offsets) - 1, x.shape[1]))
    sd = np.zeros_like(mean)
    # A few whole tasks at a time: what is made on the way stays near the cache.
    ends = np.searchsorted(offsets, np.arange(ROWS_AT_ONCE, offsets[-1], ROWS_AT_ONCE))
    tasks = np.unique([0, *ends, len(offsets) - 1])
    for begin, end in pairwise(tasks.tolist()):
        some, block = offsets[begin : end + 1], x[offsets[begin] : offsets[end]]
        for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
            span = slice(first, first + COLUMNS_AT_ONCE)
            found = _moments(block[:, span].astype(np.float64), some - some[0])
            mean[begin:end, span], sd[begin:end, span] = found
    return mean, sd


def _moments(block: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts, counts = offsets[:-1], np.diff(offsets)
    present = ~np.isnan(block)
    count = np.maximum(np.add.reduceat(present, starts, axis=0, dtype=np.float64), 1.0)
    centre = np.add.reduceat(np.where(present, block, 0.0), starts, axis=0) / count
    away = np.where(present, block - np.repeat(centre, counts, axis=0), 0.0)
    spread = np.sqrt(np.add.reduceat(away**2, starts, axis=0) / count)
    # Rounding must not turn a constant column into one with a tiny deviation.
    low = np.fmin.reduceat(block, starts, axis=0)
    constant = low == np.fmax.reduceat(block, starts, axis=0)
    return np.where(constant, low, centre), np.where(constant, 0.0, spread)


def _safe(sd: np.ndarray) -> np.ndarray:
    return np.where(sd > 1e-30, sd, 1.0)


def fit_target(
    y: np.ndarray, offsets: np.ndarray, mode: TargetScaling
) -> tuple[TargetScale | None, tuple[str, ...]]:
    """The scaling of a regression target from training rows, and what it leaks."""
    if mode == "none":
        return None, ()
    tasks = len(offsets) - 1
    leaks: tuple[str, ...] = ()
    if mode in ("task", "auto"):
        mean, sd = moments(y[:, None], offsets)
    elif mode == "pooled":
        mean, sd = moments(y[:, None], np.array([0, len(y)]))
        leaks = ("the target was scaled with a mean over all tasks' training rows, without noise",)
    else:
        try:
            mean, sd = (np.array([[float(value)]]) for value in mode)
        except (TypeError, ValueError):
            raise TacitError(
                f"target_scale is {mode!r}, expected 'task', 'pooled', 'none' or (mean, standard "
                "deviation)"
            ) from None
        if not (np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0).all()):
            raise TacitError(f"target_scale is {mode!r}, expected a deviation above 0")
    shift, scale = (
        torch.from_numpy(np.broadcast_to(side[:, 0], (tasks,)).astype(np.float64))
        for side in (mean, _safe(sd))
    )
    return TargetScale(shift, scale), leaks


def assumed_of_target(mode: TargetScaling) -> tuple[str, ...]:
    """By what was asked for, whether or not rows then told that the target is for regression."""
    return () if isinstance(mode, str) else (TARGET_CONSTANTS,)
