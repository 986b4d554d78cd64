"""What `train` and `tune` do before anything runs: check, and find what names stand for."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn

from tacit.data.federation import Federation
from tacit.engine.attendance import Attendance
from tacit.engine.exchange import judges_without_rows
from tacit.engine.progress import Bar, Progress, silent
from tacit.errors import TacitError
from tacit.local import flat
from tacit.local.flat import FlatModel, ModelFactory
from tacit.local.recipes import RECIPES
from tacit.methods import METHODS, ExchangeMethod, Method, OnBillboard, Server
from tacit.models import MODELS
from tacit.privacy import Privacy


def check(
    federation: Federation,
    method: Method,
    rounds: int,
    patience: int | None,
    privacy: Privacy | None,
    personalise: str,
) -> None:
    """Refuse what cannot work, before any work."""
    if rounds < 1:
        raise TacitError(f"rounds={rounds!r}: at least 1 is needed")
    if len(federation) < 2:
        raise TacitError("there is only one task, so there is nobody to learn from")
    if privacy is not None:
        privacy.delta_for(len(federation))  # refuses one that says nothing
    if patience is not None and patience < 1:
        raise TacitError(f"patience={patience!r}: at least 1 is needed")
    if patience is not None and privacy is not None and isinstance(method, OnBillboard):
        raise TacitError(
            "early stopping looks at all tasks without noise, which no budget covers: leave "
            "patience out, or run without privacy"
        )
    if privacy is not None and isinstance(method, ExchangeMethod):
        raise TacitError(
            f"{type(method).__name__} exchanges models through a curator, without noise, so no ε "
            "can be promised: leave privacy out, or use a method on the billboard (tacit methods)"
        )
    if isinstance(method, ExchangeMethod):
        task = judges_without_rows(method, federation)
        if task is not None:
            raise TacitError(
                f"clients of {type(method).__name__} judge models by their validation rows, but "
                f"task {task!r} has none: keep some of every task (validation=0.2)"
            )
    if personalise not in RECIPES:
        raise TacitError(f"personalise={personalise!r}: choose one of {', '.join(RECIPES)}")
    if method.settles and personalise not in ("best", "none"):
        raise TacitError(
            f"personalise={personalise!r}: tasks of {type(method).__name__} end with an exact "
            "solution of their own, which has nothing to fine-tune; leave it out"
        )
    if personalise != "none" and not method.settles and not len(federation.validation.y):
        raise TacitError(
            f"personalise={personalise!r} lets each task choose by its own validation rows, but "
            "there are none: keep some (validation=0.2), or pass personalise='none' "
            "(--personalise none)"
        )


def check_channel(method: Method, server: Server | None, attendance: Attendance | None) -> None:
    """Refuse settings that belong to another channel than the method's."""
    if server is not None and isinstance(method, ExchangeMethod):
        raise TacitError(
            f"server= moves the billboard, but {type(method).__name__} has none: leave it out"
        )
    if attendance is not None and not isinstance(method, ExchangeMethod):
        raise TacitError(
            f"attendance= is simulated on the exchange, but {type(method).__name__} is not on it: "
            "leave it out (cohort= draws some tasks in each round)"
        )


def device_of(name: str) -> torch.device:
    """The device of this name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TacitError(f"device={name!r}: use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise TacitError(f"device={name!r}: use cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TacitError("device='cuda': no CUDA device is there; use device='cpu'")
    return device


def model_of(model: nn.Module | ModelFactory | str, federation: Federation, seed: int) -> FlatModel:
    """The model as a flat vector of parameters; `seed` decides how it starts."""
    if isinstance(model, str):
        if model not in MODELS:
            raise TacitError(f"model={model!r}: choose one of {', '.join(MODELS)}")
        model = MODELS[model]
    return flat.build(model, federation, seed)


def name_of(method: Method) -> str:
    """As `tacit methods` lists it; a method of somebody's own goes by the name of its class."""
    kind = type(method)
    known = (name for name, listed in METHODS.items() if listed is kind)
    return next(known, kind.__name__.lower())


def progress_of(given: Progress | None) -> Progress:
    """What was given; otherwise a bar where there is a terminal."""
    return given or (Bar() if sys.stderr.isatty() else silent)


def fresh_folder(name: str) -> Path:
    """Where a run goes that was told no folder."""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
