"""A table read by a schema that was given: no row decides anything but what becomes of itself.

| in the table                                  | becomes                                         |
|-----------------------------------------------|-------------------------------------------------|
| a task that the schema does not list          | is left out, whatever its cells hold            |
| a category that it does not list              | a gap                                           |
| a gap where it says there is none             | the task's own mean, without an indicator       |
| text in a column of numbers, an unknown class | an error that names the row                     |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.cells import Table, clean, missing, numbers, task_names, texts
from tacit.data.federation import NUMBERS
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.schema import Schema
from tacit.data.survival import survival_target
from tacit.data.targets import Target, class_codes, no_count
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.formula.design import FormulaSchema

COLUMNS = (
    "columns, types, categories, gaps, 0/1 columns, the kind of the target and its classes were "
    "given in a schema, which is taken to be public; no row was looked at to decide them"
)
TASKS = "which tasks take part was given in the schema, which is taken to be public"


def assumed(schema: Schema) -> tuple[str, ...]:
    """What to say of a schema that was given; rows have no say in it."""
    return (COLUMNS,) if schema.tasks is None else (COLUMNS, TASKS)


def check_alone(schema: Schema, roles: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """What the schema says is not said a second time, and it says all that is needed."""
    if schema.kind is None:
        raise TacitError("the schema does not say the kind of target; add it, or read it anew")
    for name, said in roles.items():
        own = (schema.task,) if name == "task" else schema.target
        if said is not None and ((said,) if isinstance(said, str) else tuple(said)) != own:
            raise TacitError(
                f"{name} is {said!r}, but {', '.join(own)} in the schema; leave {name} out"
            )
    twice = next((name for name, said in others.items() if said), None)
    if twice is not None:
        raise TacitError(f"{twice} and a schema were both given; say it in the schema alone")


def scaling(
    schema: Schema, scale: Scale, target_scale: TargetScaling
) -> tuple[Scale, TargetScaling]:
    """The ways to scale what the schema has no constants for."""
    if schema.scales and not isinstance(scale, str):
        raise TacitError("scale and the schema both have constants; give them in one place")
    if schema.target_scale is None:
        return scale, target_scale
    if target_scale != "auto":
        raise TacitError("target_scale and the schema were both given; leave target_scale out")
    return scale, schema.target_scale


def read(table: Table, schema: Schema) -> tuple[Table, Target]:
    """The rows of the tasks that take part, and their target."""
    kept = _listed(table, schema)
    return kept, target_of(kept, schema)


def _listed(table: Table, schema: Schema) -> Table:
    names = task_names(table, schema.task)
    if schema.tasks is None:
        return table
    found = set(names.tolist())
    absent = next((task for task in schema.tasks if task not in found), None)
    if absent is not None:
        raise TacitError(
            f"{table.source} has no row of task {absent!r}, which the schema lists; remove it there"
        )
    return table.only(np.flatnonzero(np.isin(names.astype(str), schema.tasks)))


def target_of(table: Table, schema: Schema | FormulaSchema) -> Target:
    """By the kind and the classes of the schema."""
    if isinstance(schema, Schema) and schema.kind == "survival":
        time, event = (numbers(table, name) for name in schema.target)
        for name, found in zip(schema.target, (time, event), strict=True):
            table.refuse_gaps(np.isnan(found), name)
        return survival_target(time, event, schema.cuts, table.where)
    if schema.kind in NUMBERS:
        name = schema.target[0]
        y = numbers(table, name)
        table.refuse_gaps(np.isnan(y), name)
        if schema.kind == "count":
            says = "is not a count, which is a whole number, 0 or more; correct the cell, or the "
            table.refuse(no_count(y), name, lambda row: f"{y[row]:g} {says}kind in the schema")
        return Target(schema.kind, y, 1, said=())
    several = schema.kind == "multilabel"
    codes = [
        _codes(table, name, own, several)
        for name, own in zip(schema.target, schema.classes, strict=True)
    ]
    if several:
        return Target("multilabel", np.stack(codes, axis=1), len(codes), schema.target, said=())
    labels = schema.classes[0]
    if schema.kind == "binary":
        return Target("binary", codes[0], 1, labels, said=())
    return Target("multiclass", codes[0].astype(np.int64), len(labels), labels, said=())


def _codes(table: Table, name: str, classes: tuple[str, ...], may_miss: bool) -> np.ndarray:
    """float64 [N], NaN where a label may be missing, and is."""
    cells = texts(clean(table.column(name), name), name)
    gaps = missing(cells)
    if not may_miss:
        table.refuse_gaps(gaps, name)
    codes = class_codes(cells, classes)
    says = f"is not a class of the schema ({', '.join(classes)}); correct the cell or the schema"
    table.refuse((codes < 0) & ~gaps, name, lambda row: f"{cells[row]!r} {says}")
    return np.where(gaps, np.nan, codes)
