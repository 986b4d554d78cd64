"""How a table becomes a matrix, fixed once so that prediction reads new tables the same way.

| column                    | becomes                                                              |
|---------------------------|----------------------------------------------------------------------|
| numbers                   | itself                                                               |
| numbers with gaps         | itself (gaps stay NaN, each task fills in its own) and `x (missing)` |
| only two codes (`flag`)   | 0 and 1, and never scaled                                            |
| text with two categories  | one 0/1 column for the second                                        |
| text with more categories | one 0/1 column each                                                  |

Gaps in a text column are a category of their own, `(missing)`. A category that was not there when
the schema was made is a gap. Where no gap was there either, it stays NaN in all columns of the
categories, and each task fills in its own shares.

A schema also says what is predicted, and which tasks there are. `Schema.fit` decides by looking at
rows of all tasks; a file that people wrote (`read_schema`) decides without looking at any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.cells import (
    Table,
    check_keys,
    number_text,
    numbers,
    table_of,
)
from tacit.data.columns import Column, constants, distinct_texts, one_hot
from tacit.data.federation import NUMBERS, Kind
from tacit.data.survival import check_cuts
from tacit.errors import TacitError

VERSION = 2
KINDS: tuple[Kind, ...] = ("regression", "count", "binary", "multiclass", "multilabel", "survival")
KEYS = ("version", "task", "tasks", "kind", "target", "columns")
PUBLIC = (
    "the columns of the table, their types, their categories, which of them have gaps and which "
    "hold only two codes, and these, are taken to be public"
)
"""What is assumed where the columns were decided by looking at rows."""


@dataclass(frozen=True)
class Schema:
    """The feature columns of a table, its task and target columns, and what is known of them."""

    columns: tuple[Column, ...]
    task: str
    target: tuple[str, ...]
    kind: Kind | None = None
    """What is learned; None where nobody has said it, and rows must tell."""
    classes: tuple[tuple[str, ...], ...] = ()
    """The values of each target column, in the order of their codes; none where it is a number."""
    target_scale: tuple[float, float] | None = None
    """Mean and standard deviation that all tasks scale the target with; only given by hand."""
    tasks: tuple[str, ...] | None = None
    """The tasks that take part; None for all that the table has."""
    cuts: tuple[float, ...] = ()
    """Ends of the intervals of an outcome over time, whose targets are the time and the event."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the matrix columns."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def indicators(self) -> np.ndarray:
        """Which matrix columns are 0 or 1 by what they are, and so are not scaled."""
        return np.array([flag for column in self.columns for flag in column.indicators], dtype=bool)

    @property
    def scales(self) -> dict[str, tuple[float, float]]:
        """The matrix columns that all tasks scale with constants, and the constants."""
        return {column.name: column.scale for column in self.columns if column.scale is not None}

    @classmethod
    def fit(
        cls,
        table: Any,
        task: str,
        target: str | Sequence[str],
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
    ) -> Schema:
        """Decide the type of every feature column; `categorical` names those that look numeric."""
        table = table_of(table)
        targets = (target,) if isinstance(target, str) else tuple(target)
        drop, categorical = _listed(drop), _listed(categorical)
        features = None if features is None else _listed(features)
        for name in (task, *targets, *(features or ()), *drop, *categorical):
            table.column(name)
        if features is not None and drop:
            raise TacitError("features and drop were both given; choose one of them")
        for name in (task, *targets):
            if name in (features or ()):
                role = "task" if name == task else "target"
                raise TacitError(f"column {name!r} is the {role}, so it cannot be a feature too")
        if task in targets:
            raise TacitError(f"column {task!r} is given as task and as target; choose another")
        chosen = features if features is not None else [n for n in table if n not in drop]
        chosen = [name for name in chosen if name not in (task, *targets)]
        columns, refused = [], {}
        for name in chosen:
            try:
                columns.append(Column.fit(table, name, name in categorical))
            except TacitError as error:
                refused[name] = str(error)
        if refused:
            raise TacitError(_all_refused(refused))
        schema = cls(tuple(columns), task, targets)
        if not schema.features:
            raise TacitError(
                f"{table.source} has no feature left beside the task and the target; give a table "
                "with at least one more column that varies"
            )
        return schema

    def matrix(self, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        """float64 [N, features] with NaN for missing numbers, and the names of its columns."""
        table = table_of(table)
        out = np.zeros((table.rows, len(self.features)))
        at = 0
        for column in self.columns:
            if column.categories is None:
                found = column.numbers(numbers(table, column.name))
                out[:, at] = found
                if column.gaps:
                    out[:, at + 1] = np.isnan(found)
            elif column.coded:
                out[:, at : at + len(column.coded)] = one_hot(table, column)
            at += len(column.features)
        return out, self.features

    def to_json(self) -> str:
        """A file that people can read and change."""
        classes = self.classes or ((),) * len(self.target)
        target: list[dict[str, Any]] = [
            {"name": name, "classes": list(own)} if own else {"name": name}
            for name, own in zip(self.target, classes, strict=True)
        ]
        if self.kind == "regression":
            target[0]["scale"] = None if self.target_scale is None else list(self.target_scale)
        if self.kind == "survival":
            target[0]["cuts"] = list(self.cuts)
        plain = {
            "version": VERSION,
            "task": self.task,
            "tasks": None if self.tasks is None else list(self.tasks),
            "kind": self.kind,
            "target": target,
            "columns": [column.to_plain() for column in self.columns],
        }
        lines = (f" {json.dumps(key)}: {_one_per_line(value)}" for key, value in plain.items())
        return "{\n" + ",\n".join(lines) + "\n}"

    @classmethod
    def from_json(cls, text: str, where: str = "the saved table schema") -> Schema:
        """What `to_json` wrote, now or in earlier versions; the first mistake in one sentence."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise ValueError("it is not a JSON object")
            return _check(cls._from_plain(data))
        except (ValueError, TypeError, RecursionError, TacitError) as error:
            raise TacitError(f"{where} cannot be read: {error}; correct it") from None

    @classmethod
    def _from_plain(cls, data: Mapping[str, Any]) -> Schema:
        version = data.get("version", 1)
        if version not in (1, VERSION):
            raise ValueError(f"it has version {version!r}, and this tacit reads {VERSION}")
        check_keys(data, KEYS, "it")
        columns, target = (_objects(data, key) for key in ("columns", "target"))
        for own in target:
            check_keys(own, ("name", "classes", "scale", "cuts"), "a target")
        scales = [constants(own.get("scale"), f"target {own.get('name')!r}") for own in target]
        kind = data.get("kind")
        if any(scales) and kind != "regression":
            raise ValueError("its target has a scale, which only regression has")
        listed = [own["classes"] for own in target if own.get("classes")]
        if len(listed) not in (0, len(target)):
            raise ValueError("some of its targets have classes, and some have none")
        tasks = data.get("tasks")
        return cls(
            tuple(Column.from_plain(column) for column in columns),
            _name(data.get("task"), "the task column"),
            tuple(_name(own.get("name"), "a target") for own in target),
            kind,
            tuple(distinct_texts(own, 2, "classes of a target") for own in listed),
            scales[0] if scales else None,
            None if tasks is None else distinct_texts(tasks, 2, "tasks"),
            check_cuts(target[0].get("cuts")) if kind == "survival" and target else (),
        )


def read_schema(path: str | Path) -> Schema:
    """A schema that somebody wrote, or has read and corrected: it decides, and rows do not."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TacitError(f"the schema {path} cannot be read: {error}; check the file") from None
    schema = Schema.from_json(text, f"the schema {path}")
    if schema.kind is None:
        raise TacitError(
            f"the schema {path} does not say the kind of target; add kind, one of: "
            f"{', '.join(KINDS)}"
        )
    return schema


def write_schema(schema: Schema, path: str | Path) -> None:
    """For people to read and correct; what they corrected is never written over."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(schema.to_json() + "\n")
    except FileExistsError:
        raise TacitError(f"{path} exists; remove it, or choose another name") from None
    except OSError as error:
        raise TacitError(f"{path} cannot be written: {error.strerror}") from None


def naming_rows(table: Table, schema: Schema) -> tuple[str, ...]:
    """Columns with another whole number in every row: they may only name rows."""
    found = []
    for column in schema.columns:
        if column.categories is None and not column.gaps:
            values = numbers(table, column.name)
            whole = bool((values == np.round(values)).all())
            if whole and len(np.unique(values)) == table.rows:
                found.append(column.name)
    return tuple(found)


def _listed(names: Sequence[str]) -> tuple[str, ...]:
    """A single name where a list was expected is a list of one, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def _all_refused(refused: Mapping[str, str]) -> str:
    """What is wrong with the first column, and how to be rid of all that cannot be read."""
    first = next(iter(refused.values()))
    if len(refused) == 1:
        return first
    return (
        f"{first}; {len(refused)} columns cannot be read, and --drop {','.join(refused)} (drop=) "
        "leaves all of them out"
    )


def _one_per_line(value: Any) -> str:
    """JSON; of a list of descriptions, each in a line of its own."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return json.dumps(value, ensure_ascii=False)
    return "[\n" + ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in value) + "\n ]"


def _objects(data: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = data.get(key)
    if key == "target" and isinstance(found, list):  # version 1 had names only
        found = [{"name": one} if isinstance(one, str) else one for one in found]
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"its {key} is not a list of descriptions in braces")
    return found


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} has the name {value!r}, expected text")
    return value


def _check(schema: Schema) -> Schema:
    """The whole, once its parts are right."""
    names = [schema.task, *schema.target, *(column.name for column in schema.columns)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ValueError(f"it names column {twice!r} twice")
    if not schema.target or not schema.features:
        raise ValueError("it needs at least one target and one feature column")
    if schema.kind is None:
        return schema
    if schema.kind not in KINDS:
        raise ValueError(f"its kind is {schema.kind!r}, expected one of: {', '.join(KINDS)}")
    several = schema.kind == "multilabel"
    if schema.kind == "survival":
        good, wanted = len(schema.target) == 2, "two target columns, the time and the event"
    else:
        good = several == (len(schema.target) > 1)
        wanted = "several target columns" if several else "one target column"
    if not good:
        raise ValueError(f"kind {schema.kind!r} needs {wanted}, but there are {schema.target}")
    if bool(schema.classes) == (schema.kind in (*NUMBERS, "survival")):
        verb = "needs classes for each target" if not schema.classes else "has no classes"
        raise ValueError(f"kind {schema.kind!r} {verb}")
    for name, own in zip(schema.target, schema.classes, strict=False):
        if schema.kind != "multiclass" and len(own) != 2:
            raise ValueError(f"target {name!r} has {len(own)} classes, but needs two")
        if len(set(map(number_text, own))) < len(own):
            raise ValueError(f"two classes of target {name!r} are the same number")
    return schema
