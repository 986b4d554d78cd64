"""What a run is compared with: every task alone, and one global model.

Nothing of them is released and their models are thrown away, so they cost no privacy; their scores
are not covered by the guarantee, like all scores. Training alone is part of `personalise`, where
every task stops when its own validation rows say so: a baseline that overfits would flatter us.
"""

from __future__ import annotations

from tacit.methods import OnBillboard, FedAvg
from tacit.metrics import Metrics
from tacit.privacy import Privacy, Sampler
from tacit.runtime.prepare import prepare
from tacit.runtime.progress import Progress
from tacit.runtime.simulate import Simulation


def global_scores(
    simulation: Simulation, privacy: Privacy | None, sampler: Sampler, progress: Progress
) -> Metrics:
    """Scores of private federated averaging, with the run's own settings."""
    method, rounds = simulation.method, simulation.rounds
    if isinstance(method, FedAvg):
        return simulation.measure(simulation.test_part)
    clip = method.clip if isinstance(method, OnBillboard) else 1.0
    average = FedAvg(
        lr=method.lr,
        local_steps=method.local_steps,
        batch=method.batch,
        halve_every=method.halve_every,
        clip=clip,
    )
    beside = prepare(
        simulation.federation,
        average,
        simulation.model,
        privacy,
        sampler,
        rounds,
        simulation.randomness,
        simulation.device,
    )
    with progress.rounds("for comparison: one model for all", rounds) as on_round:
        beside.run(on_round=on_round)
    return beside.measure(beside.test_part)
