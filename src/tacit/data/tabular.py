"""Tables with one row per example and a column that says which task it belongs to."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data import given
from tacit.data.assemble import About, assemble
from tacit.data.cells import (
    MISSING,
    Table,
    check_header,
    clean,
    count_rows,
    missing,
    numeric_or_none,
    table_of,
    task_names,
)
from tacit.data.federation import Federation, Kind
from tacit.data.preprocess import Scale, TargetScaling
from tacit.data.schema import PUBLIC, Schema, read_schema
from tacit.data.split import SplitRule
from tacit.data.targets import RawTarget, Target, check_kind, encode
from tacit.errors import TacitError
from tacit.files import reading

if TYPE_CHECKING:
    from tacit.formula.design import FormulaSchema

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def from_table(
    table: Any,
    *,
    task: str | None = None,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    kind: Kind | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    split_seed: int = 0,
    min_rows: int = 0,
    scale: Scale = "auto",
    target_scale: TargetScaling = "auto",
    schema: Schema | str | Path | None = None,
    source: str | None = None,
) -> Federation:
    """A federation from a file, a DataFrame or a mapping of columns.

    Parameters
    ----------
    table : path of a .csv, .csv.gz or .parquet file; a pandas or polars DataFrame; a mapping.
    task : the column that names the task of each row.
    target : the column to predict, or several columns with two values each (multilabel; cells may
        be empty where `kind="multilabel"` is said).
    features, drop : columns to use, or columns not to use; by default all others are used.
    categorical : columns of numbers that are really categories.
    schema : what is otherwise decided by looking at all rows, as public constants: a `Schema`, or
        the path of the file that `tacit data --write-schema` wrote and people corrected. It says
        the columns, the target with its kind, and which tasks take part; leave those out here.

    The others are those of `tacit.data.from_arrays`. In `scale`, constants are given for matrix
    columns (`Federation.features`).
    """
    rule = SplitRule(validation, test, split_seed, min_rows)
    check_kind(kind)
    columns = as_table(table)
    if schema is None:
        known, y = _decide(columns, task, target, features, drop, categorical, kind)
        said = (PUBLIC,)
    else:
        known = schema if isinstance(schema, Schema) else read_schema(schema)
        said = given.assumed(known)
        scale, target_scale = given.scaling(known, scale, target_scale)
        roles = {"task": task, "target": target}
        others = {"features": features, "drop": drop, "categorical": categorical, "kind": kind}
        given.check_alone(known, roles, others)
        columns, y = given.read(columns, known)
    x, matrix_names = known.matrix(columns)
    several = len(known.target) > 1
    name, labels = f"column {known.target[0]!r}", None
    if several:
        name, labels = "the target", known.target
    made = assemble(
        x,
        y if isinstance(y, Target) else RawTarget(y, kind, name, labels),
        task_names(columns, known.task),
        About(
            source=source or columns.source, features=matrix_names, schema=known, assumptions=said
        ),
        rule=rule,
        scale=scale,
        target_scale=target_scale,
    )
    if known.kind is not None:
        return made
    classes = known.classes if several else (made.labels,) if made.labels else ()
    return replace(made, schema=replace(known, kind=made.kind, classes=classes))


def _decide(
    table: Table,
    task: str | None,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    kind: Kind | None,
) -> tuple[Schema, np.ndarray]:
    """What rows of all tasks tell about the columns, and the cells of the target."""
    if task is None or target is None:
        raise TacitError("say which columns hold the task and the target (or pass schema=)")
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise TacitError("target is an empty list; name at least one column to predict")
    schema = Schema.fit(table, task, targets, features=features, drop=drop, categorical=categorical)
    task_names(table, task)  # a row without a task is the first thing to hear of
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
    gaps = missing(cells)
    if gaps.any() and (not may_miss or gaps.all()):
        raise TacitError(
            f"{table.where(int(np.argmax(gaps)))} has no target in column {name!r} "
            f"({count_rows(gaps)} in all); fill it in or remove the row{remedy}"
        )
    numbers = numeric_or_none(table, name, "correct the cell or choose another target")
    return (cells if numbers is None else numbers), gaps


def _zero_one(table: Table, name: str, may_miss: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """One of several targets, and its two values; where labels may be missing they are NaN."""
    remedy = ", or pass kind='multilabel' (--kind multilabel), where labels may be missing"
    values, gaps = _target_values(table, name, may_miss, "" if may_miss else remedy)
    y, found = np.full(len(values), np.nan), encode(values[~gaps], "binary", f"column {name!r}")
    y[~gaps] = found.y
    return y, found.labels


def as_table(thing: Any) -> Table:
    """Columns of anything that is a table, or the path of one."""
    return read_table(thing) if isinstance(thing, (str, Path)) else table_of(thing)


def read_table(path: str | Path) -> Table:
    """The columns of a .csv, .csv.gz or .parquet file.

    CSV cells are text (objects, `None` for gaps): whether "007" is a number depends on what the
    column is used for.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise TacitError(f"{path} is not a table that can be read; expected {', '.join(SUFFIXES)}")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TacitError(f"{path} {what}; pass the path of a {' or '.join(SUFFIXES)} file")
    try:
        if name.endswith(".parquet"):
            return _read_parquet(path)
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TacitError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise TacitError(f"{path} cannot be read: {error}; check the file") from None
    return _read_csv(text, path)


def _read_csv(text: str, path: Path) -> Table:
    if not text.strip():
        raise TacitError(f"{path} is empty; expected a header line and rows")
    header: list[str] | None = None
    rows: list[list[str]] = []
    numbers: list[int] = []
    begins = 1
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
        for row in lines:
            if row and header is None:
                header = [cell.strip() for cell in row]
                check_header(header, str(path))
            elif row and header is not None:
                if len(row) != len(header):
                    raise TacitError(
                        f"line {begins} of {path} has {len(row)} cells, but the header has "
                        f"{len(header)}; correct the line"
                    )
                rows.append(row)
                numbers.append(begins)
            begins = lines.line_num + 1
    except csv.Error as error:
        raise TacitError(f"line {begins} of {path} is not CSV: {error}; correct it") from None
    if header is None or not rows:
        raise TacitError(f"{path} has a header but no rows; add rows")
    table = Table()
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        column = np.empty(len(rows), dtype=object)
        stripped = map(str.strip, cells)
        column[:] = [None if cell in MISSING else cell for cell in stripped]
        table[name] = column
    table.source = path.name
    table.lines = np.array(numbers)
    return table


def _delimiter(text: str) -> str:
    """The one that cuts the header into most cells."""
    header = next(line for line in io.StringIO(text, newline="") if line.strip())
    return max(",;\t", key=lambda mark: len(next(csv.reader([header], delimiter=mark))))


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TacitError(
            f"reading {path} needs pyarrow; install it with pip install 'tacit[data]'"
        ) from None
    with reading(path, "it is not a Parquet file, or write it again"):
        arrow = pyarrow.parquet.read_table(path)
        check_header(list(arrow.column_names), str(path))
        if not arrow.num_rows:
            raise TacitError(f"{path} has no rows; add rows")
        table = Table()
        for name in arrow.column_names:
            table[name] = arrow.column(name).to_numpy()
    table.source = path.name
    return table


def plain_text(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: `=cmd|…` would be run by whoever opens it."""
    if not cell.lstrip().startswith(("=", "+", "-", "@")) and not cell.startswith(("\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def write_predictions(
    path: str | Path,
    tasks: np.ndarray,
    values: np.ndarray,
    schema: Schema | FormulaSchema,
    labels: Sequence[str],
) -> None:
    """A CSV with one line per row: its task, and the prediction (or a probability per label)."""
    columns = list(labels) if values.ndim == 2 else [f"predicted {schema.target[0]}"]
    if values.ndim == 1 and len(labels) == 2:
        columns = [f"probability of {labels[1]}"]
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(plain_text, (schema.task, *columns)))
            for task, value in zip(tasks, values.reshape(len(values), -1), strict=True):
                writer.writerow([plain_text(task), *(f"{number:.6g}" for number in value)])
    except OSError as error:
        raise TacitError(f"{path} cannot be written: {error.strerror}") from error
