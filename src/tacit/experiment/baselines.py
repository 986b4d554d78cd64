"""What a run is compared with: every task alone, and one global model.

Nothing of them is released and their models are thrown away, so they cost no privacy; their scores
are not covered by the guarantee, like all scores. Training alone is part of `personalise`, where
every task stops when its own validation rows say so: a baseline that overfits would flatter us.
"""

from __future__ import annotations

from dataclasses import fields

from torch import Tensor
from torch.func import vmap

from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.engine.tasks import Tasks
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local.batches import Batches, all_rows
from tacit.local.bayes import design
from tacit.local.chunks import widths_of
from tacit.methods import FedAvg, OnBillboard, TrainedMethod
from tacit.methods.linear import alone, as_parameters
from tacit.metrics import Metrics
from tacit.privacy import Sampler


def global_scores(
    simulation: Simulation, plan: Plan, sampler: Sampler, progress: Progress
) -> Metrics:
    """Scores of private federated averaging, with the run's own settings."""
    method, rounds = simulation.method, simulation.course.length
    assert isinstance(method, TrainedMethod)
    if isinstance(method, FedAvg):
        return simulation.measure(simulation.tasks.test_part)
    clip = method.clip if isinstance(method, OnBillboard) else 1.0
    own = {one.name: getattr(method, one.name) for one in fields(TrainedMethod)}
    average = FedAvg(**own, clip=clip)
    # As noisy as the run; but no server process is asked for what is thrown away.
    beside = simulation_of(
        Plan(
            method=average,
            privacy=plan.privacy,
            rounds=rounds,
            curator=None if plan.curator is None else plan.curator.simulated,
        ),
        simulation.federation,
        simulation.model,
        sampler,
        simulation.randomness,
        simulation.device,
    )
    with progress.rounds("for comparison: one model for all", rounds) as on_round:
        beside.run(on_round=on_round)
    return beside.measure(beside.tasks.test_part)


def exactly_alone(trained: Tasks, tasks: Tensor | None = None) -> Metrics:
    """Scores of single-task regression, solved exactly, each task weighing its own strengths."""
    model, outputs = trained.model, trained.federation.outputs

    def one(batches: Batches) -> Tensor:
        rows = design(batches, model.size // outputs)
        found = alone(model.kind, rows, rows[0].new_zeros(model.size))[0]
        return as_parameters(found, outputs).to(model.start.dtype)

    def models(tasks: Tensor) -> tuple[Tensor, Tensor]:
        rows = trained.federation.train
        batches = all_rows(rows, tasks, int(widths_of(rows.count(tasks)).max()))
        return vmap(one)(batches), model.buffers.expand(len(tasks), -1)

    return trained.measure(trained.test_part, tasks, personal=models)
