"""What a run is compared with: own means, every task alone, one global model, and no noise.

Nothing of them is released and their models are thrown away, so they cost no privacy; their scores
are not covered by the guarantee, like all scores. Training alone is part of `personalise`, where
every task stops when its own validation rows say so: a baseline that overfits would flatter us.
"""

from __future__ import annotations

import copy
import math
from dataclasses import fields
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from tacit.engine import evaluate
from tacit.engine.blend import Blend
from tacit.engine.combine import KINDS
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.engine.tasks import Tasks
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.local.batches import all_rows
from tacit.local.chunks import widths_of
from tacit.local.own import constants, raw_of
from tacit.methods import FedAvg, OnBillboard, TrainedMethod
from tacit.methods.linear import fitted_alone, shape_of
from tacit.metrics import Metrics, evaluate_rows
from tacit.privacy import Sampler

ROUNDS = 8
"""Without noise a mixed model comes so close to its end in so many rounds that scores do not tell.
More of them would cost more than the run."""


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
    model, outputs = trained.model, shape_of(trained.federation)[0]
    one = partial(fitted_alone, model, outputs=outputs)

    def models(tasks: Tensor) -> tuple[Tensor, Tensor]:
        rows = trained.federation.train
        batches = all_rows(rows, tasks, int(widths_of(rows.count(tasks)).max()))
        return vmap(one)(batches), model.buffers.expand(len(tasks), -1)

    return trained.measure(trained.test_part, tasks, personal=models)


def own_means(trained: Tasks) -> Metrics | None:
    """Scores of each task's mean, shares of classes or hazards; None for targets without any."""
    federation = trained.federation
    if federation.kind not in (*KINDS, "survival") or federation.heads is not None:
        return None
    rows = federation.part(trained.test_part)
    mean = constants(federation.kind, federation.train, federation.outputs)
    said = torch.repeat_interleave(raw_of(federation.kind, mean), rows.counts, dim=0)
    return evaluate_rows(federation.kind, said, rows, federation.target_scale, federation.heads)


def untold_scores(
    trained: Tasks, blend: Blend | None = None, tasks: Tensor | None = None
) -> Metrics:
    """Scores of the run's own last step by tasks that were told nothing: that is alone, too.

    Without it a last step that is better than other models of one task would pass for help.
    """
    unread, every = copy.copy(trained), torch.arange(len(trained.federation), device=trained.device)
    unread.board, unread.diverged = trained.course.start, trained.diverged.clone()
    some = every if tasks is None else tasks
    w, buffers = unread.settled_models(evaluate.select(trained.federation.train, some), some)
    place = torch.empty_like(every)
    place[some] = torch.arange(len(some), device=some.device)
    return _better(trained, lambda k: (w[place[k]], buffers[place[k]]), blend, tasks)


def shared_scores(trained: Tasks) -> Metrics | None:
    """Scores of what the billboard alone gives everybody; None where that is no model."""
    w, _ = trained.newcomer(torch.zeros(1, dtype=torch.int64, device=trained.device))
    if trained.federation.heads is not None or torch.equal(w[0], trained.model.start):
        return None
    return trained.measure(trained.test_part, personal=trained.newcomer)


def open_scores(
    simulation: Simulation,
    plan: Plan,
    sampler: Sampler,
    progress: Progress,
    blend: Blend | None = None,
) -> Metrics | None:
    """Scores of the same method without privacy, for methods that settle; None if it diverges.

    Rows stay in the units that the run found. What tasks combine with the shared model (`blend`)
    is not weighed again, which would take as long as the run: either that or the shared model by
    itself is scored, whichever is better.
    """
    tasks, length = simulation.tasks, simulation.course.length
    method = simulation.method.for_run(tasks.federation, None)
    rounds = min(method.usual_rounds, max(length, ROUNDS))
    exact = Plan(method=method, rounds=rounds, publishing=plan.publishing)
    whole = tasks.federation, simulation.model, sampler, simulation.randomness, simulation.device
    beside = simulation_of(exact, *whole)
    with progress.rounds("for comparison: not private", rounds) as on_round:
        beside.run(on_round=on_round)
    if beside.stopped:
        return None
    return _better(beside.tasks, beside.personal, blend)


def _better(
    trained: Tasks, personal: evaluate.Personal, blend: Blend | None, tasks: Tensor | None = None
) -> Metrics:
    """Scores of these models by themselves, or within what a run's tasks combine."""
    part = trained.test_part
    found = trained.measure(part, tasks, personal)
    return found if blend is None else lower(found, trained.measure(part, tasks, personal, blend))


def lower(one: Metrics, other: Metrics) -> Metrics:
    """Whichever has the lower mean loss over tasks."""
    means = [found.overall["loss_per_task"] for found in (one, other)]
    a, b = (math.inf if mean is None else mean for mean in means)
    return one if a <= b else other
