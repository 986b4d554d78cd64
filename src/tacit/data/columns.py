"""One feature column of a table: numbers, one of two numbers, or categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.cells import Table, check_keys, numeric_or_none, texts
from tacit.data.preprocess import two_valued
from tacit.errors import TacitError

GAP = "(missing)"
MOST_CATEGORIES = 50
ZERO_ONE = (0.0, 1.0)
UNKNOWN = -2
"""The code of a cell whose category nobody knows."""
KEYS = {
    "numeric": ("name", "type", "gaps", "scale"),
    "flag": ("name", "type", "values", "gaps"),
    "categorical": ("name", "type", "categories"),
}
"""What a file says of a column, by its type."""


@dataclass(frozen=True)
class Column:
    """One feature column; `categories` is None for numbers."""

    name: str
    categories: tuple[str, ...] | None = None
    gaps: bool = False
    """Whether a column of numbers gets an indicator beside it."""
    pair: tuple[float, float] | None = None
    """The only two values of a column of numbers: they become 0 and 1, and are never scaled."""
    scale: tuple[float, float] | None = None
    """Mean and standard deviation that all tasks scale it with; only ever given by hand."""

    @property
    def features(self) -> tuple[str, ...]:
        if self.categories is None:
            name = self.name
            if self.pair is not None and self.pair != ZERO_ONE:
                name = f"{name}={self.pair[1]:g}"
            return (name, f"{self.name} {GAP}") if self.gaps else (name,)
        return tuple(f"{self.name}={category}" for category in self.coded)

    @property
    def coded(self) -> tuple[str, ...]:
        """The categories that have a 0/1 column: one of two, all of more, none of one."""
        assert self.categories is not None
        return self.categories if len(self.categories) > 2 else self.categories[1:]

    @property
    def indicators(self) -> tuple[bool, ...]:
        """Which of `features` are 0 or 1 by what they are."""
        number = self.categories is None and self.pair is None
        return tuple(not number or place > 0 for place in range(len(self.features)))

    @classmethod
    def fit(cls, table: Table, name: str, categorical: bool) -> Column:
        """Decide what a column is by looking at all of it."""
        numbers = None if categorical else _numbers(table, name)
        if numbers is not None:
            gaps = np.isnan(numbers)
            return cls(name, gaps=bool(gaps.any()), pair=only_two(numbers))
        found = set(texts(table.column(name), name).tolist())
        categories = sorted(cell for cell in found if cell is not None and cell != GAP)
        if len(categories) > MOST_CATEGORIES:
            raise TacitError(
                f"column {name!r} has {len(categories)} different texts such as "
                f"{categories[0]!r}, too many for categories; pass drop=[{name!r}] (--drop {name}) "
                "to leave it out"
            )
        return cls(name, (*categories, *((GAP,) if found & {None, GAP} else ())))

    def to_plain(self) -> dict[str, Any]:
        """For a file; `from_plain` turns it back."""
        if self.categories is not None:
            return {"name": self.name, "type": "categorical", "categories": list(self.categories)}
        plain: dict[str, Any] = {"name": self.name, "type": "numeric"}
        if self.pair is None:
            return plain | {"gaps": self.gaps, "scale": _listed(self.scale)}
        own = {} if self.pair == ZERO_ONE else {"values": list(self.pair)}
        return plain | {"type": "flag"} | own | {"gaps": self.gaps}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Column:
        """Whatever is wrong with it is a ValueError that names the column."""
        name = data.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"a column has the name {name!r}, expected text")
        kind, where = data.get("type"), f"column {name!r}"
        if kind not in KEYS:
            raise ValueError(f"{where} has the type {kind!r}, expected one of: {', '.join(KEYS)}")
        check_keys(data, KEYS[kind], where)
        if kind == "categorical":
            return cls(name, distinct_texts(data.get("categories"), 1, f"{where}: categories"))
        gaps = data.get("gaps", False)
        if not isinstance(gaps, bool):
            raise ValueError(f"{where} has gaps {gaps!r}, expected true or false")
        pair = _two_values(data.get("values"), where) if kind == "flag" else None
        return cls(name, None, gaps, pair, constants(data.get("scale"), where))

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the table as they stand in a matrix."""
        if self.pair is None or self.pair == ZERO_ONE:
            return values
        low, high = self.pair
        return (values - low) / (high - low)


def only_two(numbers: np.ndarray) -> tuple[float, float] | None:
    """The two codes that there are beside gaps, or 0 and 1 where there is nothing else."""
    found, low, wide = two_valued(numbers[:, None])
    return (float(low[0]), float(low[0] + wide[0])) if found[0] else None


def one_hot(table: Table, column: Column) -> np.ndarray:
    """A 0/1 column for each coded category; NaN in all of them where a gap has no category."""
    categories = column.categories or ()
    first = len(categories) - len(column.coded)  # that one has no column of its own
    code: dict[str | None, int] = {name: k - first for k, name in enumerate(categories)}
    gap = code.get(GAP, UNKNOWN)
    cells = texts(table.column(column.name), column.name).tolist()
    codes = np.array([code.get(cell, gap) for cell in cells], dtype=np.int64)
    out = np.zeros((len(cells), len(column.coded)))
    rows = np.flatnonzero(codes >= 0)
    out[rows, codes[rows]] = 1.0
    out[codes == UNKNOWN] = np.nan
    return out


def _two_values(value: Any, where: str) -> tuple[float, float]:
    """The values of a column of two numbers as a file gives them."""
    if value is None:
        return ZERO_ONE
    numbers = isinstance(value, list) and all(type(part) in (int, float) for part in value)
    if not numbers or len(value) != 2 or not np.isfinite(value).all() or value[0] >= value[1]:
        raise ValueError(f"{where} has the values {value!r}, expected [lower, higher]")
    return float(value[0]), float(value[1])


def constants(value: Any, where: str) -> tuple[float, float] | None:
    """A mean and a standard deviation as a file gives them."""
    if value is None:
        return None
    numbers = isinstance(value, list) and all(type(part) in (int, float) for part in value)
    if not numbers or len(value) != 2 or not np.isfinite(value).all() or value[1] <= 0:
        raise ValueError(
            f"{where} has the scale {value!r}, expected [mean, standard deviation above 0] or null"
        )
    return float(value[0]), float(value[1])


def distinct_texts(value: Any, least: int, where: str) -> tuple[str, ...]:
    """A list of different texts as a file gives it."""
    good = isinstance(value, list) and all(isinstance(word, str) and word for word in value)
    if not good or len(set(value)) < len(value) or len(value) < least:
        raise ValueError(f"{where} must be a list of different texts, {least} or more")
    return tuple(value)


def _listed(pair: tuple[float, float] | None) -> list[float] | None:
    return None if pair is None else list(pair)


def _numbers(table: Table, name: str) -> np.ndarray | None:
    """The column as numbers with NaN for gaps, or None where it is text."""
    otherwise = (
        f"pass categorical=[{name!r}] (--categorical {name}) if the column holds categories, or "
        f"drop=[{name!r}] (--drop {name}) to leave it out"
    )
    numbers = numeric_or_none(table, name, otherwise)
    if numbers is not None and np.isnan(numbers).all():
        raise TacitError(
            f"column {name!r} is empty; pass drop=[{name!r}] (--drop {name}) to leave it out"
        )
    return numbers


def gaps_of(features: Sequence[str]) -> dict[int, int]:
    """Which columns have another one that tells of their gaps, by their places."""
    place = {name: k for k, name in enumerate(features)}
    beside = {k: place.get(f"{name} {GAP}") for k, name in enumerate(features)}
    return {k: gap for k, gap in beside.items() if gap is not None}
