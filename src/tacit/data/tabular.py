"""Tables with one row per example and a column that says which task it belongs to."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.data import given
from tacit.data.assemble import About, assemble, target_mode
from tacit.data.cells import (
    Table,
    clean,
    missing,
    numeric_or_none,
    task_names,
    text_of,
    unlabelled,
)
from tacit.data.federation import Federation, Kind
from tacit.data.persons import owners_of
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.public import with_public
from tacit.data.reading import as_table
from tacit.data.schema import PUBLIC, Schema, naming_rows, read_schema
from tacit.data.split import SplitRule
from tacit.data.survival import check_cuts, check_roles, with_events
from tacit.data.targets import RawTarget, Target, check_kind, encode
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.formula.design import FormulaSchema

LABELLED = (
    "which tasks have a row with a target is taken to be public (rows without one are left out)"
)
"""Said whether or not a row was left out, and never how many: that is a task's own matter."""
LEFT_OUT = ", or leave such rows out: drop_unlabelled=True (--drop-unlabelled)"


def from_table(
    table: Any,
    *,
    task: str | None = None,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop_unlabelled: bool = False,
    kind: Kind | None = None,
    event: str | None = None,
    cuts: Sequence[float] | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    split_seed: int = 0,
    min_rows: int = 0,
    scale: Scale = "auto",
    target_scale: TargetScaling = "auto",
    schema: Schema | str | Path | None = None,
    person: str | Literal[True] | None = None,
    public: Any = None,
    encoding: str | None = None,
    decimal: str | None = None,
    source: str | None = None,
) -> Federation:
    """A federation from a file, a DataFrame or a mapping of columns.

    Parameters
    ----------
    table : path of a .csv, .csv.gz, .tsv, .parquet or .xlsx file; a pandas or polars DataFrame; a
        mapping.
    task : the column that names the task of each row.
    target : the column to predict, or several columns with two values each (multilabel; cells may
        be empty where `kind="multilabel"` is said).
    event : for an outcome over time (kind="survival"): the column of 0 and 1 that says whether the
        event came at the time in the target, or the row was seen until then.
    cuts : the ends of the intervals that this time is cut into, public numbers; by default 1, 2, 5,
        10, 20, 50 and so on up to 10 000.
    features, drop : columns to use, or columns not to use; by default all others are used.
    categorical : columns of numbers that are really categories.
    drop_unlabelled : leave out rows without a target. Each row is judged by itself, so nothing but
        the tasks that have no row left is told to others. Without it such a row is an error.
    schema : what is otherwise decided by looking at all rows, as public constants: a `Schema`, or
        the path of the file that `tacit data --write-schema` wrote and people corrected. It says
        the columns, the target with its kind, and which tasks take part; leave those out here.
    person : the column that says whose row each is, where persons are to be protected inside their
        tasks (`Privacy(unit="person")`), or True where every row is one (unit="row"). Columns are
        then scaled by constants of the schema, or privately by a run.
    public : a table of rows that anybody may see, with the same columns and the target, and
        none of a task that is to be protected. What is fitted on it (common units, where models
        begin) costs no ε. It needs no task column.
    encoding, decimal : of text in the tables, see `read_table`.

    The others are those of `tacit.data.from_arrays`. In `scale`, constants are given for matrix
    columns (`Federation.features`).
    """
    rule = SplitRule(validation, test, split_seed, min_rows)
    check_kind(kind)
    columns = as_table(table, encoding, decimal)
    beside = None if public is None else as_table(public, encoding, decimal)
    if isinstance(person, str):
        columns.column(person)
        drop = [*drop, *(() if features is not None else (person,))]
    if person is not None and public is not None:
        raise TacitError("public rows are not yet for persons: leave public or person out")
    if schema is None:
        check_roles(kind, target, event, cuts)
        if event is not None and isinstance(target, str):
            target, kind = [target, event], "survival"
        if drop_unlabelled and target is not None:
            names = [target] if isinstance(target, str) else target
            columns = _labelled(columns, names, kind == "multilabel")
        known, y = _decide(columns, task, target, features, drop, categorical, kind, cuts)
        said = (PUBLIC,)
    else:
        known = schema if isinstance(schema, Schema) else read_schema(schema)
        said = given.assumed(known)
        if drop_unlabelled:
            columns = _labelled(columns, known.target, known.kind == "multilabel")
        scale, target_scale = given.scaling(known, scale, target_scale)
        roles = {"task": task, "target": target}
        others = {"features": features, "categorical": categorical, "kind": kind}
        others["drop"] = [name for name in drop if name != person]
        others |= {"event": event, "cuts": cuts}
        given.check_alone(known, roles, others)
        columns, y = given.read(columns, known)
    x, matrix_names = known.matrix(columns)
    cells = y.y if isinstance(y, Target) else y
    whose = columns.column(person) if isinstance(person, str) else person
    several = len(known.target) > 1
    name, labels = f"column {known.target[0]!r}", None
    if several:
        name, labels = "the target", known.target
    made = assemble(
        x,
        y if isinstance(y, Target) else RawTarget(y, kind, name, labels),
        task_names(columns, known.task),
        About(
            source=source or columns.source,
            features=matrix_names,
            schema=known,
            assumptions=(*said, LABELLED) if drop_unlabelled else said,
            owners=owners_of(whose, x, cells),
        ),
        rule=rule,
        scale=scale,
        target_scale=target_scale,
    )
    if known.kind is None:
        classes = known.classes if several else (made.labels,) if made.labels else ()
        made = replace(made, schema=replace(known, kind=made.kind, classes=classes))
    made = replace(made, naming=naming_rows(columns, known))
    if beside is None:
        return made
    target_scale = target_mode(made.kind, scale, target_scale)
    return with_public(made, beside, "task" if scale == "auto" else scale, target_scale)


def _labelled(table: Table, targets: Sequence[str], may_miss: bool) -> Table:
    """The rows that have a target; the others decide nothing, not even which categories exist."""
    kept = table.only(np.flatnonzero(~unlabelled(table, targets, may_miss)))
    if not kept.rows:
        raise TacitError(f"no row of {table.source} has a target in {', '.join(targets)}")
    return kept


def _decide(
    table: Table,
    task: str | None,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    kind: Kind | None,
    cuts: Sequence[float] | None,
) -> tuple[Schema, np.ndarray | Target]:
    """What rows of all tasks tell about the columns, and the cells of the target."""
    if task is None or target is None:
        raise TacitError("say which columns hold the task and the target (or pass schema=)")
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise TacitError("target is an empty list; name at least one column to predict")
    schema = Schema.fit(table, task, targets, features=features, drop=drop, categorical=categorical)
    task_names(table, task)  # a row without a task is the first thing to hear of
    if kind == "survival":
        schema = replace(schema, kind=kind, cuts=check_cuts(cuts))
        return schema, with_events(given.target_of(table, schema))
    if len(targets) == 1:
        return schema, _target_values(table, targets[0])[0]
    columns = [_zero_one(table, name, kind == "multilabel") for name in targets]
    classes = tuple(labels for _, labels in columns)
    return replace(schema, classes=classes), np.stack([y for y, _ in columns], axis=1)


def _target_values(
    table: Table, name: str, may_miss: bool = False, remedy: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a target column, and which of them are gaps."""
    cells = clean(table.column(name), name)
    numbers = numeric_or_none(table, name, "choose another target")
    gaps = missing(cells) if numbers is None else np.isnan(numbers)
    if not may_miss or gaps.all():
        table.refuse_gaps(gaps, name, more=LEFT_OUT + remedy)
    return (cells if numbers is None else numbers), gaps


def _zero_one(table: Table, name: str, may_miss: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """One of several targets, and its two values; where labels may be missing they are NaN."""
    remedy = ", or pass kind='multilabel' (--kind multilabel), where labels may be missing"
    values, gaps = _target_values(table, name, may_miss, "" if may_miss else remedy)
    y, found = np.full(len(values), np.nan), encode(values[~gaps], "binary", f"column {name!r}")
    y[~gaps] = found.y
    return y, found.labels


def plain_text(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: `=cmd|…` would be run by whoever opens it."""
    if not cell.lstrip().startswith(("=", "+", "-", "@")) and not cell.startswith(("\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _shown(values: np.ndarray) -> list[str]:
    """Cells as they were given, dates too."""
    if values.dtype.kind in "Mm":
        return np.where(np.isnat(values), "", values.astype(str)).tolist()
    return [text_of(cell) or "" for cell in values.tolist()]


def write_predictions(
    path: str | Path,
    tasks: np.ndarray,
    values: np.ndarray,
    schema: Schema | FormulaSchema,
    labels: Sequence[str],
    kept: Table | None = None,
) -> None:
    """A CSV with one line per row: its task, and the prediction (or a probability per label).

    Columns that are `kept` stand between the two.
    """
    kept = Table() if kept is None else kept
    also = list(zip(*map(_shown, kept.values()), strict=True)) or [()] * len(values)
    columns = list(labels) if values.ndim == 2 else [f"predicted {schema.target[0]}"]
    if schema.kind == "survival":
        columns = ["risk", *(f"survival at {label}" for label in labels)]
    if values.ndim == 1 and len(labels) == 2:
        columns = [f"probability of {labels[1]}"]
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(plain_text, (schema.task, *kept, *columns)))
            rows = zip(tasks, also, values.reshape(len(values), -1), strict=True)
            for task, cells, value in rows:
                shown = map(plain_text, (task, *cells))
                writer.writerow([*shown, *(f"{number:.6g}" for number in value)])
    except OSError as error:
        raise TacitError(f"{path} cannot be written: {error.strerror}") from error
