"""`tacit.train`: check everything, calibrate the noise, run the rounds, measure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.local import flat
from tacit.local.flat import FlatModel, ModelFactory
from tacit.methods import METHODS, BillboardMethod, Method
from tacit.models import MODELS, linear
from tacit.privacy import Everyone, Privacy, Sampler, sampler_for
from tacit.privacy.accounting import growth
from tacit.randomness import Randomness
from tacit.runtime.baselines import baseline_scores
from tacit.runtime.prepare import prepare
from tacit.runtime.progress import Progress, silent
from tacit.runtime.run import Run
from tacit.runtime.simulate import Simulation
from tacit.runtime.store import replace


def train(
    federation: Federation,
    method: Method,
    *,
    model: nn.Module | ModelFactory | str = linear,
    privacy: Privacy | None = None,
    rounds: int = 100,
    cohort: float | int = 1.0,
    seed: int | None = None,
    patience: int | None = None,
    baselines: bool = True,
    device: str = "cpu",
    store: Literal["memory", "disk"] = "memory",
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress = silent,
    config: dict[str, Any] | None = None,
) -> Run:
    """Train a personal model for every task.

    Parameters
    ----------
    federation : the tasks and their rows (`tacit.data.load`, `from_table`, `from_arrays`)
    method : `tacit.PMTL(...)`, `tacit.FedAvg(...)`, `tacit.Local(...)`
    model : a torch module, a function `federation -> module`, or a name in `tacit.models.MODELS`
    privacy : what to promise; None publishes exact sums (no clip, no noise, no guarantee)
    rounds, cohort : how often, and the rate (0, 1] or number of tasks per round
    seed : makes the run reproducible, and therefore *not private*
    patience : stop after so many evaluations without a lower validation loss; refused with
        `privacy`, because the moment of stopping would tell something about all tasks
    baselines : also measure training alone and the global model with the same settings; their
        models are thrown away, their scores are not covered by the guarantee
    device : "cpu" or "cuda"
    store : "disk" keeps personal models in one memory-mapped file in `out`
    out : folder for ledger, checkpoint, result, models and report; a private run without a seed
        always has one (default `runs/<method>-<time>`), because its ledger must survive
    resume : go on with the run in `out`
    """
    started = time.monotonic()
    compute = _device(device)
    _check(federation, method, rounds, patience, privacy)
    if out is None and seed is None and privacy is not None:
        out = Path("runs") / f"{type(method).__name__.lower()}-{time.strftime('%Y%m%d-%H%M%S')}"
    if out is None and (resume or store == "disk"):
        raise TacitError("a folder is needed: pass out=... (--out DIR)")
    folder = Path(out) if out is not None else None
    randomness = _randomness(seed, folder, resume)
    made = _model(model, federation, randomness.key("model", 0)).to(compute)
    sampler = _sampler(method, privacy, cohort, len(federation))
    settings = _settings(method, model, privacy, rounds, cohort, seed, config)
    if folder is not None:
        _claim(folder, settings | {"data": _fingerprint(federation)}, resume)
    progress.say("calibrating the noise" if privacy and privacy.epsilon else "preparing")
    simulation = prepare(
        federation.to(compute), method, made, privacy, sampler, rounds, randomness, compute,
        store=store, folder=folder,
    )  # fmt: skip
    if resume:
        simulation.resume()
    with progress.rounds(type(method).__name__, rounds) as on_round:
        simulation.run(
            patience=patience, epsilon=_epsilon(simulation, privacy, rounds), on_round=on_round
        )
    run = Run.of(simulation, privacy, settings)
    if baselines:
        run.baselines = baseline_scores(simulation, run.measured, privacy, sampler, progress)
    run.timing = _timing(started, simulation)
    if folder is not None:
        progress.say("writing the report")
        run.save(folder)
    return run


def _epsilon(
    simulation: Simulation, privacy: Privacy | None, rounds: int
) -> Callable[[int], float | None]:
    """ε after so many releases, for display while the run goes on (rounded up in between)."""
    release = simulation.channel.release
    if release is None or privacy is None:
        return lambda releases: None
    channel = simulation.channel
    repeats = len(channel.ledger) - simulation.board.round if channel.randomness.secret else 0
    longest, tasks = rounds + max(0, repeats), channel.tasks
    curve = growth(release, longest, privacy.delta_for(tasks), privacy.neighbours)
    return lambda releases: curve[min(releases, longest)] if math.isfinite(curve[-1]) else None


def _check(
    federation: Federation,
    method: Method,
    rounds: int,
    patience: int | None,
    privacy: Privacy | None,
) -> None:
    if not isinstance(method, Method):
        known = ", ".join(kind.__name__ for kind in METHODS.values())
        raise TacitError(f"method is {method!r}, but an instance of {known} is needed")
    if rounds < 1:
        raise TacitError(f"rounds={rounds!r}: at least 1 is needed")
    if len(federation) < 2:
        raise TacitError("there is only one task, so there is nobody to learn from")
    if patience is not None and patience < 1:
        raise TacitError(f"patience={patience!r}: at least 1 is needed")
    if patience is not None and privacy is not None and isinstance(method, BillboardMethod):
        raise TacitError(
            "early stopping looks at all tasks without noise, which no budget covers: leave "
            "patience out, or run without privacy"
        )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TacitError(f"device={name!r}: use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise TacitError(f"device={name!r}: use cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TacitError("device='cuda': no CUDA device is there; use device='cpu'")
    return device


def _model(model: nn.Module | ModelFactory | str, federation: Federation, seed: int) -> FlatModel:
    if isinstance(model, str):
        if model not in MODELS:
            raise TacitError(f"model={model!r}: choose one of {', '.join(MODELS)}")
        model = MODELS[model]
    return flat.build(model, federation, seed)


def _sampler(method: Method, privacy: Privacy | None, cohort: float | int, tasks: int) -> Sampler:
    if not isinstance(method, BillboardMethod):
        return Everyone()
    return sampler_for(privacy.sampling if privacy else "poisson", cohort, tasks)


def _randomness(seed: int | None, folder: Path | None, resume: bool) -> Randomness:
    """An unseeded run keeps its key for local shuffles, so that resuming goes on as before."""
    path = None if folder is None else folder / "checkpoint" / "key.json"
    if seed is None and resume and path is not None and path.exists():
        return Randomness(None, json.loads(path.read_text())["key"])
    randomness = Randomness.of(seed)
    if path is not None and seed is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, json.dumps({"key": randomness.run_key}).encode())
    return randomness


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
    return {
        "method": type(method).__name__.lower(),
        **dataclasses.asdict(method),
        "model": name,
        "privacy": None if privacy is None else dataclasses.asdict(privacy),
        "rounds": rounds,
        "cohort": cohort,
        "seed": seed,
        **(config or {}),
    }


def _claim(folder: Path, settings: dict[str, Any], resume: bool) -> None:
    """A folder holds one run: refuse to mix two, and refuse to go on with other settings."""
    path = folder / "checkpoint" / "settings.json"
    plain = json.loads(json.dumps(settings))
    if path.exists():
        if not resume:
            raise TacitError(
                f"{folder} already holds a run: pass resume=True (--resume {folder}) to go on with "
                "it, or choose another folder"
            )
        before = json.loads(path.read_text())
        changed = sorted(
            key for key in before.keys() | plain.keys() if before.get(key) != plain.get(key)
        )
        if changed:
            raise TacitError(
                f"the run in {folder} was started with other {', '.join(changed)}; resume it with "
                "the same settings and data, or choose another folder"
            )
        return
    if resume:
        raise TacitError(f"{folder} holds no run to resume")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, json.dumps(plain, indent=2).encode())


def _fingerprint(federation: Federation) -> str:
    """So that a run is never resumed on other data."""
    digest = hashlib.sha256()
    for tensor in (federation.train.x, federation.train.y, federation.train.offsets):
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()[:16]


def _timing(started: float, simulation: Simulation) -> dict[str, Any]:
    seconds = time.monotonic() - started
    return {
        "seconds": round(seconds, 3),
        "device": str(simulation.device),
        "date": time.strftime("%Y-%m-%d"),
    }
