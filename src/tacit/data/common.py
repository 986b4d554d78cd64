"""Rows in common units: what tasks scaled by themselves, with the constants that all agreed on.

A task's own scaling is kept as it is; going over to common units is one more affine map, made in
double precision from centre to centre. So numbers of any size and any offset keep their digits, and
no raw rows have to be kept. `RawUnits` is the way back, for coefficients of a linear model.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tacit.data.columns import gaps_of
from tacit.data.federation import PARTS, Federation, OwnUnits, Rows, TargetScale
from tacit.data.preprocess import NUMBERS_AT_ONCE, Fitted, Preprocessing, moments

NEARLY = 0.02
"""A task's own unit of a column is at least this part of its centre."""
FARTHEST = 5.0
"""Values are at most so many units from the centre: no outlier, and no unit that noise made too
small, may decide what a model says."""
ENDS = (
    f"a feature counts as at most {FARTHEST:g} units from its centre, in training and in "
    "predictions: a value farther out is moved to there"
)
ENOUGH = 6
"""Rows that a task needs to scale a column by itself."""
AGREED = "columns and target are in common units, which were found by releases of this run"
RAW, SCALED = "units of the table", "units that rows were scaled to"
OWN = "each task's own units"
INTERCEPT = "intercept"


def own_units(fitted: Fitted, target: TargetScale | None, spread: np.ndarray) -> OwnUnits | None:
    """What tasks know of their columns; `spread` is that of their targets."""
    if fitted.own is None:
        return None
    columns, centres, spreads = fitted.own
    centre, wide = centres[:, columns], spreads[:, columns]
    if target is not None:
        centre = np.column_stack([centre, target.shift.double().numpy()])
        wide = np.column_stack([wide, spread])
    return OwnUnits(tuple(columns.tolist()), torch.from_numpy(centre), torch.from_numpy(wide))


def in_own_units(federation: Federation) -> Federation:
    """The same, every task's own units made from all rows that it learns from by now.

    They were made before anybody knew that validation rows are not needed. Of few rows every one
    counts: one row has no spread, and a task's vote for a unit, or its own where votes drown, was
    that of its table. Gaps are filled and no values; they are at the new centre.
    """
    units, made, train = federation.units, federation.preprocessing, federation.train
    if units is None or made is None:
        return federation
    columns, gaps = list(units.columns), gaps_of(federation.features)
    target = federation.target_scale if len(units) > len(columns) else None
    sides = [_without(train.x, gaps, math.nan)[:, columns]]
    sides += [train.y.unsqueeze(1)] if target is not None else []
    seen = torch.cat([side.double().cpu() for side in sides], dim=1).numpy()
    mean, spread = map(torch.from_numpy, moments(seen, train.offsets.cpu().numpy()))
    never = np.logical_and.reduceat(np.isnan(seen), train.offsets[:-1].cpu().numpy(), axis=0)
    scale = made.scale[:, columns]
    if target is not None:
        scale = torch.cat([scale, target.scale.unsqueeze(1).to(scale)], dim=1)
    safe = torch.where(spread > 0, spread, 1.0)
    centre, wide = units.centre + scale * mean, scale * spread
    wide = torch.where(torch.from_numpy(never), torch.nan, wide)
    factor, offset, count = 1 / safe, -mean / safe, len(columns)
    moves = factor[:, :count], offset[:, :count]
    parts = {name: _moved(federation.part(name), columns, *moves, math.inf) for name in PARTS}
    parts = {name: replace(rows, x=_without(rows.x, gaps, 0.0)) for name, rows in parts.items()}
    shifts, scales = made.shift.double().clone(), made.scale.double().clone()
    shifts[:, columns], scales[:, columns] = centre[:, :count], (scale * safe)[:, :count]
    fill = None if made.fill is None else made.fill.clone()
    if fill is not None:
        fill[:, columns] = centre[:, :count].to(fill)
    if target is not None:
        parts = {
            name: _target_moved(rows, factor[:, count], offset[:, count])
            for name, rows in parts.items()
        }
        many = target.shift
        target = TargetScale(centre[:, count].to(many), (scale * safe)[:, count].to(many))
    return replace(
        federation,
        **parts,
        preprocessing=replace(made, shift=shifts, scale=scales, fill=fill),
        target_scale=federation.target_scale if target is None else target,
        units=replace(units, centre=centre, spread=wide),
    )


def in_common_units(
    federation: Federation, centre: Tensor, spread: Tensor, farthest: float = math.inf
) -> Federation:
    """The same rows with these constants for the columns of `federation.units` [columns].

    Where there is none (NaN), every task keeps its own. Features end at most so far from zero.
    """
    units, made = federation.units, federation.preprocessing
    assert units is not None and made is not None
    device, columns = units.centre.device, list(units.columns)
    farthest = farthest if columns else math.inf  # only the target had no unit
    centre, spread = centre.double().to(device), spread.double().to(device)
    own, unknown = torch.where(units.spread > 0, units.spread, 1.0), units.spread.isnan()
    # Few rows, or rows that are nearly alike, make wild scales: such a column is left out.
    alone = torch.maximum(own, NEARLY * units.centre.abs())
    # What is decided about the shared model is decided by what was published, never by rows.
    unknown_to_all = spread.isnan().tolist()
    lacking = tuple(k for k, none in zip((*columns, -1), unknown_to_all, strict=False) if none)
    features = torch.arange(len(units), device=device) < len(columns)
    few = (federation.train.counts < ENOUGH).to(device).unsqueeze(1)
    alone = torch.where(features & (few | (units.spread <= 0)), torch.inf, alone)
    centre = torch.where(spread.isnan(), units.centre, centre)
    spread = torch.where(spread.isnan(), alone, spread)
    factor = torch.where(unknown, 0.0, own / spread)
    offset = torch.where(unknown, 0.0, (units.centre - centre) / spread)
    if not lacking:
        centre, spread = centre[:1], spread[:1]  # all have the same: once is enough
    count = len(columns)
    parts = {
        name: _moved(federation.part(name), columns, factor[:, :count], offset[:, :count], farthest)
        for name in PARTS
    }
    shift, scale = (
        side[:1].to(device).expand(len(centre), -1).clone() for side in (made.shift, made.scale)
    )
    shift, scale = shift.double(), scale.double()
    shift[:, columns], scale[:, columns] = centre[:, :count], spread[:, :count]
    fill = None if made.fill is None else made.fill.double().to(device).clone()
    if fill is not None:  # a gap is at the task's own mean, or where everybody's is
        fill[:, columns] = torch.where(unknown[:, :count], centre[:, :count], fill[:, columns])
        fill = fill.cpu()
    limits = None
    if math.isfinite(farthest):
        limits = torch.full((shift.shape[1],), torch.inf, dtype=torch.float64)
        limits[columns] = farthest
    target = federation.target_scale
    if target is not None and len(units) > count:  # constants that were given stay
        parts = {
            name: _target_moved(rows, factor[:, count], offset[:, count])
            for name, rows in parts.items()
        }
        many = torch.ones_like(target.shift)
        target = TargetScale(many * centre[:, count].to(many), many * spread[:, count].to(many))
    return replace(
        federation,
        **parts,
        preprocessing=Preprocessing(shift.cpu(), scale.cpu(), fill, limits),
        target_scale=target,
        units=None,
        without_unit=lacking,
        own_columns=lacking,
        assumptions=(*federation.assumptions, AGREED, *ends(farthest)),
    )


def ends(farthest: float) -> tuple[str, ...]:
    """What is said where values of features end somewhere."""
    return (ENDS,) if math.isfinite(farthest) else ()


def in_original_units(federation: Federation, w: Tensor) -> Tensor:
    """Weights [.., columns + 1] of linear models (the intercept last) for rows as they were given.

    The last row is the shared model, which belongs to no task; those before it are the tasks' own.
    Constants that tasks keep to themselves are never used for the shared model: a column without a
    common unit is left out of it, and without a unit of the target there is none (NaN).
    """
    made, target = federation.preprocessing, federation.target_scale
    assert made is not None
    shift, scale = (_one_more(side.to(w), len(w)) for side in (made.shift, made.scale))
    slopes = w[:, :-1] / scale
    slopes[-1, [k for k in federation.without_unit if k >= 0]] = 0.0
    intercept = w[:, -1:] - torch.where(slopes == 0, 0.0, slopes * shift).sum(dim=1, keepdim=True)
    found = torch.cat([slopes, intercept], dim=1)
    if target is not None:
        unit, zero = (
            _one_more(side.to(w)[:, None], len(w)) for side in (target.scale, target.shift)
        )
        found = found * unit
        found[:, -1:] += zero
        if -1 in federation.without_unit:
            found[-1] = torch.nan
    return found


def _one_more(side: Tensor, rows: int) -> Tensor:
    """Constants of the tasks [rows, columns], and those of the first again, for nobody's row."""
    if len(side) == 1 or rows == 1:
        return side[:1].expand(rows, -1)
    return torch.cat([side[: rows - 1], side[:1]])


def _without(x: Tensor, gaps: dict[int, int], filled: float) -> Tensor:
    """Rows with this in the place of gaps, which columns beside them tell of."""
    x = x.clone() if gaps else x
    for column, gap in gaps.items():
        x[:, column] = torch.where(x[:, gap] > 0.5, filled, x[:, column])
    return x


def _moved(rows: Rows, columns: list[int], factor: Tensor, offset: Tensor, farthest: float) -> Rows:
    task = torch.repeat_interleave(torch.arange(len(factor), device=factor.device), rows.counts)
    x = rows.x.clone()
    span = slice(None) if columns == [*range(x.shape[1])] else columns  # a list is slow
    many = max(1, NUMBERS_AT_ONCE // max(1, x.shape[1]))
    for some, own in zip(x.split(many), task.split(many), strict=True):
        moved = factor.index_select(0, own).mul_(some[:, span])
        moved.add_(offset.index_select(0, own))
        some[:, span] = moved.clamp_(-farthest, farthest).to(x.dtype)
    return replace(rows, x=x)


def _target_moved(rows: Rows, factor: Tensor, offset: Tensor) -> Rows:
    task = torch.repeat_interleave(torch.arange(len(factor), device=factor.device), rows.counts)
    y = rows.y.double() * factor[task] + offset[task]
    return replace(rows, y=y.to(rows.y.dtype))


@dataclass(frozen=True)
class RawUnits:
    """Coefficients of a linear model in units of the table: jacobian @ (those of rows) + offset.

    Those of rows have the intercept last, as models have it; those of the table have it first. Each
    of several classes has all of them; only their differences mean something, so that those of the
    table have mean zero over the classes. An outcome over time also has a step for each interval
    but the first (`local.bayes.design`).
    """

    names: tuple[str, ...]
    jacobian: np.ndarray
    offset: np.ndarray
    unit: float
    """Of the target."""
    words: str
    spreads: np.ndarray
    """Of the columns over that of the target; 1 over it for the intercept."""
    classes: int

    @classmethod
    def of(cls, federation: Federation, size: int, classes: int = 1) -> RawUnits:
        """For rows that all tasks scaled alike; for others the coefficients stay as they are."""
        made, target, columns = federation.preprocessing, federation.target_scale, size - 1
        shift, scale, zero, unit = np.zeros(columns), np.ones(columns), 0.0, 1.0
        ends = federation.labels if federation.kind == "survival" else ()
        steps = tuple(f"from {one} to {other}" for one, other in itertools.pairwise(ends))
        seen_columns = columns - len(steps)
        sides = [] if made is None else [made.shift, made.scale]
        sides += [] if target is None else [target.shift, target.scale]
        alike = made is not None and all(bool((side == side[:1]).all()) for side in sides)
        alike = alike and not federation.own_columns
        seen = federation.representation is not None  # then columns are not those of a table
        common = alike and not federation.without_unit
        raw = made is not None and made.shift.shape[1] == seen_columns and common and not seen
        if raw:
            for side, known in zip((shift, scale), sides[:2], strict=True):
                side[:seen_columns] = known[0].double().cpu().numpy()
            zero, unit = (
                (float(side[0]) for side in sides[2:]) if target is not None else (0.0, 1.0)
            )
        words = RAW if raw else SCALED if made is None or alike else OWN
        jacobian = np.zeros((size, size))
        jacobian[0] = np.append(-unit * shift / scale, unit)
        jacobian[1:, :-1] = np.diag(unit / scale)
        known = federation.features
        if len(known) != seen_columns:
            known = tuple(f"column {k}" for k in range(seen_columns))
        offset, names = np.append(zero, np.zeros(columns)), (INTERCEPT, *known, *steps)
        spreads = 1 / np.append(unit, unit / scale)
        if classes > 1:
            labels = federation.labels or tuple(f"class {k}" for k in range(classes))
            names = tuple(f"{label}: {name}" for label in labels for name in names)
            jacobian = np.kron(np.eye(classes) - 1 / classes, jacobian)
            offset, spreads = np.tile(offset, classes), np.tile(spreads, classes)
        return cls(names, jacobian, offset, unit, words, spreads, classes)

    def coefficients(self, found: np.ndarray) -> np.ndarray:
        return self.jacobian @ found + self.offset

    def covariance(self, found: np.ndarray) -> np.ndarray:
        return self.jacobian @ found @ self.jacobian.T

    def own(self, columns: list[int]) -> tuple[np.ndarray, tuple[str, ...]]:
        """The jacobian of own effects on these columns (the intercept last), and their names."""
        rows = [0, *(column + 1 for column in columns[:-1])]
        begin = np.arange(self.classes)[:, None] * (len(self.names) // self.classes)
        rows, columns = ((begin + some).ravel().tolist() for some in (rows, columns))
        return self.jacobian[np.ix_(rows, columns)], tuple(self.names[row] for row in rows)
