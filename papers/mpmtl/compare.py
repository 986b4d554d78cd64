"""The grid behind figures 6 to 8: method, ε, repetition; settings chosen without test rows.

Finished cells are kept in `cells.csv`, chosen settings in `settings.csv`; a grid that was stopped
goes on where it was. Settings are found one at a time: each in its turn, the others as they are.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from papers.common.cells import CellFile
from papers.common.devices import hardware
from papers.mpmtl.fits import MTL, PRIVATE, STL, MPMTLBench, Settings, not_private
from papers.mpmtl.trials import MPMTLTrial

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
Stages = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Search:
    """Where a choice of settings begins, and what is tried, in this order."""

    start: Settings
    stages: Stages = ()
    also: Settings | None = None
    """What else to begin with, differing from `start` in these settings; the better end counts."""

    def choose(self, score: Callable[[Settings], float]) -> tuple[dict[str, Any], float]:
        """The settings of the lowest score."""
        known: dict[str, float] = {}

        def of(settings: dict[str, Any]) -> float:
            key = json.dumps(settings, sort_keys=True)
            if key not in known:
                value = score(settings)
                known[key] = value if math.isfinite(value) else math.inf
            return known[key]

        ends = []
        for begin in ({}, self.also) if self.also else ({},):
            best = {**self.start, **begin}
            for name, values in self.stages:
                best = min([best, *({**best, name: value} for value in values)], key=of)
            ends.append(best)
        best = min(ends, key=of)
        return best, of(best)


def _mpmtl(strengths: tuple[float, ...], clips: tuple[float, ...], valid: bool) -> Search:
    """Without a floor, few iterations with a small clip are better than many: begin there too."""
    start = {"clip": clips[-2], "rounds": 30, "strategy": "accelerated", "strength": strengths[1]}
    stages: Stages = (
        ("strength", strengths),
        ("clip", clips),
        ("rounds", (3, 10, 60)),
        ("growth", (0.0, 2.0)),
        ("strategy", ("plain", "strong-accelerated")),
        ("strength", strengths),
    )
    if not valid:
        return Search(start, stages)
    also = {"floor": False, "rounds": 10, "clip": clips[0]}
    return Search({**start, "floor": True}, (stages[0], ("floor", (False,)), *stages[1:]), also)


_RIDGES = (1e-2, 1.0, 1e2, 1e4, 1e6)
_DATA_LEVEL = {
    "dp-mtrl": Search(
        {"method": "dp-mtrl", "ridge": 1e2, "pull": 1.0, "rounds": 1},
        (("ridge", _RIDGES), ("rounds", (2,)), ("pull", (0.0, 1e2)), ("ridge", _RIDGES)),
    ),
    "dp-aggr": Search({"method": "dp-aggr", "ridge": 1e2}, (("ridge", _RIDGES),)),
}
_PRINTED = _mpmtl((0.01, 0.03, 0.1), (60.0, 80.0, 120.0), valid=False)
_VALID = _mpmtl((0.003, 0.01, 0.03, 0.1), (20.0, 40.0, 60.0, 90.0), valid=True)
_MADE = {
    "printed-lr": _PRINTED,
    "printed-gs": _PRINTED,
    "units-lr": _PRINTED,
    "units-gs": _PRINTED,
    "valid-lr": _VALID,
    "valid-gs": _VALID,
    "ours": Search({"mean": 0.0, "clip": 1.0, "rounds": 1}),
    "ours-half": Search({"mean": 0.5, "clip": 1.0, "rounds": 3}),
    **_DATA_LEVEL,
}


def _real(strengths: tuple[float, ...], clips: tuple[float, ...], rounds: int) -> Search:
    """Fewer tries, because every repetition makes its own choice."""
    start = {
        "clip": clips[0],
        "rounds": rounds,
        "strategy": "accelerated",
        "strength": strengths[1],
    }
    return Search(start, (("strength", strengths), ("clip", clips), ("floor", (False,))))


_SCHOOL = _real((0.03, 0.1, 0.3, 1.0), (1.0, 2.0), 20)
_PRINTED_SCHOOL = dataclasses.replace(_SCHOOL, stages=_SCHOOL.stages[:2])
_LSOA = Search(
    {"clip": 0.5, "rounds": 10, "strategy": "accelerated", "strength": 0.1},
    (("rounds", (2,)), ("strength", (0.03, 0.3))),
)
SEARCHES: dict[str, Mapping[str, Search]] = {
    "low-rank": _MADE,
    "group-sparse": _MADE,
    "school": {
        "printed-lr": _PRINTED_SCHOOL,
        "printed-gs": _PRINTED_SCHOOL,
        "valid-lr": _SCHOOL,
        "valid-gs": _SCHOOL,
        "ours": Search({"mean": 1.0, "clip": 0.7, "rounds": 5}),
        "ours-half": Search({"mean": 0.5, "clip": 1.0, "rounds": 3}),
        **_DATA_LEVEL,
    },
    "lsoa2": {
        "printed-lr": _LSOA,
        "valid-lr": _LSOA,
        "valid-gs": _LSOA,
        "ours": Search({"mean": 0.0, "clip": 0.5, "rounds": 1}),
        "ours-half": Search({"mean": 0.5, "clip": 0.5, "rounds": 1}),
        **_DATA_LEVEL,
    },
}
SEARCHES["school-fixed"] = {
    name: Search(SEARCHES["school"][name].start) for name in ("ours", "ours-half")
}
NOT_PRIVATE = (*STL, *MTL)


@dataclass(frozen=True)
class MPMTLCell:
    """One line of cells.csv; ε is infinite for what is not private, 0 for training alone."""

    set: str
    method: str
    epsilon: float
    repetition: int
    tasks: int
    score: float
    """Pooled nMSE, or mean AUC, on test rows: not covered by any ε."""
    settings: str
    seconds: float
    hardware: str

    @property
    def key(self) -> tuple[Any, ...]:
        return self.set, self.method, self.epsilon, self.repetition, self.tasks


@dataclass(frozen=True)
class Chosen:
    """One line of settings.csv: a choice for all repetitions, on data sets of its own."""

    set: str
    method: str
    epsilon: float
    tasks: int
    settings: str
    score: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.set, self.method, self.epsilon, self.tasks


@dataclass
class MPMTLGrid:
    """Runs cells that are not in the file yet."""

    bench: MPMTLBench
    out: Path
    say: Callable[[str], None]
    cells: CellFile[MPMTLCell] = field(init=False)
    chosen: CellFile[Chosen] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = CellFile(self.out / "cells.csv", MPMTLCell)
        self.chosen = CellFile(self.out / "settings.csv", Chosen)

    def settings(
        self, method: str, epsilon: float, trial: MPMTLTrial, sets: Sequence[MPMTLTrial]
    ) -> dict[str, Any]:
        """From `sets` for all repetitions, or else from inside this trial's training part."""
        search = SEARCHES[trial.key][method]
        if not search.stages:
            return dict(search.start)
        key = (trial.key, method, epsilon, trial.tasks)
        if sets and key in self.chosen.rows:
            return json.loads(self.chosen.rows[key].settings)
        looked_at = sets or [trial.inside()]

        def score(settings: Settings) -> float:
            found = []
            for k, one in enumerate(looked_at):
                w = PRIVATE[method](self.bench, one, epsilon, settings, 1000 + k)
                found.append(one.score(w) * (-1 if one.higher else 1))
            return statistics.mean(found)

        best, value = search.choose(score)
        if sets:
            self.chosen.add(Chosen(*key, json.dumps(best), round(value, 5)))
            self.say(f"{trial.key} {method} ε={epsilon:g}: {_words(best)} ({value:.4f})")
        return best

    def private(
        self,
        method: str,
        epsilon: float,
        trial: MPMTLTrial,
        sets: Sequence[MPMTLTrial] = (),
        *,
        first: int | None = None,
        settings: Settings | None = None,
    ) -> float:
        """The score of one cell; `first` measures the first tasks alone."""
        name = method if first is None else f"{method}, first {first}"
        key = (trial.key, name, epsilon, trial.seed, trial.tasks)
        if key not in self.cells.rows:
            began = time.monotonic()
            if settings is None:
                settings = self.settings(method, epsilon, trial, sets)
            w = PRIVATE[method](self.bench, trial, epsilon, settings, trial.seed)
            self._add(key, trial.score(w, first), _words(settings), began)
        return self.cells.rows[key].score

    def not_private(
        self, trial: MPMTLTrial, names: Sequence[str] = NOT_PRIVATE
    ) -> dict[str, float]:
        """Scores by method, and the best multi-task method by cross-validation as "mtl"."""
        found, risks = {}, {}
        for name in names:
            epsilon = 0.0 if name in STL else math.inf
            key = (trial.key, name, epsilon, trial.seed, trial.tasks)
            if key not in self.cells.rows:
                began = time.monotonic()
                device = self.bench.device
                moved = dataclasses.replace(trial, federation=trial.federation.to(device))
                w, choice = not_private(moved, name)
                risk = float(choice.scores.mean(dim=1).min())
                self._add(
                    key, trial.score(w), f"strength {choice.strength:.3g}, cv {risk:.6g}", began
                )
            cell = self.cells.rows[key]
            found[name], risks[name] = cell.score, float(cell.settings.rsplit(" ", 1)[1])
        for group, members in (("stl", STL), ("mtl", MTL)):
            known = [name for name in members if name in found]
            if known:
                found[group] = found[min(known, key=risks.__getitem__)]
        return found

    def classical_first(self, trial: MPMTLTrial, name: str, first: int) -> float:
        """A classical method's score on the first tasks, trained with all."""
        epsilon = 0.0 if name in STL else math.inf
        key = (trial.key, f"{name}, first {first}", epsilon, trial.seed, trial.tasks)
        if key not in self.cells.rows:
            began = time.monotonic()
            w, choice = not_private(trial, name)
            self._add(key, trial.score(w, first), f"strength {choice.strength:.3g}", began)
        return self.cells.rows[key].score

    def _add(self, key: tuple[Any, ...], score: float, words: str, began: float) -> None:
        took = round(time.monotonic() - began, 2)
        made: Any = (*key, round(score, 6), words, took, hardware(self.bench.device))
        self.cells.add(MPMTLCell(*made))

    def seconds(self, sets: Sequence[str]) -> float:
        return sum(cell.seconds for cell in self.cells.rows.values() if cell.set in sets)

    def machines(self, sets: Sequence[str]) -> list[str]:
        return sorted({c.hardware for c in self.cells.rows.values() if c.set in sets})


def _words(settings: Settings) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
        if name != "method"
    )
