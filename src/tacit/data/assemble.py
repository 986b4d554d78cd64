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
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.split import PartRows, SplitRule, group, leave_out_small, split
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
    schema, assumptions = about.schema, about.assumptions
    codes, names = group(tasks)
    rows, codes, names = leave_out_small(codes, names, rule, held)
    if rule.min_rows:  # said whether or not a task was left out, and never how many
        kept = f"which tasks have at least {rule.min_rows} rows is taken to be public"
        assumptions = (*assumptions, f"{kept} (the others are left out)")
    target = y.at(rows)
    said = (*target.assumptions, *preprocess.assumed_of_target(target_scale))
    parts = split(codes, names, rule, None if held is None else held[rows])

    target_scale = target_mode(target.kind, scale, target_scale)
    train = parts["train"]
    scaling, scaling_leaks = preprocess.fit_target(
        target.y[train.rows], train.offsets, target_scale
    )
    flat = x.reshape(len(x), -1)
    may_choose = scale == "auto" and x.ndim == 2
    if scale == "auto":
        scale = "task" if x.ndim == 2 else "none"
    fitted = preprocess.fit(
        _taken(flat, rows[train.rows]),
        train.offsets,
        scale,
        about.features,
        indicators=None if schema is None else schema.indicators,
        scales=None if schema is None else schema.scales,
    )

    def of(part: PartRows) -> Rows:
        values = torch.from_numpy(_taken(x, rows[part.rows]))
        return Rows(
            fitted.preprocessing.apply(values, torch.from_numpy(part.task)),
            _targets(target, part, scaling),
            torch.from_numpy(part.offsets),
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
        units=own_units(fitted, scaling, _spreads(target, train)) if may_choose else None,
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
