"""`tacit coordinator`: whoever starts the rounds, sums what silos contribute, and publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli.options import OPTION, Json, names, targets
from tacit.deploy.agreement import Agreement
from tacit.deploy.conduct import RESULT, STATUS, last_answer
from tacit.deploy.example import write_example
from tacit.deploy.site import AGREED
from tacit.engine.progress import Bar
from tacit.errors import TacitError
from tacit.files import make_folder, read_json, replace
from tacit.privacy.guarantee import epsilon_up
from tacit.words import tame

app = typer.Typer(
    name="coordinator",
    help="Who starts the rounds of a consortium, sums what its silos contribute, and publishes.",
    no_args_is_help=True,
    add_completion=False,
)
Folder = Annotated[Path, typer.Argument(help="The coordinator's folder.")]


@app.command()
def init(
    folder: Folder,
    example: Annotated[Path, OPTION(help="A table with the columns that silos have.")],
    target: Annotated[str, OPTION(help="Column to predict; several with commas, of 0 and 1.")],
    silos: Annotated[str | None, OPTION(help="Names of the silos: a,b,c.")] = None,
    task: Annotated[str | None, OPTION(help="Or the column that names them.")] = None,
    drop: Annotated[str | None, OPTION(help="Columns to leave out, with commas.")] = None,
    name: Annotated[str, OPTION(help="What the consortium is called.")] = "consortium",
    method: Annotated[str, OPTION(help="auto, or one of `tacit methods`.")] = "auto",
    epsilon: Annotated[float, OPTION(help="What every silo is promised.")] = 2.0,
) -> None:
    """Write consortium.toml from an example table: a draft to agree on, not more."""
    path = folder / AGREED
    if path.exists():
        raise TacitError(f"{path} exists already: change it, or remove it")
    given: Any = {"task": task, "name": name, "method": method, "epsilon": epsilon}
    given |= {"silos": names(silos) or (), "drop": names(drop) or ()}
    text = write_example(example, target=targets(target) or target, **given)
    make_folder(folder)
    replace(path, text.encode())
    console = Console(soft_wrap=True)
    console.print(f"[bold]Draft[/bold]   {path}: read it, correct ranges and categories, agree")
    console.print(f"[bold]Then[/bold]    tacit deploy keys {folder} for a trial, or docs/deploy.md")


@app.command()
def run(
    folder: Folder,
    host: Annotated[str, OPTION(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, OPTION(help="Port to listen on.")] = 9443,
    patience: Annotated[
        float, OPTION(help="Seconds that a silo has to answer in; then it contributes zero.")
    ] = 300.0,
    peers: Annotated[
        str | None, OPTION(help="Where servers on shares are, if they were agreed: host:port,…")
    ] = None,
    dealer: Annotated[str | None, OPTION(help="Where their dealer is, if there is one.")] = None,
    certificates: Annotated[
        Path | None, OPTION(help="Folder with ca.pem and coordinator.pem, for those servers.")
    ] = None,
) -> None:
    """Conduct the run of this folder to its end; started again after a crash, it goes on."""
    from tacit.deploy.flower.as_coordinator import run_coordinator  # needs Flower

    if patience <= 0:
        raise TacitError(f"--patience {patience:g}: more than 0 seconds are needed")
    console = Console(soft_wrap=True)
    say = lambda line: console.print(escape(line))  # noqa: E731
    terms = Agreement.read(folder / AGREED).terms
    say(
        f"{terms.consortium}: {terms.rounds} rounds with {', '.join(terms.silos)}, who have "
        f"{patience:g} s for each answer; listens on {host}:{port}"
    )
    servers = None
    if peers is not None:
        where = None if certificates is None else str(certificates)
        servers = {"peers": names(peers), "dealer": dealer, "certificates": where}
    done = run_coordinator(
        folder, host, port, patience=patience, say=say, progress=Bar(), servers=servers
    )
    if not done.finished:
        raise TacitError("no silo took the last billboard; start again when they are there")
    console.print(f"[bold]Result[/bold]  {folder / RESULT}")


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """How far the run of this folder is, and who takes part. It disturbs nobody."""
    path = folder / STATUS
    if not path.is_file():
        raise TacitError(
            f"{folder} has no {STATUS}: give the coordinator's folder, or wait for its first round"
        )
    found = read_json(path, {"silos": dict, "round": int, "rounds": int}, "wait for the next round")
    if as_json:
        print(json.dumps(found))  # in ASCII: it may go to a terminal
        return
    console, rounds = Console(soft_wrap=True), found["rounds"]
    far = f"round {found['round']} of {rounds}" + (", over" if found["over"] else "")
    spent = (
        ""
        if found["epsilon"] is None
        else (f", ε={epsilon_up(found['epsilon'])} spent ({found['meaning']})")
    )
    console.print(f"[bold]{escape(found['consortium'])}[/bold]  {far}{spent}", highlight=False)
    excluded = any(silo["excluded"] for silo in found["silos"].values())
    table = Table("silo", "last answer", *(["excluded"] if excluded else []), box=SIMPLE_HEAD)
    for name, silo in found["silos"].items():
        why = [f"its message {silo['excluded']}" if silo["excluded"] else ""] if excluded else []
        shown = [escape(tame(words)) for words in (name, *why)]
        table.add_row(shown[0], last_answer(silo["answered"], rounds), *shown[1:])
    console.print(table)
