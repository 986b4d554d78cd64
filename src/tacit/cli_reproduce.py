"""`tacit reproduce`: the PMTL paper's figures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.errors import TacitError


def reproduce(
    name: Annotated[str, typer.Argument(help="Like pmtl/figure3 or pmtl/table1.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets.", envvar="TACIT_DATA")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("papers/pmtl"),
    sets: Annotated[str | None, typer.Option(help="Only these data sets, with commas.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each cell.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    model: Annotated[str | None, typer.Option(help="Instead of the settings' model.")] = None,
    reduced: Annotated[bool, typer.Option("--reduced", help="Small, for two cores.")] = False,
    noise_only: Annotated[
        bool, typer.Option("--noise-only", help="Only calibrate the noise, for another machine.")
    ] = False,
) -> None:
    """A figure or table of the PMTL paper: CSV, plot, and a table beside the published one."""
    from tacit.reproduce import reproduce as run

    if data is None:
        raise TacitError("pass --data DIR, or set TACIT_DATA to the folder of data sets")
    console = Console(stderr=True, soft_wrap=True)
    page = run(
        name,
        data,
        out,
        sets=sets.split(",") if sets else None,
        seeds=seeds,
        reduced=reduced,
        device=device,
        model=model,
        noise_only=noise_only,
        say=lambda text: console.print(text, markup=False, highlight=False),
    )
    Console().print(f"[bold]Written[/bold] {page}", soft_wrap=True)
