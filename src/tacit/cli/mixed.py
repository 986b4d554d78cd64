"""`tacit mixed`: a mixed model by formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.cli.options import OPTION, Json, Quiet

if TYPE_CHECKING:  # torch is slow to import
    from tacit.runtime.run import Run


def mixed(
    data: Annotated[Path, typer.Argument(help="Table: .csv, .csv.gz or .parquet.")],
    formula: Annotated[
        str, OPTION(help="Like 'wage ~ educ + exper + (1 + exper | person)'; the last is the task.")
    ],
    epsilon: Annotated[
        float | None, OPTION(help="The promise; without it, REML and no privacy.")
    ] = None,
    delta: Annotated[float | None, OPTION(help="Default 1 / (10 tasks), at most 0.001.")] = None,
    kind: Annotated[
        str | None, OPTION(help="regression, count, binary or multiclass, if guessed wrong.")
    ] = None,
    seed: Annotated[int | None, OPTION(help="Reproducible, and therefore not private.")] = None,
    out: Annotated[Path | None, OPTION(help="Folder for the result.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """A mixed model: coefficients that all tasks share, and own effects for each task."""
    import tacit
    from tacit.runtime.progress import Bar, silent
    from tacit.runtime.start import fresh_folder

    folder = out or fresh_folder("mixed")
    run = tacit.mixed(
        formula, data, epsilon=epsilon, delta=delta, kind=kind, seed=seed, out=folder,  # type: ignore[arg-type]
        progress=silent if quiet or as_json else Bar(),
    )  # fmt: skip
    if as_json:
        print(json.dumps(run.to_json(), ensure_ascii=False))
    elif quiet:
        print(folder / "result.json")
    else:
        _show(run, folder)


def _show(run: Run, folder: Path) -> None:
    console = Console()
    if hasattr(run, "summary"):
        # Names of effects may hold square brackets, which are not rich's markup.
        console.print(str(run.summary()), markup=False, highlight=False, soft_wrap=True)  # type: ignore[attr-defined]
    else:
        console.print(Text(run.config["formula"]), soft_wrap=True)
        console.print(_coefficients(run))
    console.print(f"[bold]Guarantee[/bold] {run.guarantee}", soft_wrap=True)
    console.print(f"[bold]Report[/bold]    {folder / 'report.html'}", soft_wrap=True)


def _coefficients(run: Run) -> Table:
    from tacit.formula import coefficients

    table = Table("effect", "coefficient")
    for name, value in coefficients(run).items():
        table.add_row(Text(name), f"{value:.6g}")
    return table
