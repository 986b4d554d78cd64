"""What a run is compared with: every task alone, and one global model.

Nothing of them is released and their models are thrown away, so they cost no privacy; their scores
are not covered by the guarantee, like all scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.methods import BillboardMethod, FedAvg, Local
from tacit.metrics import Metrics, evaluate_rows
from tacit.privacy import Everyone, Privacy, Sampler
from tacit.runtime import evaluate
from tacit.runtime.prepare import prepare
from tacit.runtime.progress import Progress
from tacit.runtime.simulate import Simulation

STOPS = 8
"""Moments at which a task that trains alone looks at its own validation rows."""


def baseline_scores(
    simulation: Simulation,
    measured: Metrics,
    privacy: Privacy | None,
    sampler: Sampler,
    progress: Progress,
) -> dict[str, Metrics]:
    """Scores of training alone and of private federated averaging, with the run's own settings."""
    method, federation, model = simulation.method, simulation.federation, simulation.model
    randomness, device = simulation.channel.randomness, simulation.device
    same: dict[str, Any] = {
        name: getattr(method, name) for name in ("lr", "local_steps", "batch", "halve_every")
    }
    scores = {}
    if isinstance(method, Local):
        scores["local"] = measured
    else:
        beside = prepare(
            federation,
            Local(**same),
            model,
            None,
            Everyone(),
            simulation.rounds,
            randomness,
            device,
        )
        scores["local"] = _alone(beside, progress)
    if isinstance(method, FedAvg):
        scores["global"] = measured
    else:
        clip = method.clip if isinstance(method, BillboardMethod) else 1.0
        average = FedAvg(**same, clip=clip)
        rounds = simulation.rounds
        beside = prepare(federation, average, model, privacy, sampler, rounds, randomness, device)
        with progress.rounds("for comparison: one model for all", rounds) as on_round:
            beside.run(on_round=on_round)
        scores["global"] = beside.measure(beside.test_part)
    return scores


def _alone(beside: Simulation, progress: Progress) -> Metrics:
    """Each task trains as long as its own validation rows say, which is free and only fair."""
    federation, rounds = beside.federation, beside.rounds
    every = torch.arange(len(federation), device=beside.device)
    stops = {max(1, round(rounds * 2.0 ** (k + 1 - STOPS))) for k in range(STOPS)}
    best = np.full(len(federation), np.inf)
    kept: tuple[Tensor, Tensor] | None = None

    def choose() -> None:
        nonlocal kept
        loss = beside.measure("validation").per_task["loss"]
        better = torch.from_numpy(loss < best).to(beside.device)
        best[:] = np.minimum(best, np.where(np.isnan(loss), np.inf, loss))
        now = beside.personal(every)
        kept = now if kept is None else _rows_where(better, now, kept)

    with progress.rounds("for comparison: alone", rounds) as on_round:

        def look(number: int, point: dict[str, Any]) -> None:
            on_round(number, point)
            if number in stops and len(federation.validation.y):
                choose()

        beside.run(on_round=look)
    if kept is None:
        return beside.measure(beside.test_part)
    chosen = kept
    rows = federation.part(beside.test_part)
    out = evaluate.outputs(
        beside.model, lambda k: (chosen[0][k], chosen[1][k]), rows, every, beside.rows_at_once
    )
    return evaluate_rows(federation.kind, out, rows, federation.target_scale)


def _rows_where(
    better: Tensor, new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    w, buffers = (torch.where(better.unsqueeze(1), a, b) for a, b in zip(new, old, strict=True))
    return w, buffers
