"""`tacit tune`: choose settings by runs that are paid for."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.errors import TacitError


def tune(
    config: Annotated[Path, typer.Argument(help="An experiment as TOML, with a [tune] table.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the result.")] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the path of the result.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")
    ] = False,
) -> None:
    """Choose settings by a random number of private runs; the promised ε covers the choice."""
    import tacit
    from tacit.config import check, merge, read
    from tacit.report.tables import run_table
    from tacit.runtime.progress import Bar, silent
    from tacit.runtime.store import replace

    over = {"run": {"out": None if out is None else str(out)}}
    checked = check(merge(read(config), over))
    if checked.tune is None:
        raise TacitError(f"{config} has no [tune] table: add one, like lr = [0.01, 0.1]")
    promise = checked.promise()
    if promise is None:
        raise TacitError(f"{config} has no [privacy] table: tuning books what a choice costs")
    if checked.run.patience is not None or checked.run.store == "disk":
        raise TacitError("patience and store = 'disk' are not for tuning: leave them out")
    name = f"{checked.method.name}-tuned-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = Path(checked.run.out or Path("runs") / name)
    run = tacit.tune(
        checked.data.federation(),
        checked.method.method(),
        search=checked.tune.search(),
        expected_runs=checked.tune.runs,
        privacy=promise,
        out=folder,
        progress=silent if quiet or as_json else Bar(),
        config={"data": checked.data.model_dump(by_alias=True)},
        **checked.run.model_dump(exclude={"out", "patience", "store"}),
    )
    replace(folder / "config.json", checked.to_json().encode())
    result = run.to_json()
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    elif quiet:
        print(folder / "result.json")
    else:
        console = Console()
        console.print(_chosen(result["config"]["tuning"]))
        console.print(run_table(result))
        console.print(f"[bold]Guarantee[/bold] {run.guarantee}", soft_wrap=True)
        console.print(f"[bold]Report[/bold]    {folder / 'report.html'}", soft_wrap=True)


def _chosen(about: dict[str, Any]) -> Table:
    """What was searched and what was chosen; runs that lost are nobody's business."""
    table = Table("setting", "searched", "chosen")
    for name, searched in about["search"].items():
        value = about["chosen"][name]
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        table.add_row(Text(name), Text(searched), Text(shown))
    table.caption = Text(
        f"{about['expected_runs']:g} runs on average; noisy score of the best, covered by ε: "
        f"{about['score']:.3f}, its noise {about['score_noise']:.2g} "
        f"({about['score_means']}; mean over tasks, on validation rows)"
    )
    return table
