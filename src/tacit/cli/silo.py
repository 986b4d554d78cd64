"""`tacit silo`: one site that keeps its rows and its model, and takes part in runs with others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from tacit.checks import host_and_port
from tacit.cli.options import OPTION, said_of
from tacit.data.reading import read_table
from tacit.data.tabular import write_predictions
from tacit.deploy.agreement import Agreement
from tacit.deploy.keys import make_node_key
from tacit.deploy.personal import predict_rows
from tacit.deploy.project import SILO
from tacit.deploy.site import AGREED, SETTINGS, Site, write_settings
from tacit.deploy.table import check as checked
from tacit.deploy.trust import what_leaves
from tacit.engine.progress import Bar
from tacit.errors import TacitError
from tacit.files import close_folder, copy
from tacit.report.silo import PAGE
from tacit.words import counted

app = typer.Typer(
    name="silo",
    help="One site: it keeps its rows and its model, and takes part in runs with others.",
    no_args_is_help=True,
    add_completion=False,
)
Folder = Annotated[Path, typer.Argument(help="The silo's folder.")]


@app.command()
def init(
    folder: Folder,
    consortium: Annotated[Path, OPTION(help="What was agreed: consortium.toml.")],
    name: Annotated[str, OPTION(help="Which of its silos this is.")],
    data: Annotated[Path, OPTION(help="This silo's own table, CSV or Parquet; it stays there.")],
    coordinator: Annotated[
        str | None,
        OPTION(help="Where the coordinator listens: host:port; a Flower app needs none."),
    ] = None,
    authority: Annotated[
        Path | None, OPTION("--ca", help="The coordinator's ca.pem, if it is not there yet.")
    ] = None,
    person: Annotated[
        str | None, OPTION(help="Column that says whose row each is, if persons are protected.")
    ] = None,
) -> None:
    """Make a silo's folder: its copy of what was agreed, its settings, its key."""
    terms = Agreement.read(consortium).terms
    terms.index(name)
    if (folder / SETTINGS).exists():
        raise TacitError(f"{folder} is a silo's folder already: give another, or remove it")
    if coordinator is not None:
        host_and_port(coordinator)
    close_folder(folder)
    if authority is not None:
        copy(authority, folder / "ca.pem")
    if not (folder / "node.key").exists():
        make_node_key(folder)
    if consortium.resolve() != (folder / AGREED).resolve():
        copy(consortium, folder / AGREED)
    given = {"name": name, "data": str(data.resolve()), "coordinator": coordinator}
    given["person"] = person
    write_settings(folder, **{key: value for key, value in given.items() if value is not None})
    console = Console(soft_wrap=True)
    console.print(f"[bold]Silo[/bold]    {escape(name)} of {escape(terms.consortium)} in {folder}")
    if coordinator is not None:
        said = f"{folder / 'node.pub'} to the coordinator, nothing else"
        console.print(f"[bold]Give[/bold]    {said}")
    if coordinator is not None and not (folder / "ca.pem").exists():
        console.print(f"[bold]Get[/bold]     the coordinator's ca.pem, and put it into {folder}")
    console.print(f"[bold]Then[/bold]    tacit silo check {folder}")


@app.command()
def check(folder: Folder) -> None:
    """Read the silo's own table against what was agreed. Nothing is sent."""
    site = Site.open(folder)
    found = checked(site.terms, site.settings.name, site.table, site.settings.person)
    console = Console(soft_wrap=True)
    for warning in found.warnings:
        console.print(f"[yellow]note[/yellow]  {escape(warning)}")
    for problem in found.problems:
        console.print(f"[red]wrong[/red] {escape(problem)}")
    if found.problems:
        problems = counted(len(found.problems), "problem")
        raise TacitError(f"{site.table.name} has {problems}: correct them")
    who = f"{site.settings.name} of {site.terms.consortium}"
    console.print(f"[bold]Silo[/bold]    {escape(who)}, in {escape(str(folder))}")
    console.print(
        f"[bold]Table[/bold]   {escape(site.table.name)}: {found.rows} rows, as agreed; nothing "
        "was sent"
    )
    for place, line in enumerate(what_leaves(site.terms)):
        console.print(f"[bold]{'' if place else 'Agreed':<8}[/bold]· {escape(line)}")
    then = f"tacit silo run {folder}"
    if site.settings.coordinator is None:  # a Flower app: see docs/deploy.md
        then = f"flower-supernode … --node-config '{SILO}=\"{folder.resolve()}\"'"
    console.print(f"[bold]Then[/bold]    {escape(then)}")


@app.command()
def run(
    folder: Folder,
    once: Annotated[bool, OPTION(help="Stop when a run is over and the model is kept.")] = False,
) -> None:
    """Take part in runs: answer the coordinator as agreed, until stopped."""
    from tacit.deploy.flower.as_silo import run_silo  # needs Flower

    site = Site.open(folder)
    until = "until a run is over" if once else "until Ctrl-C"
    _say(
        f"{site.settings.name} of {site.terms.consortium} answers {site.coordinator} "
        f"{until}; what may leave: tacit silo check {folder}"
    )
    run_silo(folder, once=once, say=_say)

    Console(soft_wrap=True).print(f"[bold]Report[/bold]  {escape(str(folder / PAGE))}")


@app.command()
def personalise(folder: Folder) -> None:
    """Fine-tune and choose on this silo's own rows, at no privacy cost; nothing is sent."""
    report = Site.open(folder).personalise(Bar())
    console, name = Console(soft_wrap=True), report["score"]
    console.print(f"[bold]Model[/bold]   {escape(report['chosen'])}, in {folder / 'model'}")
    where = f"on {report['measured_on']} rows"
    console.print(f"[bold]Here[/bold]    {name} {_number(report['personal'][name])} {where}")
    if report["alone"] is not None:
        console.print(f"[bold]Alone[/bold]   {name} {_number(report['alone'][name])} {where}")
    console.print(f"[bold]Report[/bold]  {escape(str(folder / PAGE))}")


@app.command()
def predict(
    folder: Folder,
    data: Annotated[Path, OPTION(help="New rows with the agreed columns.")],
    out: Annotated[Path, OPTION(help="CSV file for the predictions.")],
) -> None:
    """Predict new rows with this silo's own model; no server is needed."""
    table = read_table(data)
    with said_of(data):
        values, models = predict_rows(folder, table)
    federation = models.federation
    if federation.schema is None:
        raise TacitError(f"the model in {folder} was not made from a table")
    names = np.array([federation.names[0]] * len(values))
    write_predictions(out, names, values, federation.schema, federation.labels)
    Console().print(f"{len(values)} predictions in {out}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "cannot be computed" if value is None else f"{value:.4g}"


def _say(line: str) -> None:
    Console(soft_wrap=True).print(escape(line))
