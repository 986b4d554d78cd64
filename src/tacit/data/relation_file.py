"""How tasks are publicly related, from a CSV file.

Two forms: a header `task,cluster` and a line for each task; or a square matrix Ω under a header
that names all tasks, its rows in the same order as its columns. The order of the tasks in the file
is the file's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tacit.data.cells import Table, missing, numbers_in, texts
from tacit.data.federation import Federation
from tacit.data.reading import read_table
from tacit.errors import TacitError

CLUSTERS = ("task", "cluster")
SHOWN = 3
"""Names that an error lists."""


def with_relation(federation: Federation, path: str | Path) -> Federation:
    """The same tasks, with the clusters or the Ω that the file gives them."""
    table = read_table(path)
    if table.keys() == set(CLUSTERS):
        return federation.clustered(_clusters(federation, table))
    return federation.related(_matrix(federation, table))


def _clusters(federation: Federation, table: Table) -> dict[str, str]:
    columns = [texts(table[name], name) for name in CLUSTERS]
    for name, cells in zip(CLUSTERS, columns, strict=True):
        table.refuse_gaps(missing(cells), name, name)
    tasks, groups = columns
    found: dict[str, str] = {}
    for row, (task, group) in enumerate(zip(tasks, groups, strict=True)):
        if task in found:
            raise TacitError(f"{table.where(row)} names task {task!r} again: one line for each")
        found[task] = group
    _check_tasks(federation, found, table.source)
    return found


def _matrix(federation: Federation, table: Table) -> np.ndarray:
    if table.rows != len(table):
        raise TacitError(
            f"{table.source} has {len(table)} columns and {table.rows} rows: a header task,cluster "
            "is needed, or a square matrix whose header names all tasks"
        )
    _check_tasks(federation, table, table.source)
    values = []
    for name in table:
        _, numbers, _ = numbers_in(table, name)
        table.refuse(~np.isfinite(numbers), name, lambda _: "a number is needed; correct the cell")
        values.append(numbers)
    place = {name: position for position, name in enumerate(table)}
    order = [place[name] for name in federation.names]
    return np.stack(values, axis=1)[np.ix_(order, order)]


def _check_tasks(federation: Federation, named: Iterable[str], source: str) -> None:
    """Everyone must be there, and nobody else."""
    given, known = set(named), set(federation.names)
    absent = [name for name in federation.names if name not in given]
    if absent:
        raise TacitError(f"{source} lacks {_listed(absent)}: every task of the data must be in it")
    strange = [name for name in named if name not in known]
    if strange:
        raise TacitError(f"{source} names {_listed(strange)}, not in the data: remove them from it")


def _listed(names: list[str]) -> str:
    some = ", ".join(map(repr, names[:SHOWN]))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"task{'s' if len(names) > 1 else ''} {some}{more}"
