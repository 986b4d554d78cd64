"""What several commands share: options, reading their values, and showing a finished run."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # torch is slow to import, and most calls of `tacit` need only the help page
    from tacit.experiment.run import Run

from tacit.errors import TacitError

OPTION = typer.Option
Json = Annotated[bool, OPTION("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, OPTION("--quiet", "-q", help="Print only the path of the result.")]


def names(text: str | None) -> list[str] | None:
    """`a,b,c` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def targets(text: str | None) -> str | list[str] | None:
    """One name as it is, several as a list."""
    parts = names(text)
    return parts[0] if parts and len(parts) == 1 else parts


def pairs(flag: str, given: list[str] | None) -> dict[str, Any]:
    """Values of a flag that is repeated as name=value: JSON where it is JSON, otherwise text.

    `null` is None; so is `none`, where the setting that it belongs to may be None and is not text.
    """
    found: dict[str, Any] = {}
    for pair in given or []:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise TacitError(f"{flag} {pair}: write name=value")
        try:
            found[name.replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            found[name.replace("-", "_")] = text
    return found


@contextlib.contextmanager
def said_of(data: Path) -> Iterator[None]:
    """What a table has that training rows had not, as a line and not as a Python warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        Console().print(Text(f"{data}: {one.message}", style="yellow"), soft_wrap=True)


def show(run: Run, folder: Path, *, quiet: bool, as_json: bool, first: Table | None = None) -> None:
    """A finished run as the user asked for it; `first` stands above its table."""
    from tacit.report.shared import as_text
    from tacit.report.tables import run_table

    result = run.to_json()
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    elif quiet:
        print(folder / "result.json")
    else:
        console = Console()
        if first is not None:
            console.print(first)
        console.print(run_table(result))
        if "summary" in result:  # as it is: names of columns are not markup
            print(as_text(result["summary"], promise=False), end="\n\n")
        console.print(f"[bold]Guarantee[/bold] {run.guarantee}", soft_wrap=True)
        console.print(f"[bold]Report[/bold]    {folder / 'report.html'}", soft_wrap=True)
