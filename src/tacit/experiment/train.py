"""`tacit.train`: check everything, calibrate the noise, run the rounds, measure."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit.data.federation import Federation
from tacit.engine.progress import Progress
from tacit.engine.rounds import epsilon_so_far
from tacit.engine.simulate import Simulation
from tacit.engine.store import CHECKPOINT, REMEDY, check_unused
from tacit.errors import TacitError
from tacit.experiment.auto import choose
from tacit.experiment.engines import ELSEWHERE
from tacit.experiment.finish import finish
from tacit.experiment.plan import AUTO, RENAMED, Plan, takes_settings
from tacit.experiment.prepare import simulation_of
from tacit.experiment.run import Run
from tacit.experiment.start import (
    device_of,
    fresh_folder,
    model_of,
    name_of,
    progress_of,
    sampler_of,
)
from tacit.files import hold, read_json, replace
from tacit.loggers import Announced, Logger
from tacit.methods import Method
from tacit.privacy import Prepaid
from tacit.randomness import Randomness

SETTINGS, BEGAN, TASKS = "settings.json", "began_in", "tasks"


@takes_settings
def train(
    federation: Federation,
    method: Method | str = AUTO,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    loggers: Sequence[Logger] = (),
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Train a personal model for every task.

    Parameters
    ----------
    federation : the tasks and their rows (`tacit.data.load`, `from_table`, `from_arrays`)
    resume : go on with the run in `out`
    progress : what shows that something happens; by default a bar where there is a
        notebook or a terminal
    loggers : tools that are told of the rounds and the result (`tacit.loggers`)
    config : further settings to keep with the result
    """
    plan = Plan.of(method=method, **settings)
    about: Any = {"progress": progress, "loggers": loggers, "config": config}
    return carry_out(plan, federation, resume=resume, **about)


def carry_out(
    plan: Plan,
    federation: Federation,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    loggers: Sequence[Logger] = (),
    config: dict[str, Any] | None = None,
) -> Run:
    """The run of a plan."""
    started = time.monotonic()
    intended = choose(federation, plan)
    plan, federation, method = intended.plan, intended.federation, intended.method
    booked = plan.privacy is None or isinstance(plan.privacy, Prepaid)
    if plan.out is None and plan.seed is None and not booked:
        plan = plan.but(out=fresh_folder(name_of(method)))
    plan.check(federation, resume=resume)
    compute, progress = device_of(plan.device), progress_of(progress)
    folder = None if plan.out is None else Path(plan.out)
    settings = _settings(plan, method) | (config or {})
    settings |= {"chosen": intended.why} if intended.why else {}
    fingerprint = {"data": _fingerprint(federation)} if folder is not None else {}
    if folder is not None and resume and not (folder / CHECKPOINT / SETTINGS).exists():
        raise TacitError(f"{folder} holds no run to resume")
    void = plan.seed is not None or bool(federation.leaks)
    void |= plan.privacy is not None and plan.privacy.is_large(len(federation))
    told = Announced(progress, loggers, void=void)
    with contextlib.nullcontext() if folder is None else hold(folder), told.during(settings):
        key = _key_of(folder, settings | fingerprint, resume)
        randomness = Randomness.of(plan.seed) if key is None else Randomness(plan.seed, key)
        made = model_of(plan.model, federation, randomness.key("model", 0)).to(compute)
        sampler = sampler_of(plan, len(federation))
        progress.say(
            "calibrating the noise" if plan.privacy and plan.privacy.epsilon else "preparing"
        )
        there = federation.to(compute)
        simulation = simulation_of(plan, there, made, sampler, randomness, compute, folder)
        if folder is not None and resume:
            simulation.resume()
        elif folder is not None:  # only now: a run that could not start leaves its folder free
            content = {"settings": settings | fingerprint, "key": randomness.run_key}
            content |= {BEGAN: str(Path.cwd()), TASKS: len(federation)}
            replace(folder / CHECKPOINT / SETTINGS, json.dumps(content, indent=2).encode())
        if plan.engine in ELSEWHERE:
            elsewhere = importlib.import_module(ELSEWHERE[plan.engine])
            elsewhere.run_elsewhere(simulation, plan, federation, folder, told)
        else:
            with told.rounds(method.called, intended.rounds) as on_round:
                simulation.run(
                    patience=plan.patience,
                    epsilon=epsilon_so_far(simulation.rounds, plan.privacy, intended.rounds),
                    on_round=on_round,
                )
        timing = functools.partial(_timing, started, simulation)
        run = finish(plan, simulation, sampler, settings, folder, progress, timing)
        if loggers:
            told.end(run.to_json())
        return run


@contextlib.contextmanager
def where_it_began(folder: Path) -> Iterator[None]:
    """Names of files mean what they meant when the run in this folder began."""
    path = folder / CHECKPOINT / SETTINGS
    place = read_json(path, {}, REMEDY).get(BEGAN) if path.is_file() else None
    known = isinstance(place, str) and Path(place).is_dir()
    with contextlib.chdir(str(place)) if known else contextlib.nullcontext():
        yield


def _settings(plan: Plan, method: Method) -> dict[str, Any]:
    """All that decides a run, as plain values; what `resume` compares and result.json shows."""
    given = dataclasses.asdict(method)
    endless = [key for key, value in given.items() if value == math.inf]  # JSON has no word for it
    return {"method": name_of(method), **given | dict.fromkeys(endless), **plan.to_json()}


def _key_of(folder: Path | None, settings: dict[str, Any], resume: bool) -> int | None:
    """The key of the run in this folder, if it is to go on; a folder never mixes two runs.

    The key shuffles rows (see `Randomness`); an unseeded run keeps its own when it is resumed.
    """
    if folder is None:
        return None
    path = folder / CHECKPOINT / SETTINGS
    if not path.exists():
        check_unused(folder, path)
        return None
    if not resume:
        raise TacitError(
            f"{folder} already holds a run: pass resume=True (--resume {folder}) to go on with it, "
            "or choose another folder"
        )
    content = read_json(path, {"settings": dict, "key": int}, REMEDY)
    before = {RENAMED.get(name, name): value for name, value in content["settings"].items()}
    now = json.loads(json.dumps(settings))
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        raise TacitError(
            f"the run in {folder} was started with other {', '.join(changed)}; resume it with the "
            "same settings and data, or choose another folder"
        )
    return content["key"]


def _fingerprint(federation: Federation) -> str:
    """So that a run is never resumed on other data, public rows, relations among the tasks, or with
    rows that now belong to other persons: each is promised something about all rounds."""
    digest, relation, public = hashlib.sha256(), federation.relation, federation.public
    tensors = [federation.train.x, federation.train.y, federation.train.offsets]
    tensors += [] if relation is None else [relation.loadings, relation.places]
    tensors += [] if public is None else [public.rows.x, public.rows.y]
    tensors += [] if federation.train.persons is None else [federation.train.persons]
    for tensor in tensors:
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()[:16]


def _timing(started: float, simulation: Simulation) -> dict[str, Any]:
    seconds = time.monotonic() - started
    return {
        "seconds": round(seconds, 3),
        "device": str(simulation.device),
        "date": time.strftime("%Y-%m-%d"),
    }
