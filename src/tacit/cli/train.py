"""`tacit train`: every setting of an experiment as a flag, which `tacit audit` takes as well."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.options import OPTION, Json, Quiet, names, pairs, show, targets
from tacit.errors import TacitError

DATA, METHOD, PRIVACY, CURATOR, RUN = "Data", "Method", "Privacy", "Curator", "Run"


def settings(
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
            help="auto, task (inside each task), none, or pooled (a leak, and marked as one).",
            rich_help_panel=DATA,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        OPTION(help="Any other option of the data: name=value.", rich_help_panel=DATA),
    ] = None,
    schema: Annotated[
        Path | None,
        OPTION(
            help="Columns, classes and tasks as public constants (tacit data --write-schema).",
            rich_help_panel=DATA,
        ),
    ] = None,
    relation: Annotated[
        Path | None,
        OPTION(
            help="How tasks are publicly related, as CSV: task,cluster or a matrix.",
            rich_help_panel=DATA,
        ),
    ] = None,
    method: Annotated[
        str | None,
        OPTION(help="auto (default) or one of `tacit methods`.", rich_help_panel=METHOD),
    ] = None,
    model: Annotated[
        str | None, OPTION(help="linear (default), mlp, cnn, …", rich_help_panel=METHOD)
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
    server: Annotated[
        list[str] | None,
        OPTION(
            help="What is done with a release before it is published: rule=momentum, lr=0.5, …",
            rich_help_panel=METHOD,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        OPTION(help="The promise; without it (or --noise), no privacy.", rich_help_panel=PRIVACY),
    ] = None,
    delta: Annotated[
        float | None,
        OPTION(help="Default 1 / (10 tasks), at most 0.001.", rich_help_panel=PRIVACY),
    ] = None,
    large_delta: Annotated[
        bool | None,
        OPTION("--large-delta", help="Take a δ above 1 / tasks.", rich_help_panel=PRIVACY),
    ] = None,
    noise: Annotated[
        float | None, OPTION(help="Noise multiplier, instead of ε.", rich_help_panel=PRIVACY)
    ] = None,
    neighbours: Annotated[
        str | None, OPTION(help="add-remove or replace.", rich_help_panel=PRIVACY)
    ] = None,
    sampling: Annotated[
        str | None, OPTION(help="poisson, in-turn or everyone.", rich_help_panel=PRIVACY)
    ] = None,
    curator: Annotated[
        str | None,
        OPTION(
            help="secure: servers work on shares, so that none sees a contribution.",
            rich_help_panel=CURATOR,
        ),
    ] = None,
    servers: Annotated[
        int | None, OPTION(help="How many servers (3).", rich_help_panel=CURATOR)
    ] = None,
    trust: Annotated[
        str | None,
        OPTION(help="dealer or replicated; only on the exchange.", rich_help_panel=CURATOR),
    ] = None,
    bits: Annotated[
        int | None, OPTION(help="32 or 64; only on the exchange.", rich_help_panel=CURATOR)
    ] = None,
    slots: Annotated[
        int | None,
        OPTION(
            help="Task layers that each client uploads, fakes among them (as many as heads).",
            rich_help_panel=CURATOR,
        ),
    ] = None,
    peers: Annotated[
        str | None,
        OPTION(help="Addresses of server processes, with commas.", rich_help_panel=CURATOR),
    ] = None,
    dealer: Annotated[
        str | None, OPTION(help="Address of the dealer's process.", rich_help_panel=CURATOR)
    ] = None,
    certificates: Annotated[
        Path | None, OPTION(help="Folder of all parties' certificates.", rich_help_panel=CURATOR)
    ] = None,
    rounds: Annotated[
        int | None,
        OPTION(
            help="Number of rounds, if not what is usual for the method.",
            rich_help_panel=RUN,
        ),
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
    personalise: Annotated[
        str | None,
        OPTION(
            help="Each task's last step: best (default), vanilla, mean, kl, ewc or none.",
            rich_help_panel=RUN,
        ),
    ] = None,
    baselines: Annotated[
        bool | None,
        OPTION(help="Compare with training alone and a global model.", rich_help_panel=RUN),
    ] = None,
    device: Annotated[str | None, OPTION(help="cpu or cuda.", rich_help_panel=RUN)] = None,
    store: Annotated[
        str | None, OPTION(help="memory, or disk for very many tasks.", rich_help_panel=RUN)
    ] = None,
    engine: Annotated[
        str | None,
        OPTION(
            help="simulate (default), or flower: the same on Ray, for which RAY_ADDRESS may name "
            "a cluster.",
            rich_help_panel=RUN,
        ),
    ] = None,
    out: Annotated[Path | None, OPTION(help="Folder for the result.", rich_help_panel=RUN)] = None,
) -> dict[str, dict[str, Any]]:
    """Every setting of an experiment, as the tables of a file."""
    return {
        "data": {
            "from": data, "task": task, "target": targets(target), "kind": kind,
            "drop": names(drop), "features": names(features), "categorical": names(categorical),
            "min_rows": min_rows, "scale": scale, "schema": None if schema is None else str(schema),
            "relation": None if relation is None else str(relation), **pairs("--option", option),
        },
        "method": {
            "name": method, "lr": lr, "local_steps": local_steps, "batch": batch, "clip": clip,
            "pull": pull, **pairs("--set", setting),
        },
        "server": pairs("--server", server),
        "privacy": {
            "epsilon": epsilon, "delta": delta, "noise": noise, "neighbours": neighbours,
            "sampling": sampling, "large_delta": large_delta,
        },
        "curator": {
            "kind": curator, "servers": servers, "trust": trust, "bits": bits, "slots": slots,
            "peers": names(peers), "dealer": dealer,
            "certificates": None if certificates is None else str(certificates),
        },
        "run": {
            "model": model, "rounds": rounds, "cohort": _cohort(cohort), "seed": seed,
            "patience": patience, "personalise": personalise, "baselines": baselines,
            "device": device, "store": store, "engine": engine,
            "out": None if out is None else str(out),
        },
    }  # fmt: skip


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all settings of an experiment as options; it is handed them as `flags`."""
    own, shared = (inspect.signature(part, eval_str=True) for part in (command, settings))
    kept = [one for one in own.parameters.values() if one.name != "flags"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        flags = settings(**{name: given.pop(name) for name in shared.parameters})
        command(flags=flags, **given)

    every = [kept[0], *shared.parameters.values(), *kept[1:]]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in keywords}
    return run


@with_settings
def train(
    config: Annotated[
        Path | None, typer.Argument(help="An experiment as TOML; flags override it.")
    ] = None,
    resume: Annotated[
        Path | None, OPTION(help="Go on with the run in this folder.", rich_help_panel=RUN)
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    flags: dict[str, dict[str, Any]],
) -> None:
    """Train a personal model for every task, and write the result, models and a report."""
    from tacit.experiment.toml import read

    if resume is not None:
        given = any(value is not None for part in flags.values() for value in part.values())
        if config is not None or given:
            raise TacitError("--resume takes all settings from its folder: leave the others out")
        if not (resume / "config.json").is_file():
            raise TacitError(
                f"{resume} holds no run of tacit train; one of tacit mixed goes on with "
                f"tacit mixed --resume {resume}"
            )
        tables, flags = read(resume / "config.json"), {"run": {"out": str(resume)}}
    else:
        tables = read(config) if config is not None else {}
    _train(tables, flags, resume=resume is not None, quiet=quiet, as_json=as_json)


def _train(
    tables: dict[str, Any], flags: dict[str, Any], *, resume: bool, quiet: bool, as_json: bool
) -> None:
    import tacit
    from tacit.engine.progress import Bar, silent
    from tacit.engine.store import CHECKPOINT
    from tacit.experiment.start import fresh_folder
    from tacit.experiment.toml import check, merge
    from tacit.experiment.train import SETTINGS
    from tacit.files import hold, replace

    config = check(merge(tables, flags))
    folder = Path(config.run.out or fresh_folder(config.method.name))
    federation = config.data.federation()
    settings = config.run.model_dump(exclude={"out"})
    with hold(folder):
        started = (folder / CHECKPOINT / SETTINGS).exists()
        if started and not resume:
            raise TacitError(f"{folder} holds a run: --resume {folder}, or choose another --out")
        replace(folder / "config.json", config.to_json().encode())
        try:
            run = tacit.train(
                federation,
                config.method.method(),
                privacy=config.promise(),
                server=config.server_rule(),
                curator=config.curated(),
                out=folder,
                resume=started,
                progress=silent if quiet or as_json else Bar(),
                config={"data": config.data.model_dump(by_alias=True)},
                **settings,
            )
        except KeyboardInterrupt:
            print(f"stopped; go on with: tacit train --resume {folder}", file=sys.stderr)
            sys.exit(130)
    show(run, folder, quiet=quiet, as_json=as_json)


def _cohort(value: float | None) -> float | int | None:
    return int(value) if value is not None and value > 1 and value == int(value) else value
