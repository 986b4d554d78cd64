"""Numbers as people write them: words for nothing, decimal commas, groups of digits; and dates.

What becomes of a cell is decided by the cell and the table's decimal mark, never by other rows.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tacit.errors import TacitError

NO_NUMBER = frozenset(
    {".", "..", "-", "--", "–", "—", "na", "n/a", "n.a.", "k.a.", "none", "null", "nan", "missing"}
)
"""What stands for nothing in a column of numbers, in small letters; in text it is a category."""
READ = (
    "in a column of numbers ., -, NA, n/a, NULL, ? and the like are gaps; commas are decimal "
    "commas where cells are separated by semicolons, or where decimal says so"
)
"""What is done with cells, whichever rows there are."""

_GROUP = "[ \u00a0\u202f'’{}]"
_GROUPED = {
    mark: re.compile(rf"[+-]?\d{{1,3}}(?:{_GROUP.format(other)}\d{{3}})+(?:{re.escape(mark)}\d*)?")
    for mark, other in ((".", ","), (",", "."))
}
"""Whole numbers in groups of three, by the decimal mark that may follow."""
_DATE = re.compile(
    r"(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})(?:[T ].*)?|\d{1,2}:\d{2}.*"
)
_SPACED = re.compile("[+-]?\\d{1,3}(?:[ \u00a0\u202f'’.]\\d{3})+(?:[.,]\\d*)?")
_COMMAS = re.compile(r"[+-]?[\d.]*\d,\d+(?:[,.]\d+)*")
_WITH_UNIT = re.compile(r"[+-]?[\d.,]+\s?[%€$£]|[€$£]\s?[\d.,]+")


def parse(cells: np.ndarray, decimal: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Cells as float64 (NaN: missing or not a number), and which present cells are not numbers."""
    if cells.dtype != object:
        return cells, np.zeros(len(cells), dtype=bool)
    listed = cells.tolist()
    try:
        fast = [math.nan if cell is None else _float(cell, decimal) for cell in listed]
        return np.array(fast, dtype=np.float64), np.zeros(len(cells), dtype=bool)
    except ValueError:
        pass
    numbers = np.full(len(cells), math.nan)
    wrong = np.zeros(len(cells), dtype=bool)
    for i, cell in enumerate(listed):
        if cell is not None:
            try:
                numbers[i] = _float(cell, decimal)
            except ValueError:
                wrong[i] = cell.lower() not in NO_NUMBER
    return numbers, wrong


def _float(cell: str, decimal: str | None) -> float:
    if decimal is not None:
        if _GROUPED[decimal].fullmatch(cell):
            cell = re.sub(_GROUP.format("." if decimal == "," else ","), "", cell)
        if decimal == ",":
            if "." in cell:
                raise ValueError(cell)
            cell = cell.replace(",", ".")
    # Python reads "2020_01" as the number 202001; in a table it is a name.
    number = float(cell)
    if "_" in cell or number != number:  # nor may "NAN" slip in as a number
        raise ValueError(cell)
    return number


def comma_remedy(cell: str) -> str:
    """What to do about a comma in a number, which may stand for two things."""
    if not _COMMAS.fullmatch(cell):
        return ""
    return (
        "pass decimal=',' (--option decimal=,) if its comma is a decimal comma, decimal='.' if it "
        "groups digits, or "
    )


def refuse_disguised(name: str, words: list[str], otherwise: str) -> None:
    """Refuse numbers and dates that would become categories because of how they are written."""
    for pattern, what, remedy in (
        (_DATE, "dates or times", "turn them into numbers such as days since a public date, or "),
        (_COMMAS, "numbers with commas", None),
        (
            _SPACED,
            "numbers with grouped digits",
            "say the decimal mark, decimal='.' or decimal=',' (--option decimal=,), or ",
        ),
        (_WITH_UNIT, "numbers with a sign", "remove the sign, or "),
    ):
        like = [word for word in words if pattern.fullmatch(word)]
        if 2 * len(like) > len(words):
            raise TacitError(
                f"column {name!r} holds {what} such as {like[0]!r}; "
                f"{remedy or comma_remedy(like[0])}{otherwise}"
            )
