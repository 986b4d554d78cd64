"""What `train` and `tune` do before anything runs: find what names stand for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from tacit.data.federation import Federation
from tacit.engine.outset import begun
from tacit.engine.progress import Bar, NotebookBar, Progress, in_notebook, silent
from tacit.errors import TacitError
from tacit.local import flat
from tacit.local.flat import FlatModel, ModelFactory
from tacit.methods import METHODS, ExchangeMethod, Method, OnBillboard
from tacit.models import MODELS
from tacit.privacy import Everyone, Sampler, sampler_for

if TYPE_CHECKING:
    from tacit.experiment.plan import Plan


def device_of(name: str | torch.device) -> torch.device:
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
    """The model as a flat vector of parameters; public rows or `seed` decide how it starts."""
    if isinstance(model, str):
        if model not in MODELS:
            raise TacitError(f"model={model!r}: choose one of {', '.join(MODELS)}")
        model = MODELS[model]
    return begun(flat.build(model, federation, seed), federation)


def model_name(model: object) -> str | None:
    """The name of a model that every party can make for itself."""
    if isinstance(model, str):
        return model
    return next((name for name, factory in MODELS.items() if factory is model), None)


def method_of(method: object) -> Method:
    """A method by name, or as it is."""
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]()
    if not isinstance(method, Method):
        known = ", ".join(kind.__name__ for kind in METHODS.values())
        raise TacitError(
            f"method is {method!r}, but 'auto', a name that `tacit methods` lists, or an instance "
            f"of {known} is needed"
        )
    return method


def name_of(method: Method) -> str:
    """As `tacit methods` lists it; a method of somebody's own goes by the name of its class."""
    kind = type(method)
    known = (name for name, listed in METHODS.items() if listed is kind)
    return next(known, method.known_as or kind.__name__.lower())


def sampler_of(plan: Plan, tasks: int) -> Sampler:
    """How cohorts are drawn, once the method and the cohort are chosen."""
    if not isinstance(plan.method, OnBillboard | ExchangeMethod):
        return Everyone()
    assert plan.cohort is not None
    if plan.privacy is None:
        return sampler_for("poisson", plan.cohort, tasks)
    privacy = plan.privacy
    return sampler_for(privacy.sampling, plan.cohort, privacy.crowd(tasks), privacy.at_most)


def progress_of(given: Progress | None) -> Progress:
    """What was given; otherwise a bar where there is a notebook or a terminal."""
    if given is not None:
        return given
    if in_notebook():
        return NotebookBar()
    return Bar() if sys.stderr.isatty() else silent


def fresh_folder(name: str) -> Path:
    """Where a run goes that was told no folder."""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
