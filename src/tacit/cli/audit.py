"""`tacit audit`: attack a run that is about to be made, or one that was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import tacit
from tacit.cli.options import OPTION, Json
from tacit.cli.train import with_settings
from tacit.engine.progress import Bar, silent
from tacit.engine.store import confirm_ledger
from tacit.errors import TacitError
from tacit.experiment.toml import check, merge, read
from tacit.experiment.train import where_it_began

if TYPE_CHECKING:
    from tacit.attacks.audited import Audit
    from tacit.experiment.toml import Config

ATTACK = "Attack"


@with_settings
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(help="An experiment as TOML (flags override it), or a run's folder."),
    ] = None,
    many_runs: Annotated[
        int | None,
        OPTION(
            help="Runs of the channel alone, with and without one worst task (or person); default.",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    one_run: Annotated[
        bool,
        OPTION("--one-run", help="Make the run once, with canaries in it.", rich_help_panel=ATTACK),
    ] = False,
    canaries: Annotated[
        int | None, OPTION(help="How many canaries (1000).", rich_help_panel=ATTACK)
    ] = None,
    neighbour: Annotated[
        Path | None,
        OPTION(
            help="The table with a row (or person) more or less in one task: do others move?",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    as_json: Json = False,
    *,
    flags: dict[str, dict[str, Any]],
) -> None:
    """Attack a run: a lower bound on its ε beside the promised one. Exit code 1 if it is refuted.

    Nothing is trained, unless --one-run asks for it, and nothing of the run is changed.
    """
    folder = config.absolute() if config is not None and config.is_dir() else None
    if folder is not None:
        if flags:
            raise TacitError(f"{folder} has all settings of its run: leave the others out")
        checked = check(read(folder / "config.json"))
        with where_it_began(folder):
            federation = checked.federation()
    else:
        checked = check(merge(read(config) if config is not None else {}, flags))
        federation = checked.federation()
    found = tacit.audit(
        federation,
        **vars(checked.plan()),
        many_runs=many_runs,
        one_run=one_run,
        canaries=canaries,
        neighbour=None if neighbour is None else _neighbour(checked, neighbour),
        ledger=None if folder is None or one_run or neighbour is not None else _books(folder),
        progress=silent if as_json else Bar(),
    )
    if folder is not None:
        found.save(folder)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _show(found, folder)
    if found.refuted:
        sys.exit(1)


def _books(folder: Path) -> Any:

    found = confirm_ledger(folder)
    if not len(found):
        raise TacitError(f"{folder} has no ledger: nothing was released, so nothing was promised")
    return found


def _neighbour(config: Config, table: Path) -> Any:
    data = config.data.model_copy(update={"source": str(table)})
    return config.model_copy(update={"data": data}).federation()


def _show(found: Audit, folder: Path | None) -> None:
    console = Console()
    colour = "bold red" if found.refuted else "bold"
    console.print(f"[bold]Promised[/bold] {found.promised}", soft_wrap=True)
    console.print(f"[{colour}]{found.ruling}[/{colour}]: {found.grounds}", soft_wrap=True)
    tries = ", ".join(
        f"{what.replace('_', ' ')} {number:.6g}" for what, number in found.tries.items()
    )
    console.print(f"[bold]Tried[/bold]    {found.attack}: {tries}", soft_wrap=True)
    console.print("[bold]Assumed[/bold]  " + "; ".join(found.assumed), soft_wrap=True)
    if not found.refuted:
        console.print("An attack can refute a promise; it cannot prove one.", soft_wrap=True)
    if folder is not None:
        console.print(f"[bold]Kept[/bold]     {folder / 'audit.json'}", soft_wrap=True)
