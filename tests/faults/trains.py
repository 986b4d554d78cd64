"""`tacit.train` with a folder, started again after each stop."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import torch

import tacit
from tests.deploy.asked import federation_of
from tests.faults.schedule import DAMAGE, Schedule
from tests.faults.trial import Trial

METHODS = {
    "fixed": tacit.PMTL(clip=0.5, local_steps=2, batch=4),
    "adaptive": tacit.FedAvg(clip=0.5, local_steps=2, batch=4, clip_quantile=0.5),
}
federation = lru_cache(federation_of)


@dataclass
class TrainTrial(Trial):
    party: str = "run"
    method: str = "fixed"
    store: str = "memory"
    seed: int | None = 1

    def once(self) -> int:
        out = self.folder / self.party
        self.done = tacit.train(
            federation(4),
            METHODS[self.method],
            privacy=tacit.Privacy(noise=4.0),
            rounds=4,
            cohort=0.5,
            seed=self.seed,
            baselines=False,
            personalise="none",
            store=self.store,  # type: ignore[arg-type]
            out=out,
            resume=(out / "checkpoint" / "settings.json").exists(),
        )
        return self.done.guarantee.releases

    def outcome(self) -> Any:
        if self.seed is None or self.schedule.had(DAMAGE):
            return None
        return [part.numpy().tobytes() for part in self.done.models(torch.arange(4))]


@lru_cache
def calm(kind: type[Trial], folder: Path, **settings: Any) -> Trial:
    """The undisturbed run: how many steps there are, and what it ends in."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    trial = kind(folder, Schedule("calm"), **settings).run()
    assert trial.finished and not trial.violations, trial.violations
    trial.expected = trial.outcome()
    return trial


def train_trial(seed: str, folder: Path, quiet: Path) -> Trial:
    """One schedule; `quiet` is where undisturbed runs are."""
    random = Random(f"train {seed}")
    settings = {
        "method": random.choice(sorted(METHODS)),
        "store": random.choice(("memory", "disk")),
        "seed": random.choice((1, 1, None)),
    }
    undisturbed = calm(TrainTrial, quiet, **settings)
    schedule = Schedule.drawn(f"train {seed}", undisturbed.schedule.steps)
    return TrainTrial(folder, schedule, expected=undisturbed.expected, **settings).run()
