"""A silo's own table against the agreed one: everything that is wrong with it, and its rows.

Nothing here leaves the silo. Columns that were not agreed are never looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.checks import did_you_mean
from tacit.data.cells import Table, missing, numbers_in, texts
from tacit.data.columns import GAP, Column
from tacit.data.federation import NUMBERS, PARTS
from tacit.data.heads import Heads
from tacit.data.lacking import completed
from tacit.data.persons import Owners, owners_of
from tacit.data.preprocess import Preprocessing, TargetScaling, _safe, fit_target, moments
from tacit.data.reading import read_table
from tacit.data.schema import Schema
from tacit.data.split import PartRows, SplitRule, apart, split
from tacit.data.survival import cells
from tacit.data.targets import class_codes, no_count
from tacit.deploy.terms import Own, Terms
from tacit.errors import TacitError
from tacit.methods import Mixed, SharedShapes
from tacit.words import counted

FOUND = "found"
"""The scale of a column whose unit persons vote for."""
AGREE = "with all silos"
"""What the file of the consortium says is changed by everybody or by nobody."""


@dataclass(frozen=True)
class Checked:
    """What a silo should know about its table before it takes part."""

    problems: tuple[str, ...]
    """Why it cannot; one sentence each."""
    warnings: tuple[str, ...] = ()
    """Why it may learn little."""
    rows: int = 0


def check(terms: Terms, silo: str, path: str | Path, person: str | None = None) -> Checked:
    """All that is wrong with a silo's table, found at once; nothing is sent or written."""
    labels = _held(terms, silo)
    try:
        found = _check(terms, silo, labels, read_table(path))
        if terms.of_persons and not found.problems:
            own_rows(terms, silo, path, person)  # refuses rows of nobody
        return found
    except TacitError as error:
        return Checked((str(error),))


def own_rows(terms: Terms, silo: str, path: str | Path, person: str | None = None) -> Own:
    """A silo's rows as its model sees them; they are split, scaled and filled in by itself alone.

    Where persons are protected, the column `person` says whose row each is, and nothing is done to
    a row that depends on another person's (`data.persons`). More of them than fit the agreed δ are
    refused here, before anybody is connected to: a reply with the reason would tell how many.

    They are what `tacit.data.from_table` makes of them, but for two things: which numbers are not
    scaled because they are 0 or 1 was agreed, and so were the classes, whichever rows there are.
    """
    labels = _held(terms, silo)
    table = read_table(path)
    found = _check(terms, silo, labels, table).problems
    if found:
        more = f" (and {len(found) - 1} more such problems)" if found[1:] else ""
        raise TacitError(f"{found[0]}{more}")
    schema = schema_of(terms.data)
    x, _ = schema.matrix(completed(schema, table)[0])
    y = _targets(terms, labels, table)
    owners = _owners(terms, table, person, x, y)
    parts = _parts(terms, silo, table.rows)
    persons = np.zeros(table.rows, dtype=np.int64)
    if owners is not None:
        codes = np.zeros(table.rows, dtype=np.int64)
        persons = owners.at(np.arange(table.rows), codes)
        parts = apart(codes, [silo], _rule(terms), persons)
        privacy = terms.make_privacy()
        assert privacy is not None
        privacy.check_crowd(len(np.unique(persons[parts["train"].rows])))
    train = parts["train"]
    common = owners is not None or isinstance(terms.make_method(), Mixed | SharedShapes)
    preprocessing = _preprocessing(x[train.rows], terms.data, common)
    if owners is not None:  # gaps are filled with what everybody knows
        preprocessing = Preprocessing(preprocessing.shift, preprocessing.scale)
    scaled = preprocessing.apply(x, 0)
    for column in terms.unscaled:  # or will know
        scaled[:, column] = torch.from_numpy(x[:, column])
    mode: TargetScaling = "none"
    if terms.kind == "regression":
        mode = _unit(terms.data["range"]) if common else "task"
    scaling, *_ = fit_target(y[train.rows], train.offsets, mode)
    if scaling is not None:
        y = (y - scaling.shift.double().numpy()) / scaling.scale.double().numpy()
    targets = torch.from_numpy(y if terms.kind == "multiclass" else y.astype(np.float32))
    return Own(
        {name: (scaled[parts[name].rows], targets[parts[name].rows]) for name in PARTS},
        owners and {name: torch.from_numpy(persons[parts[name].rows]) for name in PARTS},
        preprocessing,
        scaling,
        schema,
    )


def _owners(
    terms: Terms, table: Table, person: str | None, x: np.ndarray, y: np.ndarray
) -> Owners | None:
    """Whose rows they are; None where whole silos are protected."""
    unit = (terms.privacy or {}).get("unit", "task")
    if (unit == "person") != (person is not None):
        needed = "leave person out" if person is not None else 'add person = "COLUMN"'
        raise TacitError(f"these terms protect every {unit}, so in silo.toml: {needed}")
    if person is None:
        return owners_of(unit == "row", x, y)
    if person not in table:
        raise TacitError(f"{table.source} has no column {person!r}{did_you_mean(person, table)}")
    return owners_of(table[person], x, y)


def schema_of(data: Mapping[str, Any]) -> Schema:
    """How an agreed table becomes a matrix."""
    columns = [
        Column(column["name"], gaps=column["gaps"])
        if column["categories"] is None
        else Column(column["name"], (*column["categories"], *([GAP] if column["gaps"] else [])))
        for column in data["columns"]
    ]
    over_time = {"kind": "survival", "cuts": tuple(data["cuts"])} if "cuts" in data else {}
    return Schema(tuple(columns), "silo", tuple(data["target"]), **over_time)


def unscaled_of(data: Mapping[str, Any]) -> tuple[int, ...]:
    """The places of columns whose unit the run is to find."""
    places = itertools.accumulate(
        (len(column.features) for column in schema_of(data).columns), initial=0
    )
    return tuple(
        place
        for place, agreed in zip(places, data["columns"], strict=False)
        if agreed.get("scale") == FOUND
    )


def _held(terms: Terms, silo: str) -> list[bool]:
    """Which target columns this silo predicts."""
    index, count = terms.index(silo), len(terms.data["target"])
    if terms.heads is None:
        return [True] * count
    return Heads.from_json(terms.heads).holds[index].tolist()


def _parts(terms: Terms, silo: str, rows: int) -> dict[str, PartRows]:
    return split(np.zeros(rows, dtype=np.int64), [silo], _rule(terms))


def _rule(terms: Terms) -> SplitRule:
    """The shares that were agreed; a method that judges by no rows learns from those, too."""
    data = terms.data
    validation = data["validation"] if terms.make_method().judges_by_rows else 0.0
    return SplitRule(validation, data["test"], data["split_seed"])


def _preprocessing(train: np.ndarray, data: Mapping[str, Any], common: bool) -> Preprocessing:
    """Numbers by constants that were agreed; without any by the silo's own mean and deviation, or
    by the range that was agreed (`common`).

    What is 0 or 1 stays as it is. Gaps are filled by the silo's own mean, or by the centre of the
    range where it has no value.
    """
    mean, sd = moments(train, np.array([0, len(train)]))
    shift, scale = np.zeros_like(mean), np.ones_like(sd)
    place = 0
    for agreed, column in zip(data["columns"], schema_of(data).columns, strict=True):
        if agreed["range"] is not None:
            own = (mean[0, place], _safe(sd)[0, place])
            usual = _unit(agreed["range"]) if common else own
            known = (0.0, 1.0) if agreed.get("scale") == FOUND else agreed.get("scale")
            shift[0, place], scale[0, place] = known or usual
        place += len(column.features)
    if common:  # a silo without any value has no mean of its own
        mean = np.where(np.isnan(train).all(axis=0), shift, mean)
    return Preprocessing(*(torch.from_numpy(side) for side in (shift, scale, mean)))


def _unit(span: Sequence[float]) -> tuple[float, float]:
    """Centre and spread of numbers that are known to lie in this range: public constants."""
    low, high = map(float, span)
    return (low + high) / 2, max((high - low) / 4, 1e-12)


def _targets(terms: Terms, held: list[bool], table: Table) -> np.ndarray:
    """float64 [N], int64 [N] (multiclass) or float64 [N, labels] (NaN: not known or not held)."""
    names = terms.data["target"]
    if terms.kind == "survival":
        time, event = (numbers_in(table, name)[1] for name in names)
        return cells(time, event > 0, terms.data["cuts"])
    if terms.kind in NUMBERS:
        return numbers_in(table, names[0])[1]
    if terms.kind == "multilabel":
        unknown = np.full(table.rows, np.nan)
        columns = (
            numbers_in(table, name)[1] if mine else unknown
            for name, mine in zip(names, held, strict=True)
        )
        return np.stack(list(columns), axis=1)
    codes = _classes(table, terms)
    return codes.astype(np.int64 if terms.kind == "multiclass" else np.float64)


def _classes(table: Table, terms: Terms) -> np.ndarray:
    """The number of each row's class; -1 for a class that was not agreed."""
    name = terms.data["target"][0]
    return class_codes(texts(table[name], name), terms.labels)


def _check(terms: Terms, silo: str, held: list[bool], table: Table) -> Checked:
    data = terms.data
    problems = [p for column in data["columns"] for p in _column(table, column)]
    mine = [name for name, here in zip(data["target"], held, strict=True) if here]
    wrong = [p for name in mine for p in _target(table, terms, name)]
    problems += wrong
    needed = _rule(terms).needed
    if table.rows < needed:
        problems.append(
            f"{table.source} has {counted(table.rows, 'row')}, too few to split: {needed} are "
            f"needed, or agree on other shares of validation and test {AGREE}"
        )
    warnings = [
        f"column {column['name']!r} is not in {table.source}, and counts as missing in every row"
        for column in data["columns"]
        if _absent(table, column)
    ]
    if not wrong and table.rows >= needed:
        warnings += _warnings(terms, silo, held, table)
    return Checked(tuple(problems), tuple(warnings), table.rows)


def _absent(table: Table, column: Mapping[str, Any]) -> bool:
    """Whether the silo lacks a column that may have gaps, and not only by another spelling."""
    name = column["name"]
    return column["gaps"] and name not in table and not did_you_mean(name, table)


def _column(table: Table, column: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one agreed column."""
    name = column["name"]
    if _absent(table, column):
        return
    if unreadable := _unreadable(table, name):
        yield unreadable
        return
    gaps = _gaps(table, name, column["categories"] is None)
    if not column["gaps"]:
        yield from _said(table, name, gaps, "is empty", f"fill it in, or agree on gaps {AGREE}")
    if column["categories"] is None:
        yield from _number(table, name, column["range"])
        return
    cells = texts(table[name], name)
    known = {*column["categories"], None, *([GAP] if column["gaps"] else [])}
    unknown = np.array([cell not in known for cell in cells.tolist()])
    yield from _unknown(table, name, unknown, "category", column["categories"])


def _target(table: Table, terms: Terms, name: str) -> Iterator[str]:
    """What is wrong with one target column."""
    if unreadable := _unreadable(table, name):
        yield unreadable
        return
    gaps = _gaps(table, name, terms.kind in (*NUMBERS, "multilabel", "survival"))
    if terms.kind != "multilabel":
        yield from _said(table, name, gaps, "is empty", "fill it in, or remove the rows")
    elif gaps.all():  # some of them are labels that nobody wrote down
        yield (
            f"column {name!r} of {table.source} is empty in every row: fill it in, or agree {AGREE}"
            " that this one does not predict it"
        )
    if terms.kind == "survival" and name == terms.data["target"][0]:
        _, numbers, wrong = numbers_in(table, name)
        yield from _said(table, name, wrong, "is not a number", "correct it")
        yield from _said(table, name, numbers < 0, "is a time below 0", "correct it")
    elif terms.kind == "survival":
        yield from _number(table, name, None)
    elif terms.kind in (*NUMBERS, "multilabel"):
        yield from _number(table, name, terms.data["range"])
        if terms.kind == "count":
            numbers = numbers_in(table, name)[1]
            wrong = no_count(numbers) & ~np.isnan(numbers)
            yield from _said(table, name, wrong, "is not a whole number from 0", "correct it")
    else:
        unknown = (_classes(table, terms) < 0) & ~gaps
        yield from _unknown(table, name, unknown, "class", terms.labels)


def _gaps(table: Table, name: str, numeric: bool) -> np.ndarray:
    """Which cells are missing; in a column that was agreed to be numbers, "-" and "." are too."""
    cells, numbers, wrong = numbers_in(table, name)
    return np.isnan(numbers) & ~wrong if numeric else missing(cells)


def _unreadable(table: Table, name: str) -> str | None:
    if name not in table:
        meant = did_you_mean(name, table)
        return f"{table.source} has no column {name!r}: add it, or rename one{meant}"
    if table[name].dtype.kind in "Mmc":
        return (
            f"column {name!r} of {table.source} holds dates, times or complex numbers: turn them "
            "into numbers or text"
        )
    return None


def _number(table: Table, name: str, span: list[float] | None) -> Iterator[str]:
    """Problems: cells that are not numbers, or lie outside of `span`; without it, not 0 or 1."""
    _, numbers, wrong = numbers_in(table, name)
    yield from _said(table, name, wrong, "is not a number", "correct it")
    if span is None:
        off, what = (numbers != 0) & (numbers != 1), "is neither 0 nor 1"
        remedy = f"correct it, or agree on another kind of column {AGREE}"
    else:
        off = (numbers < span[0]) | (numbers > span[1])
        what = f"is outside {span[0]:.12g} to {span[1]:.12g}"
        remedy = f"correct it, or agree on another range {AGREE}"
    yield from _said(table, name, off & ~np.isnan(numbers), what, remedy)


def _unknown(
    table: Table, name: str, which: np.ndarray, what: str, known: Iterable[str]
) -> Iterator[str]:
    remedy = f"write one of {', '.join(map(repr, known))}, or agree on another list {AGREE}"
    yield from _said(table, name, which, f"is not an agreed {what}", remedy)


def _said(table: Table, name: str, which: np.ndarray, what: str, remedy: str) -> Iterator[str]:
    """One sentence about the cells `which` of a column, if there are any."""
    if which.any():
        row = int(np.argmax(which))
        cell = texts(table[name][row : row + 1], name)[0]
        shown = "" if cell is None else f" {cell!r}"
        yield (
            f"column {name!r} {what} in {counted(int(which.sum()), 'row')}, first{shown} in "
            f"{table.where(row)}: {remedy}"
        )


def _warnings(terms: Terms, silo: str, held: list[bool], table: Table) -> Iterator[str]:
    """Targets that training rows do not vary in: nothing can be learnt from them."""
    train = _parts(terms, silo, table.rows)["train"].rows
    y = _targets(terms, held, table)[train].reshape(len(train), -1)
    if terms.kind == "survival":
        if not (y < 0).any():
            yield (
                f"column {terms.data['target'][1]!r} has no event until the last of the cuts in "
                f"the {counted(len(train), 'row')} to train on, so there is little to learn"
            )
        return
    for values, name, mine in zip(y.T, terms.data["target"], held, strict=True):
        found = np.unique(values[~np.isnan(values)])
        if not mine or len(found) > 1:
            continue
        if not len(found):
            only = "no value"
        elif terms.kind in ("binary", "multiclass"):
            only = f"only the class {terms.labels[int(found[0])]!r}"
        else:
            only = f"only the value {found[0]:g}"
        yield (
            f"column {name!r} has {only} in the {counted(len(train), 'row')} to train on, so there "
            "is nothing to tell apart: add rows if there are others"
        )
