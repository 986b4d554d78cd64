"""`tacit methods` and `tacit data`: what there is, before anything is trained."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import data
from tacit.cli.options import OPTION, Categorical, Drop, DropUnlabelled, Json, names, pairs, targets
from tacit.data.cells import unlabelled
from tacit.data.lacking import in_words, lacking
from tacit.data.numerals import READ
from tacit.data.reading import SUFFIXES, read_table
from tacit.data.schema import Schema, write_schema
from tacit.errors import TacitError
from tacit.methods import METHODS
from tacit.privacy import NOT_COVERED

DERIVED = (
    "derived from all rows, private ones too; read it and correct it before you share it or give "
    "it to --schema as public constants"
)
"""What a schema is that was just written."""
FEW = 8
"""Features that are named before it says how many there are."""


def methods(as_json: Json = False) -> None:
    """The methods, their settings and defaults."""
    described = {
        name: {
            "about": (kind.__doc__ or "").strip().splitlines()[0],
            "channel": kind.channel,
            "settings": {field.name: field.default for field in dataclasses.fields(kind)},
        }
        for name, kind in METHODS.items()
    }
    if as_json:
        print(json.dumps(described))
        return
    table = Table("method", "channel", "what it does", "settings and defaults", show_lines=True)
    for name, about in described.items():
        settings = ", ".join(f"{key}={value}" for key, value in about["settings"].items())
        table.add_row(name, about["channel"], about["about"], settings)
    console = Console()
    console.print(table)
    console.print(
        "billboard: noisy sums, with a guarantee. exchange: a curator sees all models, and nothing "
        "is protected between clients. nothing: every task by itself."
    )


def data_sets(
    source: Annotated[
        str | None, typer.Argument(help="A file or a name: describe it instead of listing.")
    ] = None,
    task: Annotated[str | None, OPTION(help="Column that says whose row it is.")] = None,
    target: Annotated[str | None, OPTION(help="Column to predict.")] = None,
    event: Annotated[
        str | None, OPTION(help="Column of 0 and 1: whether the event came at that time.")
    ] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    drop_unlabelled: DropUnlabelled = False,
    min_rows: Annotated[int | None, OPTION(help="Leave out tasks with fewer rows.")] = None,
    encoding: Annotated[str | None, OPTION(help="Of text that is not UTF-8.")] = None,
    option: Annotated[
        list[str] | None, OPTION(help="Any other option: name=value, such as path=DIR.")
    ] = None,
    write_schema: Annotated[
        Path | None,
        OPTION(help="Write what was decided by looking at all rows, for --schema of tacit train."),
    ] = None,
    as_json: Json = False,
) -> None:
    """The data sets known by name, or what tacit makes of a file, before any training."""
    if source is not None:
        given = {"task": task, "target": targets(target), "min_rows": min_rows}
        given |= {"encoding": encoding, "event": event}
        given |= {"drop": names(drop), "categorical": names(categorical)}
        given |= {"drop_unlabelled": drop_unlabelled or None}
        options = {key: value for key, value in given.items() if value is not None}
        options |= pairs("--option", option)
        found, without = data.load(source, **options), 0
        if isinstance(found.schema, Schema) and source.endswith(SUFFIXES):
            table = read_table(source, encoding)
            gone = unlabelled(table, found.schema.target, options.get("kind") == "multilabel")
            without = int(gone.sum())
        written = None if write_schema is None else _written(found, write_schema)
        _describe(found, without, written, as_json)
        return
    if write_schema is not None:
        raise TacitError("--write-schema needs a table: tacit data FILE --task … --target …")
    sources = data.sources()
    if as_json:
        print(json.dumps([dataclasses.asdict(source) for source in sources]))
        return
    table = Table("name", "what it is", "kind of target", "needs")
    for known in sources:
        table.add_row(known.name, known.title, known.kind, Text(known.needs))  # has brackets
    console = Console()
    console.print(table)
    console.print(
        f"Or a file: {', '.join(SUFFIXES)} (with --task and --target), .npz (x, y, tasks). "
        "Files of a named set that lie elsewhere: --option path=DIR"
    )


def _written(federation: Any, path: Path) -> str:
    schema = federation.schema
    if schema is None or schema.kind is None:
        raise TacitError(
            f"{federation.source} has no schema to write: give a table ({', '.join(SUFFIXES)})"
        )
    write_schema(dataclasses.replace(schema, tasks=tuple(federation.names)), path)
    return f"{path}: {DERIVED}"


def _describe(federation: Any, without: int, schema: str | None, as_json: bool) -> None:
    counts = federation.train.counts
    facts = {
        "source": federation.source,
        "tasks": len(federation),
        "target": federation.kind,
        "features": list(federation.features),
        "training rows": int(counts.sum()),
        "rows of a task": [int(counts.min()), int(counts.median()), int(counts.max())],
        "rows_label": NOT_COVERED,
        "assumed public": list(federation.assumptions),
        "leaks": list(federation.leaks),
    }
    facts |= {"rows without a target": without} if without else {}
    facts |= {} if federation.schema is None else {"cells": READ}
    naming = federation.naming
    facts |= {"different in every row": list(naming)} if naming else {}
    absent = lacking(federation)
    facts |= {"lacking": absent, "lacking_label": NOT_COVERED} if absent else {}
    facts |= {} if schema is None else {"schema": schema}
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    smallest, median, largest = facts["rows of a task"]
    sizes = f"{smallest} (smallest), {median} (median), {largest} (largest)"
    shown = facts | {
        "features": _some(federation),
        "training rows": f"{facts['training rows']}: {NOT_COVERED}",
        "rows of a task": f"{sizes}: {NOT_COVERED}",
    }
    if without:
        shown["rows without a target"] = f"{without}, left out: {NOT_COVERED}"
    if naming:
        shown["different in every row"] = only_names(naming)
    shown["leaks"] = shown["leaks"] or "none"
    del shown["rows_label"]  # it stands beside the figures
    if absent:
        del shown["lacking_label"]
        shown["lacking"] = f"{in_words(absent, len(federation))}: {NOT_COVERED}"
    table = Table(show_header=False)
    for name, value in shown.items():
        words = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add_row(name, Text(words))
    Console().print(table)


def only_names(columns: Sequence[str]) -> str:
    """What may be wrong with columns that are different in every row."""
    return (
        f"{', '.join(columns)}: taken for measurements; if they only name rows, leave them out "
        f"(--drop {','.join(columns)})"
    )


def _some(federation: Any) -> str:
    """How many features there are, and the first of them; images have a shape and no names."""
    named = federation.features
    if not named:
        return "values of shape " + " × ".join(map(str, federation.input_shape))
    rest = "; …" if len(named) > FEW else ""
    return f"{len(named)}: {'; '.join(map(str, named[:FEW]))}{rest}"
