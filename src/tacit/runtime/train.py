"""`tacit.train`: check everything, calibrate the noise, run the rounds, measure."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from torch import nn

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.files import hold, read_json, replace
from tacit.local.flat import ModelFactory
from tacit.local.recipes import Personalise
from tacit.methods import AUTO, ExchangeMethod, Method, OnBillboard, Server
from tacit.models import linear
from tacit.privacy import Everyone, Prepaid, Privacy, Sampler, sampler_for
from tacit.privacy.accounting import growth
from tacit.randomness import Randomness
from tacit.runtime.attendance import Attendance
from tacit.runtime.auto import chosen
from tacit.runtime.curator import check_curator
from tacit.runtime.engine import FLOWER, SIMULATE, check_engine, model_name
from tacit.runtime.finish import finish
from tacit.runtime.prepare import prepare
from tacit.runtime.progress import Progress
from tacit.runtime.rounds import Rounds
from tacit.runtime.run import Run
from tacit.runtime.simulate import Simulation
from tacit.runtime.start import (
    check,
    check_channel,
    device_of,
    fresh_folder,
    model_of,
    name_of,
    progress_of,
)
from tacit.runtime.store import CHECKPOINT, REMEDY, check_unused
from tacit.secure.settings import Secure

SETTINGS = "settings.json"


def train(
    federation: Federation,
    method: Method | str = AUTO,
    *,
    model: nn.Module | ModelFactory | str = linear,
    privacy: Privacy | None = None,
    rounds: int | None = None,
    cohort: float | int | None = None,
    seed: int | None = None,
    patience: int | None = None,
    server: Server | None = None,
    attendance: Attendance | None = None,
    curator: Secure | None = None,
    personalise: Personalise = "best",
    baselines: bool = True,
    device: str = "cpu",
    store: Literal["memory", "disk"] = "memory",
    out: str | Path | None = None,
    resume: bool = False,
    engine: Literal["simulate", "flower"] = "simulate",
    progress: Progress | None = None,
    config: dict[str, Any] | None = None,
) -> Run:
    """Train a personal model for every task.

    Parameters
    ----------
    federation : the tasks and their rows (`tacit.data.load`, `from_table`, `from_arrays`)
    method : "auto" chooses by public facts (`runtime.auto`); or a name that `tacit methods` lists;
        or `tacit.PMTL(...)`, `tacit.FedMTL(...)`, `tacit.Local(...)`, …
    model : a torch module, a function `federation -> module`, or a name in `tacit.models.MODELS`
    privacy : what to promise; None publishes exact sums (no clip, no noise, no guarantee)
    rounds, cohort : how often, and the rate (0, 1] or number of tasks per round; None for what is
        usual for the method: mostly 100 rounds with everyone
    seed : makes the run reproducible, and therefore *not private*
    patience : stop after so many evaluations without a lower validation loss; refused with
        `privacy`, because the moment of stopping would tell something about all tasks
    server : what is done with a release before it is published, such as averaging (`tacit.Server`);
        only on the billboard
    attendance : which clients join late or are lost in a round (`tacit.Attendance`); only on the
        exchange
    curator : `tacit.Secure(...)` for servers that sum on secret shares, with noise inside, so that
        nobody sees a contribution; None for one machine that sees them all
    personalise : the last step, which each task takes on its own rows at no privacy cost: "best" of
        many (never much worse than training alone), one way of fine-tuning ("vanilla", "mean",
        "kl", "ewc"), or "none" to keep the method's own models
    baselines : also measure training alone and the global model with the same settings; their
        models are thrown away, their scores are not covered by the guarantee
    device : "cpu" or "cuda"
    store : "disk" keeps personal models in one memory-mapped file in `out`
    out : folder for ledger, checkpoint, result, models and report; a private run without a seed
        always has one (default `runs/<method>-<time>`), because its ledger must survive
    resume : go on with the run in `out`
    engine : "simulate" trains all tasks in this process; "flower" makes the same run on Flower's
        simulation engine, with every task a silo at Ray's workers: on the cluster that RAY_ADDRESS
        names (then `out` must be on a file system that all its machines share), otherwise on the
        cores of this machine. It needs `tacit[ray]`, a model and a method by name, and CPUs
    progress : what shows that something happens; by default a bar where there is a terminal
    config : further settings to keep with the result
    """
    started = time.monotonic()
    compute = device_of(device)
    plan = chosen(federation, method, privacy, model, rounds, cohort, personalise)
    federation, method, rounds, cohort = plan.federation, plan.method, plan.rounds, plan.cohort
    check(federation, method, rounds, patience, privacy, personalise)
    check_channel(method, server, attendance)
    check_curator(federation, method, curator, privacy, seed)
    unable = {"patience": patience, "attendance": attendance, "curator": curator}
    check_engine(engine, method, model, privacy, compute, **unable)
    booked = privacy is None or isinstance(privacy, Prepaid)
    if out is None and seed is None and not booked:
        out = fresh_folder(name_of(method))
    if out is None and (resume or store == "disk"):
        raise TacitError("a folder is needed: pass out=... (--out DIR)")
    folder = Path(out) if out is not None else None
    progress = progress_of(progress)
    settings = _settings(method, model, privacy, rounds, cohort, seed, config)
    settings |= {"personalise": personalise, "server": asdict(server) if server else None}
    settings |= {"chosen": plan.why} if plan.why else {}
    settings |= {"attendance": attendance.to_json()} if attendance else {}
    settings |= {"curator": curator.to_json()} if curator else {}
    settings |= {"engine": engine} if engine != SIMULATE else {}
    fingerprint = {"data": _fingerprint(federation)} if folder is not None else {}
    if folder is not None and resume and not (folder / CHECKPOINT / SETTINGS).exists():
        raise TacitError(f"{folder} holds no run to resume")
    with contextlib.nullcontext() if folder is None else hold(folder):
        key = _key_of(folder, settings | fingerprint, resume)
        randomness = Randomness.of(seed) if key is None else Randomness(seed, key)
        made = model_of(model, federation, randomness.key("model", 0)).to(compute)
        sampler = _sampler(method, privacy, cohort, len(federation))
        progress.say("calibrating the noise" if privacy and privacy.epsilon else "preparing")
        simulation = prepare(
            federation.to(compute), method, made, privacy, sampler, rounds, randomness, compute,
            store=store, folder=folder, server=server, attendance=attendance,
            curator=curator,
        )  # fmt: skip
        if folder is not None and resume:
            simulation.resume()
        elif folder is not None:  # only now: a run that could not start leaves its folder free
            content = {"settings": settings | fingerprint, "key": randomness.run_key}
            replace(folder / CHECKPOINT / SETTINGS, json.dumps(content, indent=2).encode())
        if engine == FLOWER:
            from tacit.runtime.flower.simulation import run_on_flower  # needs tacit[ray]
            from tacit.runtime.silos.terms import terms_of

            terms = terms_of(
                federation, method, model=model_name(model) or "", rounds=rounds, cohort=cohort,
                privacy=privacy, server=server, seed=seed,
            )  # fmt: skip
            run_on_flower(simulation, terms, folder, randomness.run_key, progress)
        else:
            with progress.rounds(type(method).__name__, rounds) as on_round:
                simulation.run(
                    patience=patience,
                    epsilon=epsilon_so_far(simulation.rounds, privacy, rounds),
                    on_round=on_round,
                )
        return finish(
            simulation, privacy, sampler, settings,
            personalise=personalise, baselines=baselines, folder=folder, progress=progress,
            timing=lambda: _timing(started, simulation), on_disk=store == "disk", curator=curator,
        )  # fmt: skip


def epsilon_so_far(
    made: Rounds, privacy: Privacy | None, rounds: int
) -> Callable[[int], float | None]:
    """ε after so many releases, for display while the run goes on."""
    release = made.course.channel.release
    if release is None or privacy is None:
        return lambda releases: None
    channel = made.course.channel
    repeats = len(channel.ledger) - made.board.round if channel.randomness.secret else 0
    longest, tasks = rounds + max(0, repeats), channel.tasks
    coming = [channel.release_at(min(t, rounds - 1)) or release for t in range(longest)]
    curve = growth(coming, privacy.delta_for(tasks), privacy.neighbours)
    return lambda releases: curve[min(releases, longest)] if math.isfinite(curve[-1]) else None


def _sampler(method: Method, privacy: Privacy | None, cohort: float | int, tasks: int) -> Sampler:
    if not isinstance(method, OnBillboard | ExchangeMethod):
        return Everyone()
    return sampler_for(privacy.sampling if privacy else "poisson", cohort, tasks)


def _settings(
    method: Method,
    model: object,
    privacy: Privacy | None,
    rounds: int,
    cohort: float | int,
    seed: int | None,
    config: dict[str, Any] | None,
) -> dict[str, Any]:
    """All that decides a run, as plain values; what `resume` compares and result.json shows."""
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    given = dataclasses.asdict(method)
    endless = [key for key, value in given.items() if value == math.inf]  # JSON has no word for it
    return {
        "method": name_of(method),
        **given | dict.fromkeys(endless),
        "model": name,
        "privacy": None if privacy is None else dataclasses.asdict(privacy),
        "rounds": rounds,
        "cohort": cohort,
        "seed": seed,
        **(config or {}),
    }


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
    before, now = content["settings"], json.loads(json.dumps(settings))
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        raise TacitError(
            f"the run in {folder} was started with other {', '.join(changed)}; resume it with the "
            "same settings and data, or choose another folder"
        )
    return content["key"]


def _fingerprint(federation: Federation) -> str:
    """So that a run is never resumed on other data, or with other relations among the tasks."""
    digest = hashlib.sha256()
    for tensor in (federation.train.x, federation.train.y, federation.train.offsets):
        digest.update(tensor.contiguous().cpu().numpy().data)
    if federation.relation is not None:
        for tensor in (federation.relation.loadings, federation.relation.places):
            digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()[:16]


def _timing(started: float, simulation: Simulation) -> dict[str, Any]:
    seconds = time.monotonic() - started
    return {
        "seconds": round(seconds, 3),
        "device": str(simulation.device),
        "date": time.strftime("%Y-%m-%d"),
    }
