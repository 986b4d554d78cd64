"""The one way from rows in memory to a Federation; every source ends here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.data import preprocess
from tacit.data.common import own_units
from tacit.data.federation import Federation, Kind, Rows, TargetScale
from tacit.data.persons import DEALT, Owners, Unscaled, fit_publicly
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.split import PartRows, SplitRule, apart, by_name, group, leave_out_small, split
from tacit.data.targets import RawTarget, Target

if TYPE_CHECKING:
    from tacit.data.schema import Schema


@dataclass(frozen=True, kw_only=True)
class About:
    """What a source says of its rows."""

    source: str
    features: Sequence[str] = ()
    schema: Schema | None = None
    assumptions: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    owners: Owners | None = None
    """Whose rows they are, where persons are protected."""


def assemble(
    x: np.ndarray,
    y: Target | RawTarget,
    tasks: np.ndarray,
    about: About,
    *,
    rule: SplitRule,
    scale: Scale = "none",
    target_scale: TargetScaling = "none",
    held: np.ndarray | None = None,
) -> Federation:
    """From checked arrays: x [N, ...] of numbers with NaN for gaps, tasks without gaps.

    Only where it is multilabel or segmentation has `y` gaps (NaN, or -1 for pixels). `held` marks
    the rows of a test part that the publishers chose. What `about` assumes and leaks is kept, and
    added to: always in the same words, whatever the rows hold.
    """
    schema, assumptions, owners = about.schema, about.assumptions, about.owners
    codes, names = group(tasks)
    if owners is not None:  # a person who leaves may have had the first row of a task
        codes, names = by_name(codes, names)
    rows, codes, names = leave_out_small(codes, names, rule, held)
    if rule.min_rows:  # said whether or not a task was left out, and never how many
        kept = f"which tasks have at least {rule.min_rows} rows is taken to be public"
        assumptions = (*assumptions, f"{kept} (the others are left out)")
    target = y.at(rows)
    said = (*target.assumptions, *preprocess.assumed_of_target(target_scale))
    persons = None
    if owners is not None:
        assert held is None
        persons = owners.at(rows, codes)
        parts, assumptions = apart(codes, names, rule, persons), (*assumptions, DEALT)
        raw = isinstance(target_scale, str) and target.kind == "regression"
        target_scale = "none" if isinstance(target_scale, str) else target_scale
    else:
        parts, raw = split(codes, names, rule, None if held is None else held[rows]), False
        target_scale = target_mode(target.kind, scale, target_scale)
    train = parts["train"]
    scaling, scaling_leaks = preprocess.fit_target(
        target.y[train.rows], train.offsets, target_scale
    )
    flat = x.reshape(len(x), -1)
    may_choose = scale == "auto" and x.ndim == 2
    if scale == "auto" and (x.ndim > 2 or owners is None):
        scale = "task" if x.ndim == 2 else "none"
    indicators = None if schema is None else schema.indicators
    constants = None if schema is None else schema.scales
    unscaled: tuple[int, ...] = ()
    if owners is not None:
        fitted, unscaled = fit_publicly(flat.shape[1], scale, about.features, indicators, constants)
        unscaled += (-1,) if raw else ()
    else:
        some = _taken(flat, rows[train.rows])
        fitted = preprocess.fit(
            some, train.offsets, scale, about.features, indicators=indicators, scales=constants
        )

    own = () if fitted.own is None else tuple(fitted.own[0].tolist())
    tasks_own = scaling if target_scale == "task" else None  # constants that were given stay
    own += () if tasks_own is None else (-1,)

    def of(part: PartRows) -> Rows:
        values = torch.from_numpy(_taken(x, rows[part.rows]))
        seen = fitted.preprocessing.apply(values, torch.from_numpy(part.task))
        for column in unscaled:  # where the centre will be is not known yet
            if column >= 0:
                seen[:, column] = torch.where(values[:, column].isnan(), torch.nan, seen[:, column])
        return Rows(
            seen,
            _targets(target, part, scaling),
            torch.from_numpy(part.offsets),
            None if persons is None else torch.from_numpy(persons[part.rows]),
        )

    return Federation(
        names=names,
        kind=target.kind,
        outputs=target.outputs,
        train=of(train),
        validation=of(parts["validation"]),
        test=of(parts["test"]),
        features=tuple(about.features) if x.ndim == 2 else (),
        labels=target.labels,
        target_scale=scaling,
        assumptions=(*assumptions, *said, *fitted.assumptions),
        leaks=(*about.leaks, *fitted.leaks, *scaling_leaks),
        source=about.source,
        preprocessing=fitted.preprocessing,
        schema=schema,
        units=own_units(fitted, tasks_own, _spreads(target, train)) if may_choose else None,
        unscaled=Unscaled(unscaled) if unscaled else None,
        own_columns=own,
    )


def _taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """These rows of x: x itself where they are all of them, in their order."""
    return x if np.array_equal(rows, np.arange(len(x))) else x[rows]


def _spreads(target: Target, train: PartRows) -> np.ndarray:
    """The standard deviation of each task's own targets; nothing where they are not scaled."""
    if target.kind != "regression":
        return np.zeros(0)
    return preprocess.moments(target.y[train.rows][:, None], train.offsets)[1][:, 0]


def target_mode(kind: Kind, scale: Scale, target_scale: TargetScaling) -> TargetScaling:
    """Only regression targets are scaled; by default in the way the features are."""
    preprocess.check_scale(scale)
    preprocess.check_scale(target_scale, "target_scale")
    if kind != "regression":
        return "none"
    if target_scale != "auto":
        return target_scale
    if scale == "none":
        return "none"
    return "pooled" if scale == "pooled" else "task"


def _targets(target: Target, part: PartRows, scaling: TargetScale | None) -> torch.Tensor:
    y = torch.from_numpy(target.y[part.rows])
    if scaling is not None:
        task = torch.from_numpy(part.task)
        y = (y - scaling.shift.double()[task]) / scaling.scale.double()[task]
    return y if target.kind in ("multiclass", "segmentation") else y.float()
