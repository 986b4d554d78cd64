"""Files that hold tables: text with commas, semicolons or tabs, Parquet, Excel."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.checks import needing
from tacit.data.cells import MISSING, Table, check_header, table_of
from tacit.errors import TacitError
from tacit.files import reading

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".parquet", ".xlsx")
MARKS = (".", ",")
"""What stands before the fraction of a number."""
_SAID = re.compile(r"sep=([,;|\t])\r?\n")
"""The line in which Excel says what separates cells."""
_WITH_COMMA, _WITH_POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d*\.\d+")


def as_table(thing: Any, encoding: str | None = None, decimal: str | None = None) -> Table:
    """Columns of anything that is a table, or the path of one."""
    if isinstance(thing, (str, Path)):
        return read_table(thing, encoding, decimal)
    table = table_of(thing)
    return table if decimal is None else _with_mark(table, decimal)


def read_table(path: str | Path, encoding: str | None = None, decimal: str | None = None) -> Table:
    """The columns of a .csv, .tsv (or either with .gz), .txt, .parquet or .xlsx file.

    CSV cells are text (objects, `None` for gaps): whether "007" is a number depends on what the
    column is used for. Lines without a filled cell are no rows, and columns without a name and a
    filled cell are no columns: spreadsheets write both.

    `encoding` is that of text, by default UTF-8 (or UTF-16 where the file says so). `decimal` is
    the decimal mark of numbers in text, "." or ",", and the other one groups digits. Unless it is
    said, a comma in a number is refused; but where cells are separated by semicolons, it is the
    mark.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise TacitError(f"{path} is not a table that can be read; {instead_of(name)}")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TacitError(f"{path} {what}; pass the path of a table ({', '.join(SUFFIXES)})")
    if name.endswith(".parquet"):
        table = _read_parquet(path)
    elif name.endswith(".xlsx"):
        table = _read_excel(path)
    else:
        table = _read_text(_text(path, encoding), path, decimal)
    return table if decimal is None else _with_mark(table, decimal)


def instead_of(name: str) -> str:
    """What to do with a file of another kind."""
    if name.lower().endswith((".xls", ".xlsm", ".xlsb", ".ods", ".numbers")):
        return "save it as .csv (in Excel: CSV UTF-8) or .xlsx"
    return f"expected {', '.join(SUFFIXES)}"


def _with_mark(table: Table, decimal: str) -> Table:
    if decimal not in MARKS:
        raise TacitError(f"decimal is {decimal!r}, expected one of: {' '.join(MARKS)}")
    table.decimal = decimal
    return table


def _text(path: Path, encoding: str | None) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.name.lower().endswith(".gz") else raw
        said = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = raw.decode(encoding or ("utf-16" if said else "utf-8"))
        return text.removeprefix("\ufeff")
    except LookupError:
        raise TacitError(
            f"there is no encoding {encoding!r}; common ones are utf-8, cp1252 (Western Windows), "
            "latin-1 and utf-16"
        ) from None
    except UnicodeError as error:
        place = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        raise TacitError(
            f"{path} is not {encoding or 'UTF-8'} text{place}; save it as UTF-8 (in Excel: CSV "
            "UTF-8), or say the encoding that it has, such as encoding='cp1252' (--encoding cp1252)"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise TacitError(f"{path} cannot be read: {error}; check the file") from None


def _read_text(text: str, path: Path, decimal: str | None) -> Table:
    if not text.strip():
        raise TacitError(f"{path} is empty; expected a header line and rows")
    said = _SAID.match(text)
    delimiter = said[1] if said else _delimiter(text)
    lines = _lines(text, delimiter, path)
    table = _table(itertools.islice(lines, 1 if said else 0, None), path)
    if delimiter == ";" and decimal is None:
        table.decimal = _mark(table)
    return table


def _lines(text: str, delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that has any, and where it begins; one cell may go over several."""
    begins = 1
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in lines:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield begins, cells
            begins = lines.line_num + 1
    except csv.Error as error:
        raise TacitError(f"line {begins} of {path} is not CSV: {error}; correct it") from None


def _table(lines: Iterable[tuple[int, Sequence[Any]]], path: Path) -> Table:
    """A header and rows, none of them empty, as columns."""
    header: list[str] | None = None
    rows: list[Sequence[Any]] = []
    numbers: list[int] = []
    for place, row in lines:
        if header is None:
            header = ["" if cell is None else str(cell).strip() for cell in row]
            continue
        if len(row) != len(header):
            raise TacitError(
                f"line {place} of {path} has {len(row)} cells, but the header has "
                f"{len(header)}; correct the line"
            )
        rows.append(row)
        numbers.append(place)
    if header is None or not rows:
        raise TacitError(f"{path} has a header but no rows; add rows")
    columns = []
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        column = np.empty(len(rows), dtype=object)
        column[:] = [None if isinstance(c, str) and c in MISSING else c for c in cells]
        if name or any(cell is not None for cell in column.tolist()):
            columns.append((name, column))
    check_header([name for name, _ in columns], str(path))
    table = Table(columns)
    table.source = path.name
    table.lines = np.array(numbers)
    return table


def _delimiter(text: str) -> str:
    """The one that cuts the header into most cells."""
    header = next(line for line in io.StringIO(text, newline="") if line.strip())
    return max(",;\t|", key=lambda mark: len(next(csv.reader([header], delimiter=mark))))


def _mark(table: Table) -> str | None:
    """The decimal mark of cells that semicolons separate; with both, nobody knows what 1.234 is."""
    comma, point = (_first(table, pattern) for pattern in (_WITH_COMMA, _WITH_POINT))
    if comma and point:
        raise TacitError(
            f"{table.source} holds {comma} and {point}; say which is the decimal mark: pass "
            "decimal=',' or decimal='.' (--option decimal=,)"
        )
    return "," if comma else None


def _first(table: Table, pattern: re.Pattern[str]) -> str | None:
    for name, cells in table.items():
        for row, cell in enumerate(cells.tolist()):
            if cell is not None and pattern.fullmatch(cell):
                return f"{cell!r} in {table.where(row)}, column {name!r}"
    return None


def _read_parquet(path: Path) -> Table:
    with needing("pyarrow", f"reading {path}", "data"):
        import pyarrow
        import pyarrow.parquet
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


def _read_excel(path: Path) -> Table:
    """The first sheet."""
    with needing("openpyxl", f"reading {path}", "excel", ", or save it as CSV UTF-8"):
        import openpyxl
    with reading(path, "it is not an Excel file, or save it as CSV UTF-8"):
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        rows = [
            (place, [cell.strip() if isinstance(cell, str) else cell for cell in row])
            for place, row in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1)
            if any(cell not in (None, "") for cell in row)
        ]
        book.close()
    wide = max((len(row) for _, row in rows), default=0)
    return _table(((place, [*row, *[None] * (wide - len(row))]) for place, row in rows), path)
