"""How the cells of a table's columns are read for a formula: decided once, kept as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tacit.data.cells import (
    Table,
    check_keys,
    gaps_in,
    numbers,
    numbers_in,
    numeric_or_none,
    texts,
)
from tacit.data.columns import MOST_CATEGORIES
from tacit.errors import TacitError
from tacit.formula.text import Formula
from tacit.words import counted

if TYPE_CHECKING:
    import pandas as pd

Cells = Literal["number", "whole", "flag", "text"]
Level = str | int | float | bool
FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class FormulaColumn:
    """What the cells of a column are."""

    cells: Cells
    """`whole` are numbers that the formula makes categories of, so written without a point."""
    levels: tuple[Level, ...] | None = None
    """Where somebody said which categories there are, and in which order: those."""

    def to_plain(self) -> dict[str, Any]:
        return {"cells": self.cells} | ({"levels": list(self.levels)} if self.levels else {})

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> FormulaColumn:
        check_keys(given, ("cells", "levels"), "a column")
        if given.get("cells") not in get_args(Cells):
            raise ValueError(f"a column's cells are {given.get('cells')!r}")
        return cls(given["cells"], tuple(given["levels"]) if "levels" in given else None)


def decide_columns(formula: Formula, table: Table, given: Any) -> dict[str, FormulaColumn]:
    """What the cells of each column are, by all rows: the federation says that this is public."""
    names = dict.fromkeys((*formula.columns, *formula.target_columns))
    found = {name: _decide(formula, table, given, name) for name in names}
    for name in formula.columns:
        if name not in formula.categories and found[name].cells != "text":
            continue
        levels = len(set(_values(table, name, found[name]).tolist()))
        if levels > MOST_CATEGORIES:
            raise formula.wrong(
                f"column {name!r} has {levels} levels, too many for categories; leave it out"
            )
    return found


def _decide(formula: Formula, table: Table, given: Any, name: str) -> FormulaColumn:
    said = _categorical(given, name)
    if said is not None:
        levels = tuple(plain(level) for level in said.categories)
        whole = all(type(level) is int for level in levels)
        plainly = "text" if any(isinstance(each, str) for each in levels) else "number"
        return FormulaColumn("whole" if whole else plainly, levels)
    values = table.column(name)
    if values.dtype.kind == "b":
        return FormulaColumn("flag")
    if name not in formula.categories:
        found = numeric_or_none(table, name, f"write C({name})")
        return FormulaColumn("text" if found is None else "number")
    _, found, wrong = numbers_in(table, name)
    if wrong.any():
        return FormulaColumn("text")
    return FormulaColumn("whole" if bool((found == np.floor(found)).all()) else "number")


def _categorical(given: Any, name: str) -> Any:
    """The type of a pandas column of categories, which somebody declared; otherwise None."""
    import pandas as pd

    if not isinstance(given, pd.DataFrame):
        return None
    kind = given[name].dtype
    return kind if isinstance(kind, pd.CategoricalDtype) else None


def plain(value: Any) -> Level:
    """A level as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value


def frame_of(table: Table, columns: Mapping[str, FormulaColumn]) -> pd.DataFrame:
    """These columns as formulaic wants them: numbers, or categories."""
    import pandas as pd

    made: dict[str, Any] = {}
    for name, column in columns.items():
        values = _values(table, name, column)
        if column.levels is not None:
            check_levels(table, name, values, column.levels)
            values = pd.Categorical(values, column.levels)
        made[name] = values
    return pd.DataFrame(made, index=range(table.rows))


def _values(table: Table, name: str, column: FormulaColumn) -> np.ndarray:
    cells = table.column(name)
    if column.cells == "text":
        return texts(cells, name)
    if column.cells == "flag" and cells.dtype.kind == "b":
        return cells
    if column.cells == "flag":
        listed = [FLAGS.get(str(cell).lower()) for cell in texts(cells, name).tolist()]
        wrong = np.array([cell is None for cell in listed])
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TacitError(
                f"{table.where(row)}, column {name!r}: {cells[row]!r} is neither true nor false, "
                "as all were in training; correct the cell"
            )
        return np.array(listed, dtype=bool)
    found = numbers(table, name)
    return found.astype(np.int64) if column.cells == "whole" else found


def check_levels(table: Table, name: str, values: np.ndarray, levels: tuple[Level, ...]) -> None:
    """Nothing is known of a category that nobody had in training."""
    new = ~np.isin(values.astype(object), np.array(levels, dtype=object))
    if new.any():
        row = int(np.argmax(new))
        raise TacitError(
            f"{table.where(row)}, column {name!r}: {values[row]!r} was not there in training, "
            f"which had {', '.join(map(str, levels[:12]))}; remove such rows "
            f"({counted(int(new.sum()), 'row')} in all)"
        )


def refuse_gaps(formula: Formula, table: Table, names: tuple[str, ...]) -> None:
    gaps = np.zeros(table.rows, dtype=bool)
    for name in names:
        gaps |= gaps_in(table, name)
    if gaps.any():
        raise formula.wrong(
            f"values of its columns are missing in {counted(int(gaps.sum()), 'row')} of "
            f"{table.source}, first in {table.where(int(np.argmax(gaps)))}; remove such rows, or "
            "use tacit.data.from_table, where each task fills in its own"
        )
