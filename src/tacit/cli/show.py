"""A finished run, as a command prints it."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tacit.experiment.run import Run
from tacit.report.shared import as_text
from tacit.report.tables import run_table
from tacit.report.words import fitted_on


def show(run: Run, folder: Path, *, quiet: bool, as_json: bool, first: Table | None = None) -> None:
    """A finished run as the user asked for it; `first` stands above its table."""
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
        if result["public"]:
            print(fitted_on(result["public"]), end="\n\n")
        console.print(f"[bold]Guarantee[/bold] {run.guarantee}", soft_wrap=True)
        console.print(f"[bold]Trust[/bold]     {run.guarantee.trusts}", soft_wrap=True)
        console.print(f"[bold]Report[/bold]    {folder / 'report.html'}", soft_wrap=True)
