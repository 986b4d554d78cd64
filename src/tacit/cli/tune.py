"""`tacit tune`: choose settings by runs that are paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tacit.cli.options import OPTION, Json, Quiet
from tacit.cli.show import show
from tacit.engine.progress import Bar, silent
from tacit.errors import TacitError
from tacit.experiment.start import fresh_folder
from tacit.experiment.toml import check, merge, read
from tacit.experiment.tune import tune_plan
from tacit.files import replace


def tune(
    config: Annotated[Path, typer.Argument(help=r"An experiment as TOML, with a \[tune] table.")],
    schema: Annotated[
        Path | None,
        OPTION(help="Columns, classes and tasks as public constants (tacit data --write-schema)."),
    ] = None,
    out: Annotated[Path | None, OPTION(help="Folder for the result.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    r"""Choose settings by a random number of private runs; the promised ε covers the choice.

    What is searched stands in the file, beside \[data], \[method] and \[privacy]:

    \[tune]

    runs = 10   # on average

    lr = \[0.01, 0.03, 0.1]   # one of these

    clip = {low = 0.1, high = 2.0}   # log-uniform between the two
    """
    over = {
        "data": {} if schema is None else {"schema": str(schema)},
        "run": {} if out is None else {"out": str(out)},
    }
    checked = check(merge(read(config), over))
    if checked.tune is None:
        raise TacitError(f"{config} has no [tune] table: add one, like lr = [0.01, 0.1]")
    plan = checked.plan()
    if plan.privacy is None:
        raise TacitError(f"{config} has no [privacy] table: tuning books what a choice costs")
    folder = Path(plan.out or fresh_folder(f"{checked.method.name}-tuned"))
    run = tune_plan(
        plan.but(out=folder),
        checked.federation(),
        checked.tune.search(),
        checked.tune.runs,
        progress=silent if quiet or as_json else Bar(),
        config={"data": checked.data.model_dump(by_alias=True)},
    )
    replace(folder / "config.json", checked.to_json().encode())
    show(run, folder, quiet=quiet, as_json=as_json, first=_chosen(run.config["tuning"]))


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
