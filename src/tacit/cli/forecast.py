"""`tacit forecast`: whether taking part is likely to help, before anybody has shown a row."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import tacit
from tacit.cli.options import OPTION, Categorical, Drop, DropUnlabelled, Json, names
from tacit.errors import TacitError


def forecast(
    tasks: Annotated[int | None, OPTION(help="How many there are.")] = None,
    rows: Annotated[int | None, OPTION(help="That a usual task learns from.")] = None,
    features: Annotated[
        int | None, OPTION(help="Columns; a category is one for each value.")
    ] = None,
    classes: Annotated[int | None, OPTION(help="Of the target; left out: it is a number.")] = None,
    numbers: Annotated[int | None, OPTION(help="Features that are not 0/1; all of them.")] = None,
    epsilon: Annotated[float | None, OPTION(help="The promise; without it, no privacy.")] = None,
    rounds: Annotated[int | None, OPTION(help="If not what is usual for the method.")] = None,
    cohort: Annotated[float | None, OPTION(help="Share of the tasks in a round.")] = None,
    unit: Annotated[str, OPTION(help="Who is hidden: task, person or row.")] = "task",
    persons: Annotated[int | None, OPTION(help="About how many all tasks have together.")] = None,
    simulate: Annotated[int, OPTION(help="Also make so many runs on made-up tables.")] = 0,
    data: Annotated[
        str | None, OPTION(help="A table whose tasks, columns and target are public.")
    ] = None,
    task: Annotated[str | None, OPTION(help="Its column that says whose row it is.")] = None,
    target: Annotated[str | None, OPTION(help="Its column to predict.")] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    drop_unlabelled: DropUnlabelled = False,
    plot: Annotated[Path | None, OPTION(help="Draw the gain over ε and tasks: .png, .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Whether taking part is likely to help, and what would change it; no data needed.

    With --data the number of tasks, the columns and the kind of target are read off a table. How
    many rows tasks have is private, so --rows is asked for even then.
    """
    columns = {"task": task, "target": target}
    columns |= {"drop": names(drop), "categorical": names(categorical)}
    columns |= {"drop_unlabelled": drop_unlabelled or None}
    facts: dict[str, Any] = {} if data is None else public_facts(data, columns)
    given = {"tasks": tasks, "rows": rows, "features": features, "classes": classes}
    given |= {"numbers": numbers}
    facts |= {name: value for name, value in given.items() if value is not None}
    absent = [f"--{name}" for name in ("tasks", "rows", "features") if facts.get(name) is None]
    if absent:
        why = " (rows of tasks are private: say a number that is not)" if data else ""
        raise TacitError(f"give {' and '.join(absent)}{why}")
    course: dict[str, Any] = {"rounds": rounds, "cohort": cohort, "unit": unit, "persons": persons}
    found = tacit.forecast(**facts, epsilon=epsilon, **course, simulate=simulate)
    if plot is not None:
        found.plot(plot)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
        return
    console = Console()
    console.print(Text(f"{found.sentence}.", style="bold"), soft_wrap=True)
    table = Table("tasks", "ε", "rounds", "in a round", "gain over best alone", "from others")
    sections = (found.by_epsilon, found.by_tasks, found.by_course)
    for points in sections:
        for each in points:
            shown = "none" if each.epsilon is None else f"{each.epsilon:g}"
            share = "usual" if each.cohort is None else f"{each.cohort:g}"
            row = (each.tasks, shown, each.rounds, share, each.text, f"{each.from_others:.1%}")
            table.add_row(*map(str, row), style="bold" if each == found.here else None)
        table.add_section()
    console.print(table)
    console.print(*str(found).splitlines()[1:], sep="\n", soft_wrap=True)
    if plot is not None:
        console.print(str(plot))


def public_facts(source: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """What docs/privacy.md takes to be public of a table."""
    read = {name: column for name, column in columns.items() if column is not None}
    found = tacit.data.load(source, **read)
    if found.kind not in ("regression", "count", "binary", "multiclass") or found.heads is not None:
        raise TacitError(
            f"{source} has a target of kind {found.kind}: numbers or classes are needed"
        )
    classes = {"binary": 2, "multiclass": found.outputs}.get(found.kind)
    numbers = 0 if found.units is None else len(found.units.columns)
    width = math.prod(found.input_shape)
    return {"tasks": len(found), "features": width, "classes": classes, "numbers": numbers}
