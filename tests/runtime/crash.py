"""What the crash tests run in a process of its own, so that it can be killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tacit
from tacit.runtime import simulate

ROUNDS = 150


def federation() -> tacit.Federation:
    generator = np.random.default_rng(0)
    names = np.repeat([f"task-{k}" for k in range(40)], 12)
    x = generator.normal(size=(len(names), 5)).astype(np.float32)
    y = x.sum(axis=1) + generator.normal(size=len(names))
    return tacit.data.from_arrays(x, y, names, scale="none", target_scale="none")


def run(folder: str, store: str, seed: int | None, save_every: float) -> None:
    """Start the run in this folder, or go on with it."""
    simulate.SAVE_EVERY_SECONDS = save_every
    tacit.train(
        federation(),
        tacit.PMTL(batch=4, local_steps=2, clip=0.5),
        privacy=tacit.Privacy(epsilon=3.0),
        rounds=ROUNDS,
        cohort=0.5,
        seed=seed,
        baselines=False,
        personalise="none",
        store=store,  # type: ignore[arg-type]
        out=folder,
        resume=(Path(folder) / "checkpoint" / "settings.json").exists(),
    )
