"""The command line. Each command is a few lines over the library; errors are one sentence."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import tacit
from tacit.cli.imports import uncollected
from tacit.errors import TacitError

COMMANDS = {
    "train": ("train:train", "Train one personal model for every task."),
    "mixed": ("mixed:mixed", "Fit a mixed model that is written as a formula."),
    "tune": ("tune:tune", "Choose settings by runs that are paid for."),
    "demo": ("results:demo", "Real data, about a minute."),
    "forecast": ("forecast:forecast", "Is it likely to help? No data needed."),
    "watch": ("watch:watch", "A live page for a run, a silo or a coordinator."),
    "compare": ("results:compare", "Several runs side by side."),
    "predict": ("results:predict", "Predict new rows with the models of a run."),
    "account": ("account:account", "Noise into ε and back."),
    "audit": ("audit:audit", "Attack a run that is about to be made, or one that was."),
    "methods": ("known:methods", "The methods, their settings and defaults."),
    "data": ("known:data_sets", "Data sets, or what tacit makes of a file."),
    "deploy": ("deploy:app", "Keys for a trial across silos, and a demo of one."),
    "coordinator": ("coordinator:app", "Start the rounds of a consortium, and publish."),
    "silo": ("silo:app", "Keep a site's rows, and take part in runs with others."),
    "certificates": ("secure:certificates", "Certificates of servers on shares."),
    "server": ("secure:server", "Run a server on shares, or their dealer."),
    "reproduce": ("moved:app", ""),
}
"""In the order of the help page: where each command is, and what that page says of it."""
HIDDEN = ("reproduce",)
EXTRAS = {"cryptography": "secure"}
"""Packages that a command may need and an installation may lack, and what brings them."""


class Commands(TyperGroup):
    """Commands whose modules are imported when they are called: the help page needs none."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, (_, words) in COMMANDS.items():
            self.add_command(click.Command(name, help=words, hidden=name in HIDDEN))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load(str(name)), rest


def _load(name: str) -> click.Command:
    place, _, attribute = COMMANDS[name][0].partition(":")
    with uncollected():
        found = getattr(importlib.import_module(f"tacit.cli.{place}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    return typer.main.get_command(found)


app = typer.Typer(
    name="tacit",
    cls=Commands,
    help="Private multi-task learning: every party keeps its data and ends with its own model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"tacit {tacit.__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit."),
    ] = False,
) -> None:
    """A group although it has no commands of its own."""


def run() -> None:
    """The entry point: `main`, and then away at once.

    To take PyTorch apart piece by piece as a process ends takes longer than its rounds do.
    """
    try:
        main()
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.exit(code)  # somebody is still at work
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # whoever read it has gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """A user never sees a traceback for something that was given wrongly."""
    try:
        app(prog_name="tacit")  # also in what a shell is told to complete
    except TacitError as error:
        _leave(str(error))
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        _leave(f"this needs {error.name}: pip install 'tacit[{EXTRAS[error.name]}]'")
    except OSError as error:  # a disk that is full, a folder that is gone
        where = error.filename or "a file or connection"
        _leave(f"{where} cannot be used: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _leave(sentence: str) -> None:
    text = Text.assemble(("tacit: ", "bold red"), sentence)
    Console(stderr=True, soft_wrap=True).print(text)
    sys.exit(2)
