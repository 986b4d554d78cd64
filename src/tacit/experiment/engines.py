"""Which engine runs the rounds, and what it cannot do: said before anything runs."""

from __future__ import annotations

import dataclasses
import importlib.util
import math

import torch

from tacit.errors import TacitError
from tacit.methods import METHODS, ExchangeMethod, Method, OnBillboard
from tacit.models import MODELS
from tacit.privacy import Privacy

SIMULATE, FLOWER = "simulate", "flower"
ENGINES = (SIMULATE, FLOWER)


def check_engine(
    engine: str,
    method: Method,
    model: object,
    privacy: Privacy | None,
    device: torch.device,
    **given: object,
) -> None:
    """Refuse an engine that is not there, or that cannot do what is `given` to `train`."""
    if engine not in ENGINES:
        raise TacitError(f"engine={engine!r}: choose one of {', '.join(ENGINES)}")
    if engine == SIMULATE:
        return
    if any(importlib.util.find_spec(name) is None for name in ("flwr", "ray")):
        raise TacitError("engine='flower' needs Flower and Ray: pip install 'tacit[ray]'")
    kind = type(method).__name__
    if not isinstance(method, OnBillboard | ExchangeMethod):
        raise TacitError(
            f"nothing leaves a task with {kind}, so engine='flower' would have nothing to send: "
            "leave engine out, or choose another method (tacit methods)"
        )
    if type(method) not in METHODS.values():
        raise TacitError(
            f"engine='flower' makes methods anew at every worker, by name, and {kind} is not among "
            "those that `tacit methods` lists: leave engine out"
        )
    if model_name(model) is None:
        raise TacitError(
            "engine='flower' makes the model anew at every worker, by name: give one of "
            f"{', '.join(MODELS)}, or leave engine out"
        )
    for name, value in given.items():
        if value is not None:
            raise TacitError(f"{name}= is not for engine='flower': leave one of the two out")
    if device.type != "cpu":
        raise TacitError(
            f"engine='flower' computes on CPUs, but device={str(device)!r}: leave one of the two "
            "out"
        )
    _check_settings(method)


def _check_settings(method: Method) -> None:
    for name, value in dataclasses.asdict(method).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise TacitError(
                f"{name}={value} cannot be sent to the workers of engine='flower': give a finite "
                "number, or leave engine out"
            )


def model_name(model: object) -> str | None:
    """The name of a model that every party can make for itself."""
    if isinstance(model, str):
        return model
    return next((name for name, factory in MODELS.items() if factory is model), None)
