"""The command line. Each command is a few lines over the library; errors are one sentence."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli import (
    account,
    audit,
    coordinator,
    deploy,
    known,
    mixed,
    moved,
    results,
    secure,
    silo,
    train,
    tune,
)
from tacit.errors import TacitError

app = typer.Typer(
    name="tacit",
    help="Private multi-task learning: every party keeps its data and ends with its own model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# In the order of the help page.
app.command()(train.train)
app.command()(mixed.mixed)
app.command()(tune.tune)
app.command()(results.demo)
app.command()(results.compare)
app.command()(results.predict)
app.command()(account.account)
app.command()(audit.audit)
app.command()(known.methods)
app.command(name="data")(known.data_sets)
app.add_typer(deploy.app)
app.add_typer(coordinator.app)
app.add_typer(silo.app)
app.command()(secure.certificates)
app.command()(secure.server)
app.command(hidden=True, context_settings=moved.ANYTHING)(moved.reproduce)


def main() -> None:
    """The entry point: a user never sees a traceback for something that was given wrongly."""
    try:
        app()
    except TacitError as error:
        _leave(str(error))
    except OSError as error:  # a disk that is full, a folder that is gone
        where = error.filename or "a file or connection"
        _leave(f"{where} cannot be used: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _leave(sentence: str) -> None:
    text = Text.assemble(("tacit: ", "bold red"), sentence)
    Console(stderr=True, soft_wrap=True).print(text)
    sys.exit(2)
