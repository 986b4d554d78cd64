"""`tacit watch`: a page that shows how far a run, a silo or a coordinator is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.cli.options import OPTION
from tacit.watch import Watch


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a silo or a coordinator.")],
    port: Annotated[int, OPTION(help="Port on loopback; 0 for any that is free.")] = 0,
) -> None:
    """Show a folder as a page that renews itself, until Ctrl-C. The folder is only read."""
    with Watch(folder, port) as server:
        console = Console(soft_wrap=True)
        console.print(f"[bold]Page[/bold]    {server.url}", highlight=False)
        console.print(
            "[bold]For[/bold]     whoever has that address, on this machine; Ctrl-C ends it"
        )
        server.serve_forever()
