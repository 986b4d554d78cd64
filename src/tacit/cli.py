"""The command line. Each command is a few lines over the library; errors are one sentence."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.cli_reproduce import reproduce
from tacit.cli_tune import tune
from tacit.errors import TacitError

app = typer.Typer(
    name="tacit",
    help="Private multi-task learning: every party keeps its data and ends with its own model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the result.")]
OPTION = typer.Option
DATA, METHOD, PRIVACY, RUN = "Data", "Method", "Privacy", "Run"


@app.command()
def train(
    config: Annotated[
        Path | None, typer.Argument(help="An experiment as TOML; flags override it.")
    ] = None,
    data: Annotated[
        str | None,
        OPTION(
            help="CSV, Parquet or .npz file, or a name from `tacit data`.", rich_help_panel=DATA
        ),
    ] = None,
    task: Annotated[
        str | None, OPTION(help="Column that says whose row it is.", rich_help_panel=DATA)
    ] = None,
    target: Annotated[
        str | None,
        OPTION(
            help="Column to predict; several, with commas, for yes/no labels.", rich_help_panel=DATA
        ),
    ] = None,
    kind: Annotated[
        str | None,
        OPTION(
            help="regression, binary, multiclass or multilabel, if guessed wrong.",
            rich_help_panel=DATA,
        ),
    ] = None,
    drop: Annotated[
        str | None, OPTION(help="Columns to leave out, with commas.", rich_help_panel=DATA)
    ] = None,
    features: Annotated[
        str | None, OPTION(help="Columns to use, with commas.", rich_help_panel=DATA)
    ] = None,
    categorical: Annotated[
        str | None,
        OPTION(help="Columns of numbers that are categories.", rich_help_panel=DATA),
    ] = None,
    min_rows: Annotated[
        int | None, OPTION(help="Leave out tasks with fewer rows.", rich_help_panel=DATA)
    ] = None,
    scale: Annotated[
        str | None,
        OPTION(
            help="task (inside each task), none, or pooled (a leak, and marked as one).",
            rich_help_panel=DATA,
        ),
    ] = None,
    method: Annotated[
        str | None,
        OPTION(help="pmtl (default) or another of `tacit methods`.", rich_help_panel=METHOD),
    ] = None,
    model: Annotated[
        str | None, OPTION(help="linear (default), mlp or cnn.", rich_help_panel=METHOD)
    ] = None,
    lr: Annotated[float | None, OPTION(help="Local step size.", rich_help_panel=METHOD)] = None,
    local_steps: Annotated[
        int | None, OPTION(help="Local steps per round.", rich_help_panel=METHOD)
    ] = None,
    batch: Annotated[
        int | None, OPTION(help="Rows per local step.", rich_help_panel=METHOD)
    ] = None,
    clip: Annotated[
        float | None, OPTION(help="Largest norm of a contribution.", rich_help_panel=METHOD)
    ] = None,
    pull: Annotated[
        float | None, OPTION(help="PMTL: pull towards the mean.", rich_help_panel=METHOD)
    ] = None,
    setting: Annotated[
        list[str] | None,
        OPTION(
            "--set", help="Any other setting of the method: name=value.", rich_help_panel=METHOD
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        OPTION(help="The promise; without it (or --noise), no privacy.", rich_help_panel=PRIVACY),
    ] = None,
    delta: Annotated[
        float | None, OPTION(help="Default 1 / (10 tasks).", rich_help_panel=PRIVACY)
    ] = None,
    noise: Annotated[
        float | None, OPTION(help="Noise multiplier, instead of ε.", rich_help_panel=PRIVACY)
    ] = None,
    neighbours: Annotated[
        str | None, OPTION(help="add-remove or replace.", rich_help_panel=PRIVACY)
    ] = None,
    sampling: Annotated[
        str | None, OPTION(help="poisson, fixed-size or everyone.", rich_help_panel=PRIVACY)
    ] = None,
    rounds: Annotated[
        int | None, OPTION(help="Number of rounds (100).", rich_help_panel=RUN)
    ] = None,
    cohort: Annotated[
        float | None,
        OPTION(help="Share (1 = all) or number of tasks per round.", rich_help_panel=RUN),
    ] = None,
    seed: Annotated[
        int | None, OPTION(help="Reproducible, and therefore not private.", rich_help_panel=RUN)
    ] = None,
    patience: Annotated[
        int | None,
        OPTION(help="Stop early on validation loss; not with privacy.", rich_help_panel=RUN),
    ] = None,
    baselines: Annotated[
        bool | None,
        OPTION(help="Compare with training alone and a global model.", rich_help_panel=RUN),
    ] = None,
    device: Annotated[str | None, OPTION(help="cpu or cuda.", rich_help_panel=RUN)] = None,
    store: Annotated[
        str | None, OPTION(help="memory, or disk for very many tasks.", rich_help_panel=RUN)
    ] = None,
    out: Annotated[Path | None, OPTION(help="Folder for the result.", rich_help_panel=RUN)] = None,
    resume: Annotated[
        Path | None, OPTION(help="Go on with the run in this folder.", rich_help_panel=RUN)
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a personal model for every task, and write the result, models and a report."""
    from tacit.config import read

    flags = {
        "data": {
            "from": data, "task": task, "target": _target(target), "kind": kind,
            "drop": _list(drop), "features": _list(features), "categorical": _list(categorical),
            "min_rows": min_rows, "scale": scale,
        },
        "method": {
            "name": method, "lr": lr, "local_steps": local_steps, "batch": batch, "clip": clip,
            "pull": pull, **_settings(setting),
        },
        "privacy": {
            "epsilon": epsilon, "delta": delta, "noise": noise, "neighbours": neighbours,
            "sampling": sampling,
        },
        "run": {
            "model": model, "rounds": rounds, "cohort": _cohort(cohort), "seed": seed,
            "patience": patience, "baselines": baselines, "device": device, "store": store,
            "out": None if out is None else str(out),
        },
    }  # fmt: skip
    if resume is not None:
        given = any(value is not None for part in flags.values() for value in part.values())
        if config is not None or given:
            raise TacitError("--resume takes all settings from its folder: leave the others out")
        tables, flags = read(resume / "config.json"), {}
        tables["run"]["out"] = str(resume)
    else:
        tables = read(config) if config is not None else {}
    _train(tables, flags, resume=resume is not None, quiet=quiet, as_json=as_json)


def _train(
    tables: dict[str, Any], flags: dict[str, Any], *, resume: bool, quiet: bool, as_json: bool
) -> None:
    import time

    import tacit
    from tacit.config import check, merge
    from tacit.report.tables import run_table
    from tacit.runtime.progress import Bar, silent
    from tacit.runtime.store import replace

    config = check(merge(tables, flags))
    name = f"{config.method.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = Path(config.run.out or Path("runs") / name)
    federation = config.data.federation()
    started = (folder / "checkpoint" / "settings.json").exists()
    if started and not resume:
        raise TacitError(f"{folder} holds a run: --resume {folder}, or choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / "config.json", config.to_json().encode())
    settings = config.run.model_dump(exclude={"out"})
    try:
        run = tacit.train(
            federation,
            config.method.method(),
            privacy=config.promise(),
            out=folder,
            resume=started,
            progress=silent if quiet or as_json else Bar(),
            config={"data": config.data.model_dump(by_alias=True)},
            **settings,
        )
    except KeyboardInterrupt:
        print(f"stopped; go on with: tacit train --resume {folder}", file=sys.stderr)
        sys.exit(130)
    result = run.to_json()
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    elif quiet:
        print(folder / "result.json")
    else:
        console = Console()
        console.print(run_table(result))
        console.print(f"[bold]Guarantee[/bold] {run.guarantee}", soft_wrap=True)
        console.print(f"[bold]Report[/bold]    {folder / 'report.html'}", soft_wrap=True)


app.command()(tune)
app.command()(reproduce)


@app.command()
def demo(
    out: Annotated[Path, OPTION(help="Folder for the reports.")] = Path("tacit-demo"),
    as_json: Json = False,
) -> None:
    """Real data, about a minute: alone, a private global model, PMTL, and no privacy."""
    from tacit.demo import run_demo

    run_demo(out, as_json=as_json)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `tacit train` wrote.")],
    out: Annotated[Path | None, OPTION(help="Also write the table and a plot as HTML.")] = None,
    as_json: Json = False,
) -> None:
    """Several runs side by side. Choosing among them by these figures is not covered by any ε."""
    from tacit.report.tables import compare_table, write_comparison

    results = {}
    for folder in folders:
        path = folder if folder.suffix == ".json" else folder / "result.json"
        if not path.is_file():
            raise TacitError(f"{folder} holds no result.json: give folders of finished runs")
        results[str(folder)] = json.loads(path.read_text(encoding="utf-8"))
    if as_json:
        keep = ("guarantee", "config", "timing")
        short = {
            name: {key: result[key] for key in keep}
            | {key: result["metrics"][key] for key in ("label", "overall")}
            for name, result in results.items()
        }
        print(json.dumps(short, ensure_ascii=False))
        return
    console = Console()
    console.print(compare_table(results))
    if out is not None:
        write_comparison(results, out)
        console.print(f"[bold]Comparison[/bold] {out}", soft_wrap=True)


@app.command()
def account(
    rounds: Annotated[int, OPTION(help="Number of releases.")],
    noise: Annotated[float | None, OPTION(help="Noise multiplier: report its ε.")] = None,
    epsilon: Annotated[float | None, OPTION(help="ε: report the noise it needs.")] = None,
    rate: Annotated[float, OPTION(help="Chance of a task to be in a cohort.")] = 1.0,
    delta: Annotated[float | None, OPTION(help="δ; or give --tasks for 1 / (10 tasks).")] = None,
    tasks: Annotated[int | None, OPTION(help="Number of tasks.")] = None,
    neighbours: Annotated[str, OPTION(help="add-remove or replace.")] = "add-remove",
    sampling: Annotated[str, OPTION(help="poisson, fixed-size or everyone.")] = "poisson",
    as_json: Json = False,
) -> None:
    """What a noise multiplier is worth in ε, or the other way round; no data needed."""
    from tacit.privacy import Privacy, Release, guarantee, sampler_for

    if delta is None and tasks is None:
        raise TacitError("give --delta, or --tasks for the default δ = 1 / (10 tasks)")
    if sampling == "fixed-size" and tasks is None:
        raise TacitError("fixed-size cohorts need --tasks, the number they are drawn from")
    if rounds < 1:
        raise TacitError(f"--rounds {rounds}: at least 1 is needed")
    number = tasks or 1
    side: Literal["add-remove", "replace"] = neighbours  # type: ignore[assignment]
    privacy = Privacy(
        epsilon=epsilon, delta=delta, noise=noise, neighbours=side,
        sampling=sampling,  # type: ignore[arg-type]
    )  # fmt: skip
    sampler = sampler_for(sampling, rate if sampling != "everyone" else 1.0, number)
    multiplier = privacy.noise_multiplier(sampler, rounds, number)
    promise = guarantee(
        {Release(sampler, multiplier): rounds}, channel="billboard", privacy=privacy, tasks=number,
        sampler=sampler, clip=1.0, seeded=False,
    )  # fmt: skip
    if as_json:
        keep = ("epsilon", "delta", "neighbours", "sampling", "accountant", "releases",
                "noise_multiplier")  # fmt: skip
        full = promise.to_json()
        print(json.dumps({key: full[key] for key in keep}))
    else:
        Console().print(f"noise multiplier {multiplier:.6g}: {promise}", soft_wrap=True)


@app.command()
def methods(as_json: Json = False) -> None:
    """The methods, their settings and defaults."""
    from tacit.methods import METHODS

    described = {
        name: {
            "about": (kind.__doc__ or "").strip().splitlines()[0],
            "channel": kind.channel,
            "settings": {field.name: field.default for field in dataclasses.fields(kind)},
        }
        for name, kind in METHODS.items()
    }
    if as_json:
        print(json.dumps(described))
        return
    table = Table("method", "what it does", "settings and defaults", show_lines=True)
    for name, about in described.items():
        settings = ", ".join(f"{key}={value}" for key, value in about["settings"].items())
        table.add_row(name, about["about"], settings)
    Console().print(table)


@app.command(name="data")
def data_command(
    source: Annotated[
        str | None, typer.Argument(help="A file or a name: describe it instead of listing.")
    ] = None,
    task: Annotated[str | None, OPTION(help="Column that says whose row it is.")] = None,
    target: Annotated[str | None, OPTION(help="Column to predict.")] = None,
    min_rows: Annotated[int | None, OPTION(help="Leave out tasks with fewer rows.")] = None,
    as_json: Json = False,
) -> None:
    """The data sets known by name, or what tacit makes of a file, before any training."""
    from tacit import data

    if source is not None:
        given = {"task": task, "target": _target(target), "min_rows": min_rows}
        options = {key: value for key, value in given.items() if value is not None}
        _describe(data.load(source, **options), as_json)
        return
    sources = data.sources()
    if as_json:
        print(json.dumps([dataclasses.asdict(source) for source in sources]))
        return
    table = Table("name", "what it is", "kind of target", "needs")
    for known in sources:
        table.add_row(known.name, known.title, known.kind, known.needs)
    console = Console()
    console.print(table)
    console.print(
        "Or a file: .csv, .csv.gz, .parquet (with --task and --target), .npz (x, y, tasks)"
    )


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="Folder that `tacit train` wrote.")],
    data: Annotated[Path, OPTION(help="Table with the columns of the training table.")],
    out: Annotated[Path, OPTION(help="CSV file for the predictions.")],
) -> None:
    """Predict new rows, each with the personal model of its own task."""
    from tacit.data.cells import texts
    from tacit.data.tabular import read_table, write_predictions
    from tacit.runtime.models import SavedModels

    models = SavedModels.load(folder)
    schema = models.federation.schema
    if schema is None:
        raise TacitError(f"the run in {folder} was not made from a table: use tacit.SavedModels")
    table = read_table(data)
    if schema.task not in table:
        raise TacitError(f"{data} has no column {schema.task!r}, which says whose row it is")
    tasks = texts(table[schema.task], schema.task)
    values = models.predict(table, tasks)
    write_predictions(out, tasks, values, schema, models.federation.labels)
    Console().print(f"{len(values)} predictions in {out}", soft_wrap=True)


def _describe(federation: Any, as_json: bool) -> None:
    counts = federation.train.counts
    facts = {
        "source": federation.source,
        "tasks": len(federation),
        "target": federation.kind,
        "features": list(federation.features),
        "training rows": int(counts.sum()),
        "rows of a task": [int(counts.min()), int(counts.median()), int(counts.max())],
        "assumed public": list(federation.assumptions),
        "leaks": list(federation.leaks),
    }
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        if isinstance(value, list) and name == "rows of a task":
            value = "{} (smallest), {} (median), {} (largest)".format(*value)
        table.add_row(name, "; ".join(map(str, value)) if isinstance(value, list) else str(value))
    Console().print(table)


def _list(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def _target(text: str | None) -> str | list[str] | None:
    parts = _list(text)
    return parts[0] if parts and len(parts) == 1 else parts


def _cohort(value: float | None) -> float | int | None:
    return int(value) if value is not None and value > 1 and value == int(value) else value


def _settings(pairs: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, sign, text = pair.partition("=")
        if not sign:
            raise TacitError(f"--set {pair}: write name=value")
        try:
            found[name.replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            found[name.replace("-", "_")] = text
    return found


def main() -> None:
    """The entry point: a user never sees a traceback for something that was given wrongly."""
    try:
        app()
    except TacitError as error:
        sentence = Text.assemble(("tacit: ", "bold red"), str(error))
        Console(stderr=True, soft_wrap=True).print(sentence)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
