"""A formula and a table: the design matrix, the target, and the task of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.cells import (
    Table,
    clean,
    count_rows,
    missing,
    numeric_or_none,
    parse,
    task_names,
    texts,
)
from tacit.data.columns import MOST_CATEGORIES
from tacit.data.tabular import as_table
from tacit.formula.rowwise import FUNCTIONS
from tacit.formula.text import Formula, reason

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Design:
    """Rows as the model sees them; the intercept is the model's, and is no column."""

    x: np.ndarray
    names: tuple[str, ...]
    y: np.ndarray
    """Numbers, or text as objects."""
    tasks: np.ndarray
    slopes: tuple[int, ...]
    """Columns of x with an own slope."""
    source: str


def design(formula: Formula, table: Any) -> Design:
    """What formulaic makes of the table, once it is known to read each row by itself."""
    columns = as_table(table)
    for name in (*formula.columns, formula.task):
        columns.column(name)
    tasks = task_names(columns, formula.task)
    _refuse_gaps(formula, columns)
    frame = _frame(formula, columns, table)
    target, fixed, own = _terms(formula)
    with np.errstate(all="ignore"):  # log(0) is found, and named, below
        x, names, places = _matrix(formula, fixed, frame)
    _check_finite(formula, columns, x, names)
    slopes = []
    for term in own:
        if term not in places:
            raise formula.wrong(f"{term} has own slopes, so add it to the fixed effects too")
        slopes += places[term]
    y = _target(formula, target, columns, frame)
    return Design(x, names, y, tasks, tuple(slopes), columns.source)


def _refuse_gaps(formula: Formula, table: Table) -> None:
    gaps = np.zeros(table.rows, dtype=bool)
    for name in formula.columns:
        gaps |= missing(clean(table.column(name), name))
    if gaps.any():
        raise formula.wrong(
            f"values of its columns are missing in {count_rows(gaps)} of {table.source}, first in "
            f"{table.where(int(np.argmax(gaps)))}; remove such rows, or use tacit.data.from_table, "
            "where each task fills in its own"
        )


def _frame(formula: Formula, table: Table, given: Any) -> pd.DataFrame:
    """The columns as formulaic wants them: numbers, or categories as text.

    Which they are is decided over all rows, as for any table: the federation says so.
    """
    import pandas as pd

    found: dict[str, Any] = {}
    for name in formula.columns:
        values = table.column(name)
        said = given[name] if isinstance(given, pd.DataFrame) else None
        if said is not None and isinstance(said.dtype, pd.CategoricalDtype):
            found[name] = pd.Categorical(said)  # which levels there are, and in which order
            continue
        if values.dtype.kind == "b":
            found[name] = values
            continue
        category = name in formula.categories
        if category:
            numbers, wrong = parse(clean(values, name))
            numbers = None if wrong.any() else numbers
        else:
            numbers = numeric_or_none(table, name, f"correct the cell, or write C({name})")
        whole = numbers is not None and bool((numbers == np.floor(numbers)).all())
        if numbers is None:
            found[name] = texts(values, name)
        else:  # levels of whole numbers are written without a point
            found[name] = numbers.astype(np.int64) if category and whole else numbers
        levels = len(set(found[name].tolist())) if category or numbers is None else 0
        if levels > MOST_CATEGORIES and name != formula.column:
            raise formula.wrong(
                f"column {name!r} has {levels} levels, too many for categories; leave it out"
            )
    return pd.DataFrame(found)


def _terms(formula: Formula) -> tuple[Any, Any, list[Any]]:
    """The terms of the target and of the fixed effects, and those with own slopes."""
    import formulaic
    from formulaic.errors import FormulaicError

    try:
        read: Any = formulaic.Formula  # its metaclass decides which class is made
        both, own = read(f"{formula.target} ~ {formula.fixed}"), read(formula.own)
    except FormulaicError as error:
        raise formula.wrong(reason(error)) from None
    target, fixed = both.lhs, both.rhs
    if len(target) != 1:
        raise formula.wrong("one target stands before ~")
    if "1" not in fixed:
        raise formula.wrong("these models always have an intercept; leave out 0 and -1")
    if len(fixed) == 1:
        raise formula.wrong("name at least one fixed effect beside the intercept")
    return target, fixed, [term for term in own if term != "1"]


def _matrix(
    formula: Formula, terms: Any, frame: pd.DataFrame
) -> tuple[np.ndarray, tuple[str, ...], dict[Any, list[int]]]:
    """[N, columns] without the intercept, their names, and which of them each term has."""
    made = _made(formula, terms, frame)
    places = made.model_spec.term_indices
    kept = [name != "Intercept" for name in made.columns]
    places = {term: [at - 1 for at in found] for term, found in places.items() if term != "1"}
    x = made.to_numpy(dtype=np.float64)[:, kept]
    return x, tuple(str(name) for name in made.columns[kept]), places


def _made(formula: Formula, terms: Any, frame: pd.DataFrame) -> Any:
    """Gaps are not dropped: a row that cannot be computed is named instead."""
    functions = {name: function for name, function in FUNCTIONS.items() if name not in frame}
    try:
        return terms.get_model_matrix(frame, context=functions, na_action="ignore")
    except Exception as error:  # formulaic evaluates Python: whatever that raises
        raise formula.wrong(f"it cannot be computed: {reason(error)}") from None


def _target(formula: Formula, terms: Any, table: Table, frame: pd.DataFrame) -> np.ndarray:
    name = formula.column or formula.target
    if name == formula.column:
        values = frame[name].to_numpy()
        return values if values.dtype.kind in "biuf" else texts(values, name)
    with np.errstate(all="ignore"):
        made = _made(formula, terms, frame)
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
