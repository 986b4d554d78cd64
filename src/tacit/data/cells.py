"""The cells of a table: what is missing, what is a number, what is text, and where it stands.

Every column, wherever it came from, becomes one of two things: float64 with NaN for missing cells,
or an object array of `str` with `None` for missing cells. What stands for nothing is a fixed list:
no other row has a say in whether a cell is a gap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.checks import near
from tacit.data.numerals import comma_remedy, parse, refuse_disguised
from tacit.errors import TacitError
from tacit.words import counted

MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NV", "<NA>", "NaN", "nan", "NULL", "null", "?"}
)
_WHOLE = re.compile(r"^(\d+)\.0+$")

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A column's cells, their numbers (NaN where there is none), and which are not numbers."""


class Table(dict[str, np.ndarray]):
    """Columns by name, with what an error message needs to point at a row."""

    source: str = "a table in memory"
    lines: np.ndarray | None = None
    """The line of each row in the file; rows of a CSV file need not be one line each."""
    places: np.ndarray | None = None
    """Where each row stood, counted from 0, before some were left out."""
    decimal: str | None = None
    """The decimal mark of numbers in text; None where nobody said it, and commas are refused."""

    @property
    def rows(self) -> int:
        return len(next(iter(self.values()))) if self else 0

    def where(self, row: int) -> str:
        """Row counted from 1, and the line in the file where there is one."""
        place = (row if self.places is None else int(self.places[row])) + 1
        if self.lines is None:
            return f"row {place}"
        return f"row {place} (line {int(self.lines[row])} of {self.source})"

    def refuse(self, wrong: np.ndarray, name: str, says: Callable[[int], str]) -> None:
        """An error about the first of the cells of a column that are `wrong`, if there is one."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TacitError(f"{self.where(row)}, column {name!r}: {says(row)}")

    def refuse_gaps(
        self, gaps: np.ndarray, name: str, what: str = "target", more: str = ""
    ) -> None:
        """The same about cells that may not be empty."""
        if gaps.any():
            raise TacitError(
                f"{self.where(int(np.argmax(gaps)))} has no {what} in column {name!r} "
                f"({counted(int(gaps.sum()), 'row')} in all); fill it in or remove the row{more}"
            )

    def only(self, rows: np.ndarray) -> Table:
        """Some of the rows, which are still called by the places they had."""
        part = Table({name: values[rows] for name, values in self.items()})
        part.source, part.decimal = self.source, self.decimal
        part.places = rows if self.places is None else self.places[rows]
        part.lines = None if self.lines is None else self.lines[rows]
        return part

    def column(self, name: str) -> np.ndarray:
        """One column, or an error that lists those that exist."""
        if name not in self:
            raise TacitError(f"there is no column {name!r} in {self.source}{near(name, self)}")
        return self[name]


def table_of(thing: Any) -> Table:
    """The columns of a DataFrame (pandas, polars: neither is imported) or a mapping."""
    if isinstance(thing, Table):
        return thing
    if isinstance(thing, Mapping):
        columns = {str(name): _values(str(name), values) for name, values in thing.items()}
    elif hasattr(thing, "columns") and hasattr(thing, "__getitem__"):
        check_header([str(name) for name in thing.columns], "the DataFrame")
        columns = {str(name): np.asarray(thing[name].to_numpy()) for name in thing.columns}
    else:
        raise TacitError(
            f"a {type(thing).__name__} is not a table; pass a file path, a DataFrame or a mapping "
            "from column names to values"
        )
    shapes = {name: values.shape for name, values in columns.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        shown = ", ".join(f"{name!r} {shape}" for name, shape in list(shapes.items())[:5])
        raise TacitError(f"the columns differ in shape ({shown}); give each one value per row")
    table = Table(columns)
    if not table.rows:
        raise TacitError("the table has no rows; pass one that has some")
    return table


def _values(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise TacitError(f"column {name!r} holds lists; give it one value per row") from None


def check_header(header: Sequence[str], source: str) -> None:
    """Every column has a name of its own."""
    for position, name in enumerate(header):
        if not name:
            raise TacitError(
                f"column {position + 1} of {source} has no name; name it in the header, or save "
                "the table without row numbers"
            )
        if name in header[:position]:
            raise TacitError(f"{source} has two columns named {name!r}; rename one")


def check_keys(data: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Part of a file that people write by hand: a key that it does not know is a mistake."""
    unknown = next((key for key in data if key not in known), None)
    if unknown is not None:
        raise ValueError(f"{where} has no setting {unknown!r}{near(unknown, known)}")


def clean(values: np.ndarray, name: str) -> np.ndarray:
    """float64 with NaN, or objects (`str` or `None`)."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "b":
        return texts(values, name)
    if values.dtype.kind == "O":
        numeric = _python_numbers(values)
        return texts(values, name) if numeric is None else numeric
    return texts(values, name)


def _python_numbers(values: np.ndarray) -> np.ndarray | None:
    """An object column that holds only Python numbers and gaps, as floats; otherwise None."""
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        if is_gap(value):
            numbers[i] = math.nan
        elif isinstance(value, (str, bytes, bool, np.bool_)):
            return None
        else:
            try:
                numbers[i] = float(value)  # int, float, numpy scalars, Decimal, Fraction
            except (TypeError, ValueError, OverflowError):
                return None
    return numbers


def texts(values: np.ndarray, name: str) -> np.ndarray:
    """Every cell as text, `None` where missing; whole numbers are written without a point."""
    out = np.empty(len(values), dtype=object)
    if values.dtype.kind in "Mmc":
        kind = "complex numbers" if values.dtype.kind == "c" else "dates or times"
        raise TacitError(
            f"column {name!r} holds {kind}: turn it into numbers or text, or pass drop=[{name!r}] "
            f"(--drop {name})"
        )
    out[:] = [text_of(value) for value in values.tolist()]
    return out


def is_gap(value: Any) -> bool:
    """Whether one Python value stands for nothing."""
    # pandas.NA and pandas.NaT are recognised by name, so that pandas is never imported.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def text_of(value: Any) -> str | None:
    """One cell as text, None where it stands for nothing; a whole number is without a point."""
    if isinstance(value, str):
        stripped = value.strip()
        return None if stripped in MISSING else stripped
    if is_gap(value):
        return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return text_of(value.decode("utf-8", errors="replace"))
    return str(value)


def numbers_in(table: Table, name: str) -> Cells:
    """A column as cells, numbers and mistakes."""
    cells = clean(table.column(name), name)
    return cells, *parse(cells, table.decimal)


def gaps_in(table: Table, name: str) -> np.ndarray:
    """Which cells are missing; a column of numbers has more words for it."""
    cells, numbers, wrong = numbers_in(table, name)
    return missing(cells) if _is_text(numbers, wrong) else np.isnan(numbers) & ~wrong


def _is_text(numbers: np.ndarray, wrong: np.ndarray) -> bool:
    """Whether at least half of the filled cells are not numbers."""
    return bool(wrong.any()) and int(wrong.sum()) >= int((~np.isnan(numbers)).sum())


def number_text(text: str) -> str:
    """A class as everybody writes it: 1, 1.0 and 01 are the same."""
    numbers, wrong = parse(np.array([text], dtype=object))
    return text if wrong[0] or np.isnan(numbers[0]) else repr(float(numbers[0]))


def missing(cells: np.ndarray) -> np.ndarray:
    """Which cells are missing."""
    if cells.dtype == object:
        return np.array([cell is None for cell in cells.tolist()], dtype=bool)
    return np.isnan(cells)


def unlabelled(table: Table, targets: Sequence[str], may_miss: bool = False) -> np.ndarray:
    """Which rows lack a target; where labels may be missing, those that have none of them."""
    gaps = [gaps_in(table, name) for name in targets]
    return np.logical_and.reduce(gaps) if may_miss else np.logical_or.reduce(gaps)


def task_names(table: Table, task: str) -> np.ndarray:
    """The task of each row as text; a gap is an error that names the row.

    A whole number is the same task with and without a point: what met a gap on its way has one.
    """
    names = texts(table.column(task), task)
    table.refuse_gaps(missing(names), task, "task")
    plain = {name: _WHOLE.sub(r"\1", name) for name in set(names.tolist())}
    names[:] = [plain[name] for name in names.tolist()]
    return names


def numeric_or_none(table: Table, name: str, otherwise: str) -> np.ndarray | None:
    """The column as numbers, or None where it is text.

    A column that is mostly numbers with some text is an error that names the first such cell:
    more often than not it is a typing mistake, and as a category it would go unseen. So are numbers
    and dates that are text only because of how they are written. `otherwise` is one more remedy.
    """
    cells, numbers, wrong = numbers_in(table, name)
    if _is_text(numbers, wrong):
        refuse_disguised(name, cells[wrong].tolist(), otherwise)
        return None
    return _finite(table, name, (cells, numbers, wrong), f", or {otherwise}")


def numbers(table: Table, name: str) -> np.ndarray:
    """A column that must be numbers because a schema says so."""
    return _finite(table, name, numbers_in(table, name))


def _finite(table: Table, name: str, read: Cells, otherwise: str = "") -> np.ndarray:
    """No text, no infinities, and nothing that would become one as a 32-bit number."""
    cells, found, wrong = read
    table.refuse(
        wrong,
        name,
        lambda row: (
            f"{cells[row]!r} is not a number; {comma_remedy(cells[row])}correct the cell{otherwise}"
        ),
    )
    with np.errstate(over="ignore"):
        large = np.isinf(found.astype(np.float32))
    size = ("too large for a 32-bit number", "infinite")
    table.refuse(
        large,
        name,
        lambda row: (
            f"{found[row]:g} is {size[int(np.isinf(found[row]))]}; correct the cell or leave it "
            "empty"
        ),
    )
    return found
