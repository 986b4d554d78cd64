"""What every table and figure is handed: the runs, the choices, which sets and seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.fedmtl.choose import Chooser
from papers.fedmtl.contenders import CONTENDERS
from papers.fedmtl.grid import FedMTLCell, FedMTLGrid, WantedRun
from papers.fedmtl.sets import Distribution, FedMTLPlan, plan_of

NOT_RUN = "not run"


@dataclass(frozen=True)
class SeedScore:
    """Mean and standard deviation over seeds, as shares of one."""

    mean: float
    sd: float
    seeds: int

    def __str__(self) -> str:
        """In per cent, as the paper prints it."""
        spread = f" ± {100 * self.sd:.1f}" if self.seeds > 1 else ""
        return f"{100 * self.mean:.1f}{spread}"


def score_of(values: Iterable[float]) -> SeedScore | None:
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return None
    sd = statistics.stdev(found) if len(found) > 1 else 0.0
    return SeedScore(statistics.mean(found), sd, len(found))


@dataclass
class FedMTLContext:
    """One call of `reproduce`."""

    grid: FedMTLGrid
    sets: tuple[str, ...]
    seeds: range

    def __post_init__(self) -> None:
        self.chooser = Chooser(self.grid)

    @property
    def out(self) -> Path:
        return self.grid.out

    @property
    def say(self) -> Callable[[str], None]:
        return self.grid.say

    def plan(self, key: str) -> FedMTLPlan:
        return plan_of(key, self.grid.reduced)

    def cells(self, key: str, name: str, distribution: Distribution = "D1") -> list[FedMTLCell]:
        """Finished runs of a contender with its chosen settings, by seed."""
        return self.done(self.chooser.jobs(key, (name,), self.seeds, distribution))

    def done(self, jobs: Sequence[WantedRun]) -> list[FedMTLCell]:
        found = (self.grid.get(job) for job in jobs)
        return [cell for cell in found if cell is not None]

    def score(self, key: str, name: str, distribution: Distribution = "D1") -> SeedScore | None:
        """Accuracy on test rows, or mIoU."""
        return score_of(cell.score for cell in self.cells(key, name, distribution))

    def used(self) -> list[FedMTLCell]:
        """All cells of these sets and this version, for the line about hardware."""
        version = "reduced" if self.grid.reduced else "stand-in"
        rows: Iterable[FedMTLCell] = self.grid.cells.rows.values()
        return [cell for cell in rows if cell.set in self.sets and cell.version == version]


def shown(score: SeedScore | None) -> str:
    return NOT_RUN if score is None else str(score)


def title_of(name: str) -> str:
    return CONTENDERS[name].title
