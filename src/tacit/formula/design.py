"""A formula and a table: the design matrix, the target, and the task of each row."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data import given
from tacit.data.cells import Table, check_keys, task_names, texts
from tacit.data.federation import Kind
from tacit.data.reading import as_table
from tacit.errors import TacitError
from tacit.formula.columns import (
    FormulaColumn,
    Level,
    check_levels,
    decide_columns,
    frame_of,
    plain,
    refuse_gaps,
)
from tacit.formula.rowwise import FUNCTIONS, columns_of
from tacit.formula.text import Formula, parse, reason

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("formula", "columns", "levels", "kind", "classes")


@dataclass(frozen=True)
class FormulaSchema:
    """How a formula makes rows of a table, fixed once so that new tables are read the same way."""

    formula: Formula
    columns: Mapping[str, FormulaColumn]
    levels: Mapping[str, tuple[Level, ...]]
    """The categories of each part of the formula that has some."""
    kind: Kind | None = None
    classes: tuple[tuple[str, ...], ...] = ()
    """Those of the target, in the order of their codes; none where it is a number."""

    @property
    def task(self) -> str:
        return self.formula.task

    @property
    def target(self) -> tuple[str, ...]:
        return (self.formula.column or self.formula.target,)

    def matrix(self, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        """float64 [N, features], and the names of its columns; the target need not be there."""
        columns = as_table(table)
        x, names, _, _ = _matrix(self, columns)
        return x, names

    def answers(self, table: Any) -> np.ndarray:
        """The target of each row as models know it: numbers, or the codes of classes."""
        columns = as_table(table)
        if self.formula.column is not None:
            return given.target_of(columns, self).y
        refuse_gaps(self.formula, columns, self.formula.target_columns)
        return _target(self.formula, columns, self.columns)

    def to_json(self) -> str:
        kept = {
            "formula": self.formula.text,
            "columns": {name: column.to_plain() for name, column in self.columns.items()},
            "levels": {part: list(levels) for part, levels in self.levels.items()},
            "kind": self.kind,
            "classes": [list(classes) for classes in self.classes],
        }
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> FormulaSchema:
        """What `to_json` wrote."""
        try:
            data = json.loads(text)
            check_keys(data, KEYS, "it")
            columns = {n: FormulaColumn.from_plain(one) for n, one in data["columns"].items()}
            levels = {part: tuple(some) for part, some in data["levels"].items()}
            classes = tuple(tuple(some) for some in data["classes"])
            return cls(parse(data["formula"]), columns, levels, data["kind"], classes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TacitError(f"the saved formula cannot be read: {error}; train anew") from None


@dataclass(frozen=True)
class Design:
    """Rows as the model sees them; the intercept is the model's, and not a column."""

    x: np.ndarray
    names: tuple[str, ...]
    y: np.ndarray
    """Numbers, or text as objects."""
    tasks: np.ndarray
    slopes: tuple[int, ...]
    """Columns of x with an own slope."""
    source: str
    schema: FormulaSchema


def design(formula: Formula, table: Any) -> Design:
    """What formulaic makes of the table, once it is known to read each row by itself."""
    columns = as_table(table)
    for name in (*formula.target_columns, *formula.columns, formula.task):
        columns.column(name)
    tasks = task_names(columns, formula.task)
    refuse_gaps(formula, columns, (*formula.target_columns, *formula.columns))
    schema = FormulaSchema(formula, decide_columns(formula, columns, table), {})
    x, names, places, levels = _matrix(schema, columns)
    slopes = []
    for term in _own(formula):
        if term not in places:
            raise formula.wrong(f"{term} has own slopes, so add it to the fixed effects too")
        slopes += places[term]
    y = _target(formula, columns, schema.columns)
    schema = replace(schema, levels=levels)
    return Design(x, names, y, tasks, tuple(slopes), columns.source, schema)


def _read(formula: Formula, text: str) -> Any:
    import formulaic
    from formulaic.errors import FormulaicError

    try:
        read: Any = formulaic.Formula  # its metaclass decides which class is made
        return read(text)
    except FormulaicError as error:
        raise formula.wrong(reason(error)) from None


def _own(formula: Formula) -> list[Any]:
    """The terms with own slopes."""
    return [term for term in _read(formula, formula.own) if term != "1"]


def _matrix(
    schema: FormulaSchema, table: Table
) -> tuple[np.ndarray, tuple[str, ...], dict[Any, list[int]], dict[str, tuple[Level, ...]]]:
    """[N, columns] without the intercept, their names, which of them each term has, and levels."""
    formula = schema.formula
    terms = _read(formula, f"{formula.target} ~ {formula.fixed}").rhs
    if "1" not in terms:
        raise formula.wrong("these models always have an intercept; leave out 0 and -1")
    refuse_gaps(formula, table, formula.columns)
    frame = frame_of(table, {name: schema.columns[name] for name in formula.columns})
    for part, levels in schema.levels.items():
        column = columns_of(part)[1] or part.strip("`")
        if column in frame:
            check_levels(table, column, np.asarray(frame[column]), levels)
    made = _make(formula, terms, frame, schema.levels)
    states = made.model_spec.encoder_state
    found = {part: kept["categories"] for part, (_, kept) in states.items() if "categories" in kept}
    places = made.model_spec.term_indices
    kept = [name != "Intercept" for name in made.columns]
    places = {term: [at - 1 for at in some] for term, some in places.items() if term != "1"}
    x, names = made.to_numpy(dtype=np.float64)[:, kept], tuple(map(str, made.columns[kept]))
    _check_finite(formula, table, x, names)
    return x, names, places, {part: tuple(map(plain, some)) for part, some in found.items()}


def _make(
    formula: Formula, terms: Any, frame: pd.DataFrame, levels: Mapping[str, tuple[Level, ...]]
) -> Any:
    """Gaps are not dropped: a row that cannot be computed is named instead."""
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    functions = {name: function for name, function in FUNCTIONS.items() if name not in frame}
    states = {
        part: (Factor.Kind.CATEGORICAL, {"categories": list(some)}) for part, some in levels.items()
    }
    spec: Any = ModelSpec(formula=terms, na_action="ignore", encoder_state=states)  # type: ignore[arg-type]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():  # log(0) is named later
            warnings.filterwarnings("error", "Data has categories outside")
            return spec.get_model_matrix(frame, context=functions)
    except Exception as error:  # formulaic evaluates Python: whatever that raises
        raise formula.wrong(f"it cannot be computed: {reason(error)}") from None


def _target(formula: Formula, table: Table, columns: Mapping[str, FormulaColumn]) -> np.ndarray:
    frame = frame_of(table, {name: columns[name] for name in formula.target_columns})
    terms, name = _read(formula, f"{formula.target} ~ 1").lhs, formula.column or formula.target
    if len(terms) != 1:
        raise formula.wrong("one target stands before ~")
    if name == formula.column:
        values = frame[name].to_numpy()
        return values if values.dtype.kind in "biuf" else texts(values, name)
    made = _make(formula, terms, frame, {})
    if made.shape[1] != 1:
        raise formula.wrong(f"{name} becomes {made.shape[1]} columns, but one target is needed")
    y = made.to_numpy(dtype=np.float64)
    _check_finite(formula, table, y, (name,))
    return y[:, 0]


def _check_finite(formula: Formula, table: Table, x: np.ndarray, names: tuple[str, ...]) -> None:
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(x.astype(np.float32))
    if bad.any():
        row, column = (int(at) for at in np.argwhere(bad)[0])
        raise formula.wrong(
            f"{names[column]} is {x[row, column]:g} in {table.where(row)}, expected a finite number"
        )
