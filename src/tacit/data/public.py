"""Rows that anybody may see: what is fitted on them is public too, and costs no ε.

They give common units of the columns and of the target, so that no round has to vote for these, and
the point where models begin (`engine.outset`). A run's contributions are bounded and noised as
without them: the promise is the same for every file, as long as the file is the same whoever takes
part. So no row of a protected task may be among them. That cannot be checked here; whoever gives
the rows says so, and the guarantee repeats it as an assumption.

| in the public table                 | becomes                                                    |
|-------------------------------------|------------------------------------------------------------|
| a row without a target              | is left out                                                |
| the task column, columns not needed | not used, which is said                                    |
| a category that no task has, a gap  | a gap, filled in with the public mean                      |
| a column that does not vary         | every task keeps its own unit of it                        |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.data import preprocess
from tacit.data.cells import Table, missing, task_names, texts, unlabelled
from tacit.data.common import ENOUGH, in_common_units, own_units
from tacit.data.federation import Federation, Rows
from tacit.data.given import target_of
from tacit.data.lacking import completed
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.schema import Schema
from tacit.data.targets import Target
from tacit.errors import TacitError
from tacit.words import some

UNITS, START = "common units", "where models begin"


@dataclass(frozen=True)
class PublicRows:
    """Rows of nobody's task, as models see them."""

    rows: Rows
    """As those of one task."""
    source: str
    gives_units: bool
    notes: tuple[str, ...] = ()
    """What was not used, a sentence each."""

    def to_json(self, *, start: bool = True) -> dict[str, Any]:
        """How many there are, and what was fitted on them."""
        fitted = [*([UNITS] if self.gives_units else []), *([START] if start else [])]
        count = len(self.rows.y)
        return {"source": self.source, "rows": count, "fitted": fitted, "notes": list(self.notes)}


def with_public(
    federation: Federation, table: Table, scale: Scale, target_scale: TargetScaling
) -> Federation:
    """The same tasks beside these public rows, in their units where nobody said other ones.

    `scale` and `target_scale` are how tasks scale: public rows are scaled as one more task is.
    """
    try:
        return _with_public(federation, table, scale, target_scale)
    except TacitError as error:
        raise TacitError(f"public rows: {error}") from None


def _with_public(
    federation: Federation, table: Table, scale: Scale, target_scale: TargetScaling
) -> Federation:
    schema = federation.schema
    assert isinstance(schema, Schema)
    if "pooled" in (scale, target_scale):
        raise TacitError("they give common units already, so leave 'pooled' out of the scaling")
    for column in schema.columns:
        table.column(column.name)
    kept = table.only(
        np.flatnonzero(~unlabelled(table, schema.target, schema.kind == "multilabel"))
    )
    if kept.rows < ENOUGH:
        raise TacitError(
            f"{table.source} has {kept.rows} rows with a target, and at least {ENOUGH} are needed; "
            "give more, or none"
        )
    whole, new = completed(schema, kept)
    _check_categories(whole, schema)
    x, target = schema.matrix(whole)[0], target_of(whole, schema)
    _check_varies(target)
    # Whatever order they came in, sums over them are the same to the last bit.
    order = np.lexsort(np.column_stack([x, target.y.reshape(len(x), -1)]).T)
    x, target, offsets = x[order], target.at(order), np.array([0, len(x)])
    fitted = preprocess.fit(
        x, offsets, scale, schema.features, indicators=schema.indicators, scales=schema.scales
    )
    scaling, _ = preprocess.fit_target(target.y, offsets, target_scale)
    y = torch.from_numpy(target.y)
    if scaling is not None:
        y = (y - scaling.shift) / scaling.scale
    y = y if target.kind == "multiclass" else y.float()
    notes = (*_unused(federation, table, schema), *([new] if new else []))
    rows = Rows(fitted.preprocessing.apply(x, 0), y, torch.from_numpy(offsets))
    public = PublicRows(rows, table.source, federation.units is not None, notes)
    made = federation
    if federation.units is not None:
        own = scaling if target_scale == "task" else None  # constants that were given stay
        units = own_units(fitted, own, np.zeros(0) if own is None else own.scale.numpy())
        assert units is not None
        wide = torch.where(units.spread[0] > 0, units.spread[0], torch.nan)
        made = in_common_units(federation, units.centre[0], wide)
    said = (
        f"{len(x)} rows of {table.source} are taken to be public, and none of them to be a row of "
        f"a task: what is fitted on them ({', '.join(public.to_json()['fitted'])}) costs no ε"
    )
    return replace(made, public=public, assumptions=(*federation.assumptions, said))


def _check_categories(table: Table, schema: Schema) -> None:
    """A column whose categories nobody has was written in another way, or is another column."""
    for column in schema.columns:
        if column.categories is None:
            continue
        found = {cell for cell in texts(table[column.name], column.name).tolist() if cell}
        if found and not found & set(column.categories):
            raise TacitError(
                f"column {column.name!r} has {some(map(repr, sorted(found)))}, but tasks have "
                f"{some(map(repr, column.categories))}; write the same categories"
            )


def _check_varies(target: Target) -> None:
    columns = target.y.reshape(len(target.y), -1).T
    if not any(len(np.unique(column[~np.isnan(column)])) > 1 for column in columns):
        raise TacitError(
            "their target is the same in every row, which tells nothing; add other rows"
        )


def _unused(federation: Federation, table: Table, schema: Schema) -> tuple[str, ...]:
    """What of the table has no part in anything."""
    needed = {*schema.target, *(column.name for column in schema.columns)}
    others = [name for name in table if name not in needed]
    notes = () if not others else (f"columns that are not used: {', '.join(others)}",)
    if schema.task in table:
        cells = texts(table[schema.task], schema.task)
        filled = table.only(np.flatnonzero(~missing(cells)))
        names = set(task_names(filled, schema.task).tolist()) if filled.rows else set()
        both = sorted(names & set(federation.names))
        if both:
            notes += (
                f"make sure that nothing is of a task that it names: {some(map(repr, both))}",
            )
    return notes
