"""What the crash tests run in a process of its own, so that it can be killed."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

import tacit
from tacit.engine import rounds
from tacit.privacy import accounting

# A run imports these when it needs them. Here they are in memory before processes are forked, so
# that a process is in its rounds after a blink, and that is where it is killed.
for name in (
    "dp_accounting.pld", "dp_accounting.rdp", "matplotlib.backends.backend_svg", "scipy.integrate",
    "tacit.report.html", "tacit.experiment.train", "torch._dynamo",
    "torch.fx.experimental.proxy_tensor",
):  # fmt: skip
    importlib.import_module(name)

ROUNDS = 150


def federation() -> tacit.Federation:
    generator = np.random.default_rng(0)
    names = np.repeat([f"task-{k}" for k in range(40)], 12)
    x = generator.normal(size=(len(names), 5)).astype(np.float32)
    y = x.sum(axis=1) + generator.normal(size=len(names))
    return tacit.data.from_arrays(x, y, names, scale="none", target_scale="none")


def run(folder: str, store: str, seed: int | None, save_every: float) -> None:
    """Start the run in this folder, or go on with it."""
    rounds.SAVE_EVERY_SECONDS = save_every
    accounting._interval = lambda *given: 1e-2  # how much ε is, is no matter here
    tacit.train(
        federation(),
        tacit.PMTL(batch=4, local_steps=2, clip=0.5),
        privacy=tacit.Privacy(noise=9.0),
        rounds=ROUNDS,
        cohort=0.5,
        seed=seed,
        baselines=False,
        personalise="none",
        store=store,  # type: ignore[arg-type]
        out=folder,
        resume=(Path(folder) / "checkpoint" / "settings.json").exists(),
    )
