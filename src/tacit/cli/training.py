"""What `tacit train` does once it has read its flags."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from tacit.cli.known import only_names
from tacit.engine.progress import Bar, silent
from tacit.engine.store import CHECKPOINT
from tacit.errors import TacitError
from tacit.experiment.start import fresh_folder
from tacit.experiment.toml import check, merge, read
from tacit.experiment.train import SETTINGS, carry_out, where_it_began
from tacit.files import hold, replace


def train_from(
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    *,
    resume: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train as the file says, with flags over it, or go on with the run in `resume`."""
    if resume is not None:
        if config is not None or flags:
            raise TacitError("--resume takes all settings from its folder: leave the others out")
        if not (resume / "config.json").is_file():
            raise TacitError(
                f"{resume} holds no run of tacit train; one of tacit mixed goes on with "
                f"tacit mixed --resume {resume}"
            )
        resume = resume.absolute()
        tables, flags = read(resume / "config.json"), {"run": {"out": str(resume)}}
    else:
        tables = read(config) if config is not None else {}
        if "from" in flags.get("data", {}) and tables.get("data") == {"from": str(config)}:
            raise TacitError(f"{config} and --data are two tables: leave one out")
    with contextlib.nullcontext() if resume is None else where_it_began(resume):
        _train(tables, flags, resume=resume is not None, quiet=quiet, as_json=as_json)


def _train(
    tables: dict[str, Any], flags: dict[str, Any], *, resume: bool, quiet: bool, as_json: bool
) -> None:
    config = check(merge(tables, flags))
    plan = config.plan()
    folder = Path(plan.out or fresh_folder(config.method.name))
    federation = config.federation()
    if federation.naming and not (quiet or as_json):
        print(f"different in every row: {only_names(federation.naming)}")
    with hold(folder):
        started = (folder / CHECKPOINT / SETTINGS).exists()
        if started and not resume:
            raise TacitError(f"{folder} holds a run: --resume {folder}, or choose another --out")
        replace(folder / "config.json", config.to_json().encode())
        try:
            run = carry_out(
                plan.but(out=folder),
                federation,
                resume=started,
                progress=silent if quiet or as_json else Bar(),
                config={"data": config.data.model_dump(by_alias=True)},
            )
        except KeyboardInterrupt:
            print(f"stopped; go on with: tacit train --resume {folder}", file=sys.stderr)
            sys.exit(130)
    from tacit.cli.show import show  # what draws was imported while models were made

    show(run, folder, quiet=quiet, as_json=as_json)
