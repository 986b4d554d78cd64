"""`tacit demo`, `compare` and `predict`: what can be seen of runs, and done with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.cli.options import OPTION, Json, names, said_of
from tacit.data.cells import Table, task_names
from tacit.data.reading import read_table
from tacit.data.tabular import write_predictions
from tacit.demos.tables import run_demo
from tacit.errors import TacitError
from tacit.experiment.models import SavedModels
from tacit.files import read_json
from tacit.privacy import NOT_COVERED
from tacit.report.tables import compare_table, write_comparison
from tacit.secure.settings import Secure

RESULT = {"guarantee": dict, "metrics": dict, "config": dict, "timing": dict, "federation": dict}
"""What a result.json holds, at least."""


def demo(
    out: Annotated[Path, OPTION(help="Folder for the reports.")] = Path("tacit-demo"),
    secure: Annotated[
        bool, OPTION("--secure", help="Three server processes on shares beside one curator.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Real data, about a minute: alone, a private global model, and the default method."""
    if secure:
        Secure().require()
        from tacit.demos.secure import run_secure_demo  # needs what `require` asks for

        run_secure_demo(out, as_json=as_json)
        return
    run_demo(out, as_json=as_json)


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `tacit train` wrote.")],
    out: Annotated[Path | None, OPTION(help="Also write the table and a plot as HTML.")] = None,
    as_json: Json = False,
) -> None:
    """Several runs side by side. Choosing among them by these figures is not covered by any ε."""
    results = {}
    for folder in folders:
        path = folder if folder.suffix == ".json" else folder / "result.json"
        if not path.is_file():
            raise TacitError(f"{folder} holds no result.json: give folders of finished runs")
        results[str(folder)] = read_json(path, RESULT, "leave it out, or run it again")
    if as_json:
        keep = ("guarantee", "config", "timing")
        short = {
            name: {key: result[key] for key in keep}
            | {"timing_label": result.get("timing_label", NOT_COVERED)}
            | {key: result["metrics"][key] for key in ("label", "overall")}
            for name, result in results.items()
        }
        print(json.dumps(short, ensure_ascii=False))
        return
    console = Console()
    console.print(compare_table(results))
    if out is not None:
        write_comparison(results, out)
        console.print(f"[bold]Comparison[/bold] {out}", soft_wrap=True)


def predict(
    folder: Annotated[
        Path, typer.Argument(help="Folder that `tacit train` or `tacit mixed` wrote.")
    ],
    data: Annotated[Path, OPTION(help="Table with the columns of the training table.")],
    out: Annotated[Path, OPTION(help="CSV file for the predictions.")],
    keep: Annotated[
        str | None, OPTION(help="Columns to copy beside the predictions, with commas.")
    ] = None,
    encoding: Annotated[str | None, OPTION(help="Of a table that is not UTF-8.")] = None,
    decimal: Annotated[str | None, OPTION(help="Decimal mark of numbers in text: . or ,")] = None,
    join: Annotated[
        Path | None,
        OPTION(help="Table of rows with the target, by which tasks join that did not take part."),
    ] = None,
) -> None:
    """Predict new rows, each with the personal model of its own task.

    Who did not take part is predicted by what is public, where that is a model (mixed).
    """
    models = SavedModels.load(folder)
    schema = models.federation.schema
    if schema is None:
        raise TacitError(f"the run in {folder} was not made from a table: use tacit.SavedModels")
    table = read_table(data, encoding, decimal)
    kept = Table({name: table.column(name) for name in names(keep) or ()})
    if schema.task not in table:
        raise TacitError(f"{data} has no column {schema.task!r}, which says whose row it is")
    tasks = task_names(table, schema.task)
    with said_of(data):
        values = models.predict(table, join=join)
    write_predictions(out, tasks, values, schema, models.federation.labels, kept)
    new = len(set(tasks.tolist()) - set(models.federation.names))
    guests = f"; {new} of the tasks did not take part" if new else ""
    Console().print(f"{len(values)} predictions in {out}{guests}", soft_wrap=True)
