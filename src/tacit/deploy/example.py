"""A first draft of a consortium's file, from a table that is an example of what silos have."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path

import numpy as np

from tacit.data.cells import Table, clean, gaps_in, numbers, numeric_or_none, texts
from tacit.data.columns import GAP, ZERO_ONE, Column
from tacit.data.reading import read_table
from tacit.data.schema import Schema
from tacit.data.targets import encode
from tacit.errors import TacitError
from tacit.experiment.toml import make_method
from tacit.methods import AUTO, ExchangeMethod

NO_TASK = ""
"""A name that no column of a file can have."""


def write_example(
    path: str | Path,
    *,
    target: str | Sequence[str],
    silos: Sequence[str] = (),
    task: str | None = None,
    drop: Sequence[str] = (),
    name: str = "consortium",
    method: str = AUTO,
    epsilon: float | None = 2.0,
) -> str:
    """The text of a file for `Agreement.read`.

    `task` is the column that names the silo of each row, where the example has one; it names the
    silos if `silos` are not given. Methods on the exchange have no privacy, whatever `epsilon` is.
    """
    table = read_table(path)
    if task is None and not silos:
        raise TacitError("nobody knows the silos: give their names, or the column that has them")
    names = list(silos) or list(dict.fromkeys(texts(table.column(str(task)), str(task)).tolist()))
    if None in names:
        raise TacitError(f"column {task!r} has empty cells: fill them in, or give the silos' names")
    table[NO_TASK] = np.zeros(table.rows)
    targets = [target] if isinstance(target, str) else list(target)
    drop = [drop] if isinstance(drop, str) else list(drop)
    unused = [*drop, *([] if task is None else [task])]
    schema = Schema.fit(table, NO_TASK, targets, drop=unused)
    made = None if method == AUTO else make_method(method, {})
    columns = [
        f"{_key(column.name)} = {{ {_column(table, column)} }}"
        for column in schema.columns
        if column.features
    ]
    private = epsilon is not None and not isinstance(made, ExchangeMethod)
    return "\n".join(
        [
            "[consortium]",
            f"name = {_toml(name)}",
            f"silos = {_toml(names)}",
            "",
            f"# Ranges, categories and classes come from an example, {table.source}. All silos see",
            "# them. Check them, and change what is not common knowledge, before you send this on.",
            "[data]",
            *_target(table, target, targets),
            "validation = 0.2  # mixed and additive models learn from these rows, too",
            "test = 0.2",
            "split_seed = 0",
            "",
            "[data.columns]",
            *columns,
            "",
            "[method]",
            f"name = {_toml(method)}",
            "",
            *(["[privacy]", f"epsilon = {float(epsilon or 0)!r}", ""] if private else []),
            "[run]",
            *([] if made is None else [f"rounds = {made.usual_rounds}", "cohort = 1.0"]),
            'model = "linear"',
            "",
        ]
    )


def _target(table: Table, given: str | Sequence[str], names: Sequence[str]) -> list[str]:
    if not isinstance(given, str):
        return [f"target = {_toml(list(names))}", 'kind = "multilabel"']
    cells, gaps = clean(table[given], given), gaps_in(table, given)
    table.refuse_gaps(gaps, given)
    numbers = numeric_or_none(table, given, "choose another target")
    found = encode(cells if numbers is None else numbers, None, f"column {given!r}")
    span = _range(found.y) if found.kind == "regression" else f"labels = {_toml(found.labels)}"
    return [f"target = {_toml(given)}", f"kind = {_toml(found.kind)}", span]


def _column(table: Table, column: Column) -> str:
    if column.categories is not None:
        words = [category for category in column.categories if category != GAP]
        return f"categories = {_toml(words)}{', gaps = true' * (GAP in column.categories)}"
    if column.pair == ZERO_ONE:
        return f"flag = true{', gaps = true' * column.gaps}"
    return f"{_range(numbers(table, column.name))}{', gaps = true' * column.gaps}"


def _range(values: np.ndarray) -> str:
    """Least and largest value, rounded outwards to two digits."""
    low, high = (
        float(Context(prec=2, rounding=outward).create_decimal(repr(float(end))))
        for outward, end in ((ROUND_FLOOR, np.nanmin(values)), (ROUND_CEILING, np.nanmax(values)))
    )
    return f"range = [{low:g}, {high:g}]"


def _toml(value: str | Sequence[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
