"""`tacit deploy`: a trial across silos on one machine, and the same over somebody's Flower."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.cli.options import OPTION, names
from tacit.deploy.agreement import Agreement
from tacit.deploy.keys import make_keys
from tacit.deploy.project import write_project
from tacit.deploy.site import AGREED
from tacit.errors import TacitError
from tacit.secure.jobs.job import COORDINATOR

app = typer.Typer(
    name="deploy",
    help="Keys for a trial across silos, a Flower app, and a demo.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder with the consortium.toml.")],
    hosts: Annotated[
        str | None, OPTION(help="Names and addresses that silos reach the coordinator by.")
    ] = None,
) -> None:
    """Certificates and node keys of all parties, for a trial; those that exist are kept.

    In earnest, each silo makes its own key with `tacit silo init`: see docs/deploy.md.
    """
    terms = Agreement.read(folder / AGREED).terms
    added = make_keys(folder, terms.silos, names(hosts) or ())
    copy = folder / COORDINATOR / AGREED
    if not copy.exists():
        shutil.copyfile(folder / AGREED, copy)
        added.append(copy)
    elif copy.read_bytes() != (folder / AGREED).read_bytes():
        raise TacitError(f"{copy} says something else than {folder / AGREED}: make them alike")
    said = ", ".join(str(path.relative_to(folder)) for path in added)
    console = Console(soft_wrap=True)
    console.print(f"{folder}: added {said}" if added else f"{folder}: all is there")
    console.print(f"[bold]Then[/bold]    tacit coordinator run {folder / COORDINATOR}")


@app.command()
def flower_app(
    folder: Annotated[Path, typer.Argument(help="Folder for the project; it is made.")],
    consortium: Annotated[Path, OPTION(help="What was agreed: consortium.toml.")],
) -> None:
    """Write a Flower project that runs this consortium on a Flower federation you have.

    What is trusted there, beyond `tacit coordinator run`, is in docs/deploy.md.
    """
    for path in write_project(folder, consortium):
        typer.echo(path)
    typer.echo(f"Then read {folder / 'README.md'}, and: flwr run {folder}")


@app.command()
def demo(
    out: Annotated[Path, OPTION(help="Folder for all parties.")] = Path("runs/deploy-demo"),
    rounds: Annotated[int, OPTION(help="Number of rounds.")] = 5,
) -> None:
    """One coordinator and four hospitals, as processes with TLS and registered keys, offline."""
    from tacit.demos.deploy import run_demo  # needs Flower

    run_demo(out, rounds)
