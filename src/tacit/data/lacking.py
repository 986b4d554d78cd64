"""What a task does not have, and others have: columns, and categories when it predicts.

Cells that are not there are gaps, which is said and is no mistake.
"""

from __future__ import annotations

import numpy as np

from tacit.checks import did_you_mean
from tacit.data.cells import Table, texts
from tacit.data.columns import GAP
from tacit.data.federation import PARTS, Federation
from tacit.data.schema import Schema
from tacit.words import some


def completed(schema: Schema, table: Table) -> tuple[Table, str | None]:
    """New rows with all columns of the schema, and a sentence about what is unlike training rows.

    Columns that are absent are gaps. The sentence is None where nothing is new.
    """
    absent = [column.name for column in schema.columns if column.name not in table]
    if len(absent) == len(schema.columns):
        table.column(absent[0])  # not one of them: another file was meant
    whole = table.only(np.arange(table.rows))
    whole |= {name: np.full(table.rows, None, dtype=object) for name in absent}
    said = [f"there is no column {name!r}{did_you_mean(name, table)}" for name in absent]
    for column in schema.columns:
        if column.categories is not None:
            found = set(texts(whole[column.name], column.name).tolist()) - {None}
            new = sorted(found - set(column.categories))
            if new:
                shown = some(map(repr, new))
                said.append(f"column {column.name!r} has {shown}, unknown in training")
    return whole, f"{'; '.join(said)}: this counts as missing" if said else None


def lacking(federation: Federation) -> dict[str, list[str]]:
    """Columns that some tasks have no value of, and those tasks; computed over rows of all tasks.

    A gap has its own 0/1 column, which is not scaled.
    """
    gaps = [k for k, name in enumerate(federation.features) if name.endswith(GAP)]
    if not gaps or federation.input_shape != (len(federation.features),):
        return {}
    rows = np.zeros(len(federation))
    there = np.zeros((len(federation), len(gaps)))
    for part in map(federation.part, PARTS):
        counts = part.counts.cpu().numpy()
        task = np.repeat(np.arange(len(federation)), counts)
        np.add.at(there, task, part.x[:, gaps].cpu().numpy() < 0.5)
        rows += counts
    found = {}
    for place, k in enumerate(gaps):
        tasks = np.flatnonzero((there[:, place] == 0) & (rows > 0))
        if len(tasks):
            name = federation.features[k].removesuffix(GAP).rstrip(" =")
            found[name] = [federation.names[task] for task in tasks.tolist()]
    return found


def in_words(found: dict[str, list[str]], tasks: int) -> str:
    """One sentence about all of them."""
    each = [
        f"{name} in {len(without)} of {tasks} ({some(without)})" for name, without in found.items()
    ]
    return (
        f"some tasks have no value at all of a column, which counts as missing: {'; '.join(each)}"
    )
