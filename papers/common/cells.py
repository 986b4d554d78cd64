"""A CSV file of finished runs: what is in it is not run again."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tacit.methods import Method


class CellLine(Protocol):
    """A dataclass of numbers and words, one line of the file."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this run from all others."""
        ...


Kept = TypeVar("Kept", bound=CellLine)
KINDS = {"float": float, "int": int}
ADDED = {"steepest": None, "units": "own", "shorten": False}
"""Settings that methods have got since the first runs were kept, where they change nothing."""


def deciding(method: Method) -> dict[str, Any]:
    """The settings that tell a run from others; what a method gained later loses no kept run."""
    settings = dataclasses.asdict(method)
    return {k: v for k, v in settings.items() if k not in ADDED or v != ADDED[k]}


class CellFile(Generic[Kept]):
    """Read at the start, appended to after each run, so that a grid can be stopped at any time."""

    def __init__(self, path: Path, kind: type[Kept]) -> None:
        self._path = path
        self._columns = dataclasses.fields(kind)
        self.rows: dict[tuple[Any, ...], Kept] = {}
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                for line in csv.DictReader(file):
                    row = kind(**{f.name: self._value(f, line) for f in self._columns})
                    self.rows[row.key] = row

    @staticmethod
    def _value(column: dataclasses.Field[Any], line: dict[str, str]) -> Any:
        return KINDS.get(str(column.type), str)(line[column.name])

    def begin(self, name: str) -> bool:
        """Whether no other process has begun what is called so.

        Delete the folder of names where processes were stopped.
        """
        folder = self._path.with_suffix(".begun")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def add(self, row: Kept) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = not self._path.is_file()
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(column.name for column in self._columns)
            writer.writerow(dataclasses.astuple(row))
        self.rows[row.key] = row
