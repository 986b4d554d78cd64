"""All runs: each is kept as soon as it is done, and what is kept is not run again.

`cells.csv` has a line for each run, `rounds.csv` one for each of its rounds. Pages are written from
these files alone, so they can be written where nothing can be trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from papers.common.cells import CellFile, deciding
from papers.common.devices import hardware
from papers.common.request import PageRequest
from papers.fedmtl.fits import FedMTLBench, FedMTLFit
from papers.fedmtl.positional import by_position
from papers.fedmtl.sets import CHOOSING, NETWORKS, Distribution, FedMTLPlan
from tacit.data.federation import Federation
from tacit.methods import Method

CELLS, ROUNDS = "cells.csv", "rounds.csv"
KEPT_IN_MEMORY = 6
"""Federations that stay on the device between runs."""


@dataclass(frozen=True)
class WantedRun:
    """A run that is wanted."""

    plan: FedMTLPlan
    method: Method
    seed: int
    distribution: Distribution = "D1"
    heads: Literal["task", "position"] = "task"
    title: str = ""

    @property
    def rounds(self) -> int:
        return self.plan.choosing_rounds if self.seed == CHOOSING else self.plan.rounds

    @property
    def about(self) -> tuple[Any, ...]:
        """All that decides the result, in the order of a cell's first columns."""
        own = deciding(self.method)
        plan, kind = self.plan, type(self.method).__name__
        version = "reduced" if plan.reduced else "stand-in"
        return (
            plan.key,
            version,
            self.distribution,
            self.heads,
            kind,
            json.dumps(own, sort_keys=True),
            self.seed,
            plan.clients,
            self.rounds,
            plan.model,
        )

    @property
    def run(self) -> str:
        also = [self.plan.scenes, self.plan.min_rows, self.plan.domains, self.plan.groups]
        return hashlib.sha256(json.dumps([self.about, also]).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class FedMTLCell:
    """One line of cells.csv; test scores are NaN for runs that settings are chosen by."""

    run: str
    set: str
    version: str
    distribution: str
    heads: str
    method: str
    settings: str
    seed: int
    clients: int
    rounds: int
    model: str
    validation: float
    """Mean of the last five points of the validation curve."""
    accuracy: float
    """Mean over clients of the share of right labels (pixels) of their test rows."""
    miou: float
    worst_tenth: float
    peers: float
    kept: float
    revealed: float
    """Means over the rounds, except `peers`, which is of the last."""
    seconds: float
    hardware: str

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.run,)

    @property
    def score(self) -> float:
        """Of test rows: mIoU for pixels, accuracy for labels."""
        return self.accuracy if math.isnan(self.miou) else self.miou


@dataclass(frozen=True)
class Point:
    """One line of rounds.csv; see `fits.Round`."""

    run: str
    round: int
    validation: float
    peers: float
    kept: float
    revealed: float
    similarity: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.run, self.round


class FedMTLGrid:
    """Runs what is not in the files yet."""

    def __init__(self, request: PageRequest, device: torch.device) -> None:
        self._request, self._bench = request, FedMTLBench(device)
        self.out, self.say, self.reduced = request.out, request.say, request.reduced
        self.cells = CellFile(self.out / CELLS, FedMTLCell)
        self.points = CellFile(self.out / ROUNDS, Point)
        self._until = time.monotonic() + (math.inf if request.limit is None else request.limit)
        self._federations: dict[tuple[Any, ...], Federation] = {}
        self.stopped = False
        """Whether runs were left out because time was up."""

    @property
    def device(self) -> torch.device:
        return self._bench.device

    @property
    def may_run(self) -> bool:
        """Whether another run may begin: not where pages alone are wanted, nor when time is up."""
        return not self._request.pages and time.monotonic() <= self._until

    def get(self, job: WantedRun) -> FedMTLCell | None:
        return self.cells.rows.get((job.run,))

    def curve(self, job: WantedRun) -> list[Point]:
        """The rounds of a finished run."""
        points = (self.points.rows.get((job.run, k)) for k in range(job.rounds + 1))
        return [point for point in points if point is not None]

    def run(
        self,
        jobs: Sequence[WantedRun],
        what: str,
        *,
        then: Callable[[WantedRun, FedMTLFit], None] | None = None,
        missing: Callable[[WantedRun], bool] | None = None,
    ) -> None:
        """Those that are missing, in this order; `then` sees each finished run."""
        absent = missing or (lambda job: self.get(job) is None)
        left = list({job.run: job for job in jobs if absent(job)}.values())
        if self._request.pages:
            return
        for number, job in enumerate(left):
            if not self.may_run:
                self.say(f"{what}: time is up, {len(left) - number} runs are left out")
                self.stopped = True
                return
            fit = self._fit(job)
            if then is not None:
                then(job, fit)
            cell = self._keep(job, fit)
            shown = f"validation {cell.validation:.4f}"
            shown += "" if math.isnan(cell.score) else f", test {cell.score:.4f}"
            self.say(
                f"{what} [{number + 1}/{len(left)}] {job.plan.key} {job.distribution} "
                f"{job.title or cell.method} seed {job.seed}: {shown} ({cell.seconds:.1f} s)"
            )

    def _fit(self, job: WantedRun) -> FedMTLFit:
        plan = job.plan
        return self._bench.fit(
            self._federation(job),
            job.method,
            NETWORKS[plan.model],
            plan.model,
            job.seed,
            job.rounds,
            test=job.seed != CHOOSING,
        )

    def _federation(self, job: WantedRun) -> Federation:
        key = (job.plan.key, job.distribution, job.seed, job.heads)
        if key not in self._federations:
            if job.heads == "position":
                # Labels are sorted anew where the federation was made, before it moves.
                made = by_position(
                    self._federation(dataclasses.replace(job, heads="task")).to("cpu")
                )
            else:
                made = job.plan.load(self._request.data, job.distribution, job.seed)
            while len(self._federations) >= KEPT_IN_MEMORY:
                del self._federations[next(iter(self._federations))]
            self._federations[key] = made.to(self.device)
        return self._federations[key]

    def _keep(self, job: WantedRun, fit: FedMTLFit) -> FedMTLCell:
        """Rounds first: a cell in the file says that all of its run is there."""
        for each in fit.rounds:
            plain = [round(value, 6) for value in each[1:]]
            self.points.add(Point(job.run, each.round, *plain))
        overall = {} if fit.test is None else fit.test.overall
        scores = [overall.get(n) for n in ("accuracy_per_task", "miou_per_task", "worst_tenth")]
        after = fit.rounds[1:]
        numbers = [
            fit.validation,
            *(math.nan if score is None else score for score in scores),
            after[-1].peers,
            _mean([r.kept for r in after]),
            _mean([r.revealed for r in after]),
        ]
        rounded = (round(number, 6) for number in numbers)
        line: Any = (job.run, *job.about, *rounded, round(fit.seconds, 2), hardware(self.device))
        cell = FedMTLCell(*line)
        self.cells.add(cell)
        return cell


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
