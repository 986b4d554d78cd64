"""`tacit reproduce`: the figures and tables of papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.errors import TacitError


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Like pmtl/figure3 or fedmtl/table3; see --list.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets.", envvar="TACIT_DATA")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; by default papers/<paper>.")
    ] = None,
    sets: Annotated[str | None, typer.Option(help="Only these data sets, with commas.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions; by default 3, or 20 for mpmtl.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    model: Annotated[str | None, typer.Option(help="Instead of the settings' model.")] = None,
    reduced: Annotated[bool, typer.Option("--reduced", help="Small, for two cores.")] = False,
    noise_only: Annotated[
        bool, typer.Option("--noise-only", help="Only calibrate the noise, for another machine.")
    ] = False,
    pages: Annotated[
        bool, typer.Option("--pages", help="No runs: the pages from what was run (fedmtl).")
    ] = False,
    limit: Annotated[
        float | None, typer.Option(help="Begin no run after so many seconds (fedmtl).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show what can be reproduced.")] = False,
) -> None:
    """A figure or table of a paper: CSV, plot, and a table beside the published one."""
    from tacit.reproduce import EXPERIMENTS
    from tacit.reproduce import reproduce as run

    if list_:
        for known, title in EXPERIMENTS.items():
            Console().print(f"[bold]{known}[/bold]  {title}", highlight=False, soft_wrap=True)
        return
    if name is None:
        raise TacitError("say what to reproduce, like pmtl/figure3 (--list shows what there is)")
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
        pages=pages,
        limit=limit,
        say=lambda text: console.print(text, markup=False, highlight=False),
    )
    Console().print(f"[bold]Written[/bold] {page}", soft_wrap=True)
