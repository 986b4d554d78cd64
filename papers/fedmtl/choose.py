"""Which settings a contender gets: chosen by validation rows of a dealing that is not shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papers.common.write import write_csv
from papers.fedmtl.contenders import CONTENDERS, RATES, SEARCHED, Contender, Settings
from papers.fedmtl.grid import FedMTLGrid, WantedRun
from papers.fedmtl.sets import CHOOSING, Distribution, FedMTLPlan, plan_of

COLUMNS = ("set", "method", "settings", "tried", "validation", "chosen on")


@dataclass(frozen=True)
class ChosenSettings:
    """What was chosen, of how many, and where."""

    settings: Settings
    tried: int
    validation: float | None
    where: str


class Chooser:
    """Runs searches, and remembers nothing: choices follow from the cells."""

    def __init__(self, grid: FedMTLGrid) -> None:
        self._grid = grid

    def search(self, key: str) -> None:
        """What has to be tried before anything can be shown for this set."""
        if key != "lfwa":
            self.search("lfwa")
        jobs = [job for name in SEARCHED[key] for job in self._tries(key, name)]
        self._grid.run(jobs, "choosing")

    def choice(self, key: str, name: str) -> ChosenSettings | None:
        """None where runs that it depends on are missing."""
        own = CONTENDERS[name]
        if own.like is not None:
            found = self.choice(key, own.like)
            if found is None:
                return None
            return ChosenSettings(found.settings, 0, None, f"as {CONTENDERS[own.like].title}")
        if name not in SEARCHED[key]:
            found = self.choice("lfwa", name)
            return None if found is None else self._moved(key, found)
        options = self._options(key, own)
        if len(options) == 1:
            return ChosenSettings(options[0], 1, None, "fixed in advance")
        cells = [self._grid.get(job) for job in self._tries(key, name)]
        scores = [cell.validation for cell in cells if cell is not None]
        if len(scores) < len(cells):
            return None
        # A run that broke down has no score, and must not win.
        best = max(range(len(scores)), key=lambda k: (scores[k] == scores[k], scores[k]))
        return ChosenSettings(
            options[best], len(options), scores[best], f"{key}, dealing {CHOOSING}"
        )

    def job(
        self, key: str, name: str, seed: int, distribution: Distribution = "D1", **other: Any
    ) -> WantedRun | None:
        """A contender with its chosen settings; None where the choice is not made yet."""
        found = self.choice(key, name)
        if found is None:
            return None
        return self._job(key, name, {**found.settings, **other}, seed, distribution)

    def jobs(
        self, key: str, names: Sequence[str], seeds: Sequence[int], distribution: Distribution
    ) -> list[WantedRun]:
        """Seed after seed, so that what was stopped is a whole table with fewer seeds."""
        found = [self.job(key, name, seed, distribution) for seed in seeds for name in names]
        return [job for job in found if job is not None]

    def write(self) -> None:
        """settings.csv: everything that is known so far, also of other sets."""
        rows = []
        for key in SEARCHED:
            for name, own in CONTENDERS.items():
                found = self.choice(key, name)
                if found is not None:
                    score = "" if found.validation is None else round(found.validation, 5)
                    rows.append(
                        (
                            key,
                            own.title,
                            json.dumps(dict(found.settings), sort_keys=True),
                            found.tried,
                            score,
                            found.where,
                        )
                    )
        write_csv(self._grid.out / "settings.csv", COLUMNS, rows)

    def _moved(self, key: str, found: ChosenSettings) -> ChosenSettings | None:
        """Settings of lfwa on another set: as they are, or with that set's step size."""
        if key not in RATES:
            return ChosenSettings(found.settings, 0, None, "lfwa")
        rate = self.choice(key, "local")
        if rate is None:
            return None
        lr = {n: rate.settings["lr"] for n in ("lr", "inner_lr") if n in found.settings}
        return ChosenSettings(
            {**found.settings, **lr}, 0, None, "lfwa; step size of training alone"
        )

    def _options(self, key: str, own: Contender) -> Sequence[Settings]:
        options = [{"lr": lr} for lr in RATES[key]] if key in RATES else own.tried
        return options[:1] if self._grid.reduced else options

    def _tries(self, key: str, name: str) -> list[WantedRun]:
        options = self._options(key, CONTENDERS[name])
        if len(options) == 1:
            return []
        return [self._job(key, name, each, CHOOSING, "D1") for each in options]

    def _job(
        self, key: str, name: str, settings: Settings, seed: int, distribution: Distribution
    ) -> WantedRun:
        own, plan = CONTENDERS[name], self._plan(key)
        heads = "position" if own.position else "task"
        return WantedRun(plan, own.method(plan, settings), seed, distribution, heads, own.title)

    def _plan(self, key: str) -> FedMTLPlan:
        return plan_of(key, self._grid.reduced)
