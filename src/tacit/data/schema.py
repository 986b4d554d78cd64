"""How a table becomes a matrix, fixed once so that prediction reads new tables the same way.

| column                    | becomes                                                              |
|---------------------------|----------------------------------------------------------------------|
| numbers                   | itself                                                               |
| numbers with gaps         | itself (gaps stay NaN, each task fills in its own) and `x (missing)` |
| text with two categories  | one 0/1 column for the second                                        |
| text with more categories | one 0/1 column each                                                  |

Gaps in a text column are a category of their own, `(missing)`. A category that was not there when
the schema was made becomes all zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.cells import (
    Table,
    check_finite,
    clean,
    numeric_or_none,
    parse,
    table_of,
    texts,
)
from tacit.errors import TacitError

GAP = "(missing)"
MOST_CATEGORIES = 50
PUBLIC = (
    "the columns of the table, their types, their categories and which of them have gaps are taken "
    "to be public"
)


@dataclass(frozen=True)
class Column:
    """One feature column; `categories` is None for numbers."""

    name: str
    categories: tuple[str, ...] | None = None
    gaps: bool = False
    """Whether a column of numbers gets an indicator beside it."""

    @property
    def features(self) -> tuple[str, ...]:
        if self.categories is None:
            return (self.name, f"{self.name} {GAP}") if self.gaps else (self.name,)
        return tuple(f"{self.name}={category}" for category in self.coded)

    @property
    def coded(self) -> tuple[str, ...]:
        """The categories that have a 0/1 column: one of two, all of more, none of one."""
        assert self.categories is not None
        return self.categories if len(self.categories) > 2 else self.categories[1:]


@dataclass(frozen=True)
class Schema:
    """The feature columns of a table, and its task and target columns."""

    columns: tuple[Column, ...]
    task: str
    target: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the matrix columns."""
        return tuple(name for column in self.columns for name in column.features)

    @classmethod
    def fit(
        cls,
        table: Any,
        task: str,
        target: str | Sequence[str],
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
    ) -> Schema:
        """Decide the type of every feature column; `categorical` names those that look numeric."""
        table = table_of(table)
        targets = (target,) if isinstance(target, str) else tuple(target)
        drop, categorical = _listed(drop), _listed(categorical)
        features = None if features is None else _listed(features)
        for name in (task, *targets, *(features or ()), *drop, *categorical):
            table.column(name)
        if features is not None and drop:
            raise TacitError("features and drop were both given; choose one of them")
        for name in (task, *targets):
            if name in (features or ()):
                role = "task" if name == task else "target"
                raise TacitError(f"column {name!r} is the {role}, so it cannot be a feature too")
        if task in targets:
            raise TacitError(f"column {task!r} is given as task and as target; choose another")
        chosen = features if features is not None else [n for n in table if n not in drop]
        chosen = [name for name in chosen if name not in (task, *targets)]
        columns = tuple(_column(table, name, name in categorical) for name in chosen)
        schema = cls(columns, task, targets)
        if not schema.features:
            raise TacitError(
                f"{table.source} has no feature left beside the task and the target; give a table "
                "with at least one more column that varies"
            )
        return schema

    def matrix(self, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        """float32 [N, features] with NaN for missing numbers, and the names of its columns."""
        table = table_of(table)
        out = np.zeros((table.rows, len(self.features)), dtype=np.float32)
        at = 0
        for column in self.columns:
            if column.categories is None:
                numbers = _numbers(table, column.name)
                out[:, at] = numbers
                if column.gaps:
                    out[:, at + 1] = np.isnan(numbers)
            elif column.coded:
                code = {category: i for i, category in enumerate(column.coded)}
                cells = texts(table.column(column.name), column.name).tolist()
                found = np.array(
                    [code.get(GAP if cell is None else cell, -1) for cell in cells], dtype=np.int64
                )
                rows = np.flatnonzero(found >= 0)
                out[rows, at + found[rows]] = 1.0
            at += len(column.features)
        return out, self.features

    def to_json(self) -> str:
        columns = [
            {"name": c.name, "type": "numeric", "gaps": c.gaps}
            if c.categories is None
            else {"name": c.name, "type": "categorical", "categories": list(c.categories)}
            for c in self.columns
        ]
        return json.dumps({"task": self.task, "target": list(self.target), "columns": columns})

    @classmethod
    def from_json(cls, text: str) -> Schema:
        try:
            data = json.loads(text)
            columns = tuple(_column_from(column) for column in data["columns"])
            return cls(columns, str(data["task"]), tuple(str(name) for name in data["target"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TacitError(
                f"the saved table schema cannot be read ({error}); was the file changed by hand?"
            ) from None


def _column_from(data: Mapping[str, Any]) -> Column:
    if data["type"] == "numeric":
        return Column(str(data["name"]), gaps=bool(data["gaps"]))
    if data["type"] == "categorical":
        return Column(str(data["name"]), tuple(str(c) for c in data["categories"]))
    raise ValueError(f"unknown column type {data['type']!r}")


def _listed(names: Sequence[str]) -> tuple[str, ...]:
    """A single name where a list was expected is a list of one, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def _column(table: Table, name: str, categorical: bool) -> Column:
    if not categorical:
        remedy = (
            f"correct the cell, or pass categorical=[{name!r}] (--categorical {name}) if the "
            "column holds categories"
        )
        numbers = numeric_or_none(table, name, remedy)
        if numbers is not None:
            gaps = np.isnan(numbers)
            if gaps.all():
                raise TacitError(
                    f"column {name!r} is empty; pass drop=[{name!r}] (--drop {name}) to leave it "
                    "out"
                )
            return Column(name, gaps=bool(gaps.any()))
    cells = texts(table.column(name), name)
    found = set(cells.tolist())
    categories = sorted(cell for cell in found if cell is not None and cell != GAP)
    if len(categories) > MOST_CATEGORIES:
        raise TacitError(
            f"column {name!r} has {len(categories)} different texts such as {categories[0]!r}, too "
            f"many for categories; pass drop=[{name!r}] (--drop {name}) to leave it out"
        )
    return Column(name, (*categories, *((GAP,) if found & {None, GAP} else ())))


def _numbers(table: Table, name: str) -> np.ndarray:
    """A column that must be numbers because it was when the schema was made."""
    cells = clean(table.column(name), name)
    numbers, wrong = parse(cells)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TacitError(
            f"{table.where(row)}, column {name!r}: {cells[row]!r} is not a number; correct the cell"
        )
    check_finite(table, name, numbers)
    return numbers
