"""What several commands share: options, and reading their values."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tacit.errors import TacitError

OPTION = typer.Option
Json = Annotated[bool, OPTION("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, OPTION("--quiet", "-q", help="Print only the path of the result.")]

Drop = Annotated[str | None, OPTION(help="Columns to leave out, with commas.")]
Categorical = Annotated[str | None, OPTION(help="Columns of numbers that are categories.")]
DropUnlabelled = Annotated[
    bool, OPTION("--drop-unlabelled", help="Leave out rows without a target.")
]


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
