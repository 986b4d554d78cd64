"""`tacit mixed`: a mixed model by formula."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

import tacit
from tacit.cli.options import OPTION, Json, Quiet
from tacit.engine.progress import Bar, silent
from tacit.errors import TacitError
from tacit.experiment.mixed import resume_mixed
from tacit.experiment.start import fresh_folder
from tacit.experiment.train import where_it_began
from tacit.report.shared import as_text

if TYPE_CHECKING:  # torch is slow to import
    from tacit.experiment.run import Run


def mixed(
    data: Annotated[
        Path | None, typer.Argument(help="Table: .csv, .tsv, .parquet or .xlsx.")
    ] = None,
    formula: Annotated[
        str | None,
        OPTION(help="Like 'wage ~ educ + exper + (1 + exper | person)'; the last is the task."),
    ] = None,
    epsilon: Annotated[
        float | None, OPTION(help="The promise; without it, REML and no privacy.")
    ] = None,
    delta: Annotated[float | None, OPTION(help="Default 1 / (10 tasks), at most 0.001.")] = None,
    kind: Annotated[
        str | None, OPTION(help="regression, count, binary or multiclass, if guessed wrong.")
    ] = None,
    seed: Annotated[int | None, OPTION(help="Reproducible, and therefore not private.")] = None,
    out: Annotated[Path | None, OPTION(help="Folder for the result.")] = None,
    resume: Annotated[Path | None, OPTION(help="Go on with the run in this folder.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """A mixed model: coefficients that all tasks share, and own effects for each task."""
    others = (data, formula, epsilon, delta, kind, seed, out)
    if resume is not None and any(value is not None for value in others):
        raise TacitError("--resume takes all settings from its folder: leave the others out")
    folder = resume or out or fresh_folder("mixed")
    shown = {"out": folder, "progress": silent if quiet or as_json else Bar()}
    try:
        if resume is not None:
            folder = folder.absolute()
            with where_it_began(folder):
                run = resume_mixed(folder, shown["progress"])
        elif data is None or formula is None:
            raise TacitError("a table and --formula are needed: see tacit mixed --help")
        else:
            promise = {"epsilon": epsilon, "delta": delta}
            run = tacit.mixed(formula, data, **promise, kind=kind, seed=seed, **shown)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        print(f"stopped; go on with: tacit mixed --resume {folder}", file=sys.stderr)
        sys.exit(130)
    if as_json:
        print(json.dumps(run.to_json(), ensure_ascii=False))
    elif quiet:
        print(folder / "result.json")
    else:
        _show(run, folder)


def _show(run: Run, folder: Path) -> None:

    print(as_text(run.summary().to_json(), promise=False), end="\n\n")  # names are no markup
    console = Console(soft_wrap=True)
    console.print(f"[bold]Guarantee[/bold] {run.guarantee}")
    console.print(f"[bold]Report[/bold]    {folder / 'report.html'}")
