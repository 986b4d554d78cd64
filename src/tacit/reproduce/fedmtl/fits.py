"""One run of a method, with what the tables and figures need of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from tacit import metrics
from tacit.federation import Federation
from tacit.methods import Method
from tacit.privacy import Everyone
from tacit.randomness import Randomness
from tacit.runtime.exchange import Exchange
from tacit.runtime.prepare import prepare
from tacit.runtime.simulate import Simulation
from tacit.runtime.start import model_of


@dataclass(frozen=True)
class Fit:
    """Scores of a finished run; `curve` is the main score on validation rows by round."""

    validation: dict[str, float | None]
    test: metrics.Metrics
    curve: list[float]
    seconds: float
    simulation: Simulation

    @property
    def exchange(self) -> Exchange | None:
        return self.simulation if isinstance(self.simulation, Exchange) else None


class Bench:
    """Runs methods on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._traced: dict[Any, dict[Any, Any]] = {}

    def fit(
        self, federation: Federation, method: Method, model: str, seed: int, rounds: int
    ) -> Fit:
        started = time.monotonic()
        randomness = Randomness.of(seed)
        made = model_of(model, federation, randomness.key("model", 0)).to(self.device)
        # Models of one form share what was traced, however they start.
        form = (model, made.size, federation.input_shape, len(federation))
        made.traced = self._traced.setdefault(form, made.traced)
        simulation = prepare(
            federation.to(self.device), method, made, None, Everyone(), rounds, randomness,
            self.device,
        )  # fmt: skip
        simulation.run()
        name, _ = metrics.main_score(federation.kind, federation.heads)
        validation, test = simulation.measure("validation"), simulation.measure("test")
        curve = [point[name] for point in simulation.curve]
        return Fit(validation.overall, test, curve, time.monotonic() - started, simulation)
