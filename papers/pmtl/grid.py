"""A grid of runs: method, ε, seed. Each is trained once and then personalised in several ways.

Finished cells are kept in one file and shared by all figures and tables that need them; a grid that
was stopped goes on where it was. Nothing here needs an accountant: noise comes from a table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from papers.common.cells import CellFile, deciding
from papers.common.devices import hardware
from papers.common.noise import NoiseTable
from papers.pmtl.sets import DataSet
from papers.pmtl.settings import PMTLPlan, chosen_plan
from tacit.data.federation import Federation
from tacit.engine.bench import Memo
from tacit.engine.personalise import Personalise, personalise
from tacit.engine.progress import silent
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local import flat
from tacit.local.flat import FlatModel
from tacit.methods import Method
from tacit.models import MODELS
from tacit.privacy import Privacy, sampler_for
from tacit.randomness import Randomness

FILE = "cells.csv"
ALONE = "alone"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Training:
    """One training, and the ways its models are personalised afterwards."""

    method: str
    epsilon: float
    """Infinite without privacy; 0 for training alone, which releases nothing."""
    seed: int
    modes: tuple[Personalise, ...] = ("none",)


@dataclass(frozen=True)
class PMTLCell:
    """One line of cells.csv: test scores, which no ε covers."""

    set: str
    version: str
    method: str
    epsilon: float
    seed: int
    mode: str
    accuracy_per_task: float
    """Mean over tasks of each task's share of right test rows: the figure that is reported."""
    accuracy: float
    worst_tenth: float
    noise: float
    seconds: float
    hardware: str
    settings: str
    """A digest of all that decides the cell but its method's name, ε and seed."""

    @property
    def key(self) -> tuple[str, str, float, int, str, str]:
        return self.set, self.method, self.epsilon, self.seed, self.mode, self.settings


@dataclass(frozen=True)
class PMTLBench:
    """Where cells are run."""

    device: torch.device
    noise: NoiseTable
    records: CellFile[PMTLCell]
    say: Say
    memo: dict[tuple[str, int], Memo] = dataclasses.field(default_factory=dict)
    """Training alone, once for each data set and seed."""
    _models: dict[tuple[str, str, int], FlatModel] = dataclasses.field(default_factory=dict)

    def run(
        self,
        data: DataSet,
        cells: Iterable[Training],
        *,
        together: bool = False,
        pages: bool = False,
    ) -> list[PMTLCell]:
        """All records of these cells, from the file where they are in it.

        `together` with other processes, only what they have not begun, and nothing is returned.
        With `pages` only what is in the file is returned.
        """
        cells = list(cells)
        missing = [] if pages else [c for cell in cells if (c := self._left(data, cell)).modes]
        federation = data.federation.to(self.device) if missing else data.federation
        started = time.monotonic()
        for number, cell in enumerate(missing):
            name = digest(data, planned(data, cell), cell.method)
            about = f"{data.key}-{cell.method}-{cell.epsilon:g}-{cell.seed}-{name}"
            if together and not self.records.begin(about):
                continue
            done = self._cell(data, federation, cell)
            took = (time.monotonic() - started) / (number + 1)
            scores = " ".join(f"{r.mode} {r.accuracy_per_task:.3f}" for r in done)
            left = took * (len(missing) - number - 1)
            self.say(
                f"[{number + 1}/{len(missing)}] {data.key} {cell.method} ε={cell.epsilon:g} "
                f"seed {cell.seed}: {scores} ({took:.1f} s each, {left / 60:.1f} min left)"
            )
        found = []
        for cell in [] if together else cells:
            name = digest(data, planned(data, cell), cell.method)
            for mode in cell.modes:
                key = (data.key, cell.method, cell.epsilon, cell.seed, mode, name)
                record = self.records.rows.get(key)
                if record is not None:
                    found.append(record)
                elif not pages:
                    raise TacitError(f"{data.key} {cell.method} {mode} has no result: a bug")
        return found

    def calibrate(self, data: DataSet, cells: Iterable[Training]) -> None:
        """Only the noise of these cells."""
        for cell in dict.fromkeys(dataclasses.replace(cell, seed=0) for cell in cells):
            if 0 < cell.epsilon < math.inf:
                noise = self.multiplier(data, planned(data, cell), cell.epsilon)
                self.say(f"{data.key} {cell.method}: ε={cell.epsilon:g}, noise {noise:.4g} × clip")

    def multiplier(self, data: DataSet, plan: PMTLPlan, epsilon: float) -> float:
        if plan.noise is not None:
            return plan.noise
        tasks = len(data.federation)
        sampler = sampler_for("poisson", plan.expected(tasks), tasks)
        return self.noise.multiplier(epsilon, 1 / tasks, sampler, plan.rounds)

    def simulation(
        self, federation: Federation, plan: PMTLPlan, method: Method, noise: float | None, seed: int
    ) -> Simulation:
        """Ready to run; `noise` None is without privacy."""
        tasks = len(federation)
        randomness = Randomness.of(seed)
        model = self._model(federation, plan, randomness)
        sampler = sampler_for("poisson", plan.expected(tasks), tasks)
        privacy = None if noise is None else Privacy(noise=noise, delta=1 / tasks)
        made = Plan(method=method, privacy=privacy, rounds=plan.rounds)
        return simulation_of(made, federation, model, sampler, randomness, self.device)

    def _model(self, federation: Federation, plan: PMTLPlan, randomness: Randomness) -> FlatModel:
        """The same object for all cells of a seed: what was traced of it serves them all."""
        key = (federation.source, plan.model, randomness.run_key)
        if key not in self._models:
            self._models.clear()
            made = flat.build(MODELS[plan.model], federation, randomness.key("model", 0))
            self._models[key] = made.to(self.device)
        return self._models[key]

    def _left(self, data: DataSet, cell: Training) -> Training:
        """The cell with only those modes that are not in the file."""
        about = (data.key, cell.method, cell.epsilon, cell.seed)
        name = digest(data, planned(data, cell), cell.method)
        modes = tuple(m for m in cell.modes if (*about, m, name) not in self.records.rows)
        return dataclasses.replace(cell, modes=modes)

    def _cell(self, data: DataSet, federation: Federation, cell: Training) -> list[PMTLCell]:
        started, plan = time.monotonic(), planned(data, cell)
        private = 0 < cell.epsilon < math.inf
        noise = self.multiplier(data, plan, cell.epsilon) if private else None
        alone = cell.method == ALONE
        method = plan.method("pmtl" if alone else cell.method)
        simulation = self.simulation(federation, plan, method, noise, cell.seed)
        if not alone:
            simulation.run()
        about = (data.key, data.version, cell.method, cell.epsilon, cell.seed)
        memo = self.memo.setdefault((data.key, cell.seed), {})
        done = []
        for mode in cell.modes:
            if alone:
                measured = personalise(
                    simulation.tasks, "none", silent, alone=True, memo=memo
                ).alone
                assert measured is not None
            elif mode == "none":
                measured = simulation.measure("test")
            else:
                ended = personalise(simulation.tasks, mode, silent, alone=False, memo=memo)
                blend = None if ended.ended is None else ended.ended.blend
                measured = simulation.measure("test", personal=ended.models, blend=blend)
            per_task, pooled, worst = (
                round(measured.overall[name] or 0.0, 5)
                for name in ("accuracy_per_task", "accuracy", "worst_tenth")
            )
            now = time.monotonic()
            record = PMTLCell(
                *about,
                mode,
                per_task,
                pooled,
                worst,
                round(noise or 0.0, 5),
                round(now - started, 1),
                hardware(self.device),
                digest(data, plan, cell.method),
            )
            started = now
            self.records.add(record)
            done.append(record)
        return done


def planned(data: DataSet, cell: Training) -> PMTLPlan:
    """What this cell is trained with."""
    return chosen_plan(data.key, data.version, cell.method, cell.epsilon)


def digest(data: DataSet, plan: PMTLPlan, method: str) -> str:
    """Of all that decides a cell: records made with other settings are not taken for these."""
    kind = plan.method("pmtl" if method == ALONE else method)
    used: dict[str, Any] = deciding(kind)
    if method == ALONE:
        used = dict(plan.steps)
    federation = data.federation
    parts = [used, plan.model, plan.rounds, plan.cohort, data.version, len(federation)]
    parts += [len(federation.train.y), len(federation.test.y), federation.outputs]
    parts += [plan.noise] if plan.noise else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]
