"""One run of a method, with what the tables and figures need of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tacit import metrics
from tacit.data.federation import Federation
from tacit.engine.course import TRACED_SIZE
from tacit.engine.exchange import Exchange, Record
from tacit.engine.simulate import Simulation
from tacit.exchange import Answer, Uploads
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.methods import FedMTL, Method
from tacit.privacy import Everyone
from tacit.randomness import Randomness

TRACED_ROUNDS = 10
"""Tracing a client step takes longer than fewer rounds of it."""


class Round(NamedTuple):
    """What is known after a round; round 0 is before the first. NaN where it has no meaning."""

    round: int
    validation: float
    """The main score on validation rows."""
    peers: float
    """Other clients that have a say in a client's shared layers, on average."""
    kept: float
    """Share of clients whose shared layers nobody else has a say in."""
    revealed: float
    """Share of clients whose answer gives another's model away up to one number."""
    similarity: float
    """Mean over pairs of clients of what FedMTL's curator sees."""


@dataclass(frozen=True)
class FedMTLFit:
    """A finished run; `test` is None where only validation rows may be looked at."""

    rounds: list[Round]
    test: metrics.Metrics | None
    seconds: float
    simulation: Simulation

    @property
    def validation(self) -> float:
        """Mean of the last five points of the curve: one point alone is luck."""
        last = [each.validation for each in self.rounds[1:]][-5:]
        return sum(last) / len(last)

    @property
    def exchange(self) -> Exchange | None:
        return self.simulation.exchange


class Seen(Record):
    """A record that also knows how alike the uploaded shared layers are."""

    start: Tensor
    shared: Tensor | None = None

    def note(self, uploads: Uploads, answer: Answer) -> None:
        super().note(uploads, answer)
        moved = uploads.vectors[:, uploads.parts[0]] - self.start
        unit = torch.nn.functional.normalize(moved, dim=1)
        self.shared = unit @ unit.T


class FedMTLBench:
    """Runs methods on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._traced: dict[Any, dict[Any, Any]] = {}

    def fit(
        self,
        federation: Federation,
        method: Method,
        model: Callable[[Federation], nn.Module],
        name: str,
        seed: int,
        rounds: int,
        *,
        test: bool = True,
    ) -> FedMTLFit:
        """`name` is the model's: models of one form share what was traced, however they start."""
        started = time.monotonic()
        randomness = Randomness.of(seed)
        made = model_of(model, federation, randomness.key("model", 0)).to(self.device)
        # Larger ones are not traced, and would only be kept alive.
        if made.size <= TRACED_SIZE[self.device.type]:
            form = (name, made.size, federation.input_shape, len(federation), self.device)
            made.traced = self._traced.setdefault(form, made.traced)
        plan, here = Plan(method=method, rounds=rounds), federation.to(self.device)
        simulation = simulation_of(plan, here, made, Everyone(), randomness, self.device)
        if rounds < TRACED_ROUNDS or federation.kind == "segmentation":
            simulation.course.skip_tracing()
        exchange = simulation.exchange
        if exchange is not None:
            seen = Seen(*vars(exchange.record).values())
            seen.start = made.start[made.parts[0]]
            exchange.record = seen
        score, _ = metrics.main_score(federation.kind, federation.heads)
        found: list[Round] = []
        before = torch.zeros((), device=self.device)

        def look(round_: int, point: dict[str, Any]) -> None:
            nonlocal before
            value = math.nan if point[score] is None else float(point[score])
            about = (math.nan,) * 4
            if round_ and exchange is not None:
                about = _about(exchange, before)
                before = exchange.record.revealed.clone()
            found.append(Round(round_, value, *about))

        simulation.run(on_round=look)
        measured = simulation.measure("test") if test else None
        return FedMTLFit(found, measured, time.monotonic() - started, simulation)


def _about(exchange: Exchange, revealed_before: Tensor) -> tuple[float, float, float, float]:
    """Peers, kept, revealed and similarity of the last round, everyone having taken part."""
    record = exchange.record
    others = ~torch.eye(len(record.weights), dtype=torch.bool, device=record.weights.device)
    heard = (record.weights != 0) & others
    alone = (~heard.any(dim=1)).float().mean()
    given = (record.revealed - revealed_before > 0).any(dim=1).float().mean()
    alike = math.nan
    if isinstance(exchange.method, FedMTL):  # others mean something else by it
        alike = float(record.similarity[others].mean())
    return float(heard.sum() / len(heard)), float(alone), float(given), alike
