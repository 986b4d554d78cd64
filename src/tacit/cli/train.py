"""`tacit train`: every setting of an experiment as a flag, which `tacit audit` takes as well."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.cli.imports import uncollected
from tacit.cli.options import OPTION, Json, Quiet, names, pairs, targets
from tacit.experiment.plan import RENAMED, Flag, flags

DATA = [
    Flag(name, kind, help, "Data", "data", "from" if name == "data" else name)
    for name, kind, help in (
        ("data", str, "CSV, Parquet, Excel or .npz file, or a name from `tacit data`."),
        ("task", str, "Column that says whose row it is."),
        ("target", str | list, "Column to predict; several, with commas, for yes/no labels."),
        ("kind", str, "regression, binary, multiclass or multilabel, if guessed wrong."),
        ("event", str, "Column of 0 and 1: whether the event came at the time in the target."),
        ("cuts", list, "Ends of the intervals of that time, with commas: public numbers."),
        ("drop", list, "Columns to leave out, with commas."),
        ("features", list, "Columns to use, with commas."),
        ("categorical", list, "Columns of numbers that are categories."),
        ("drop_unlabelled", Literal[True], "Leave out rows without a target."),
        ("person", str, "Column that says which person a row is of, for --unit person."),
        ("min_rows", int, "Leave out tasks with fewer rows."),
        (
            "scale",
            str,
            "auto, task (inside each task), none, or pooled (a leak, and marked as one).",
        ),
        ("encoding", str, "Of text that is not UTF-8, such as cp1252."),
        ("option", dict, "Any other option of the data: name=value."),
        (
            "schema",
            Path,
            "Columns, classes and tasks as public constants (tacit data --write-schema).",
        ),
        ("public", Path, "Rows that anybody may see, with the same columns: they cost no ε."),
        ("relation", Path, "How tasks are publicly related, as CSV: task,cluster or a matrix."),
    )
]
OLD = [Flag(name, dict, "", "Method", name, name) for name in RENAMED]
"""Flags that are not shown any more; `merge` knows what they are called now."""
FLAGS = {flag.name: flag for flag in (*DATA, *flags(), *OLD)}
TYPED = {list: str, str | list: str, dict: list[str], float | int: float, Literal[True]: bool}
"""As what a flag is typed, where that is not its kind."""


def _read(flag: Flag, value: Any) -> dict[str, Any]:
    """What was typed, as the settings of a file."""
    if flag.kind is dict:
        return pairs(f"--{flag.name}", value)
    if value is not None and flag.kind == float | int and value > 1 and value == int(value):
        value = int(value)
    readers = {list: names, str | list: targets, Path: lambda path: path and str(path)}
    return {flag.key: readers.get(flag.kind, lambda given: given)(value)}


def _parameter(flag: Flag) -> inspect.Parameter:
    name = f"--{flag.name.replace('_', '-')}"
    only = [] if flag.kind is bool else [name]  # where it can be denied: --no-name
    hidden = flag in OLD
    option = OPTION(*only, help=flag.help, rich_help_panel=flag.panel, hidden=hidden)
    typed = Annotated[TYPED.get(flag.kind, flag.kind) | None, option]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(flag.name, keyword, default=None, annotation=typed)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all settings of an experiment as options.

    It is handed them as `flags`: the tables of a file.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    kept = [one.replace(kind=one.KEYWORD_ONLY) for one in own if one.name != "flags"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        tables: dict[str, dict[str, Any]] = {}
        for flag in sorted(FLAGS.values(), key=lambda flag: flag.kind is dict):  # they have the say
            found = _read(flag, given.pop(flag.name))
            if flag.kind is not dict:  # what nobody typed is not there; null may be typed
                found = {key: value for key, value in found.items() if value is not None}
            if found:
                tables.setdefault(flag.section, {}).update(found)
        command(flags=tables, **given)

    every = [kept[0], *map(_parameter, FLAGS.values()), *kept[1:]]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in every}
    return run


@with_settings
def train(
    config: Annotated[
        Path | None, typer.Argument(help="A table, or an experiment as TOML; flags override it.")
    ] = None,
    resume: Annotated[
        Path | None, OPTION(help="Go on with the run in this folder.", rich_help_panel="Run")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    flags: dict[str, dict[str, Any]],
) -> None:
    """Train a personal model for every task, and write the result, models and a report."""
    with uncollected():
        from tacit.cli.training import train_from  # the help page does not wait for torch

    train_from(config, flags, resume=resume, quiet=quiet, as_json=as_json)
