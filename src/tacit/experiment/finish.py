"""What `train` and `tune` do after the last round: each task's own model, scores, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.engine.combine import Ended, combine, combines, deliver
from tacit.engine.personalise import Personalised
from tacit.engine.personalise import personalise as last_step
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.experiment.baselines import (
    exactly_alone,
    global_scores,
    lower,
    open_scores,
    own_means,
    shared_scores,
    untold_scores,
)
from tacit.experiment.plan import Plan
from tacit.experiment.run import Run
from tacit.methods import Mixed
from tacit.metrics import Metrics
from tacit.privacy import Sampler

SMALL = 50_000
"""Up to so many rows, times coefficients, a run is compared with all there is. Beyond that each of
two comparisons takes half a second, and is made where it tells something: the last step of tasks
that were told nothing where taking part seems to help, no privacy where it does not."""


def finish(
    plan: Plan,
    simulation: Simulation,
    sampler: Sampler,
    settings: dict[str, Any],
    folder: Path | None,
    progress: Progress,
    timing: Callable[[], dict[str, Any]],
) -> Run:
    """The run as the caller gets it; `timing` is asked when all the rest is done."""
    privacy, baselines = plan.privacy, plan.baselines
    if simulation.method.settles:  # tasks already took their last step, an exact one
        return _settled(plan, simulation, sampler, settings, folder, progress, timing)
    models = last_step(
        simulation.tasks,
        plan.personalise,
        progress,
        alone=baselines,
        folder=folder,
        on_disk=plan.store == "disk",
    )
    run = Run.of(simulation, privacy, settings, models)
    if baselines:
        assert models.alone is not None
        together = global_scores(simulation, plan, sampler, progress)
        found = {"constant": own_means(simulation.tasks), "local": models.alone}
        run.baselines = _known(found | {"global": together})
    return _finished(run, folder, progress, timing)


def _settled(
    plan: Plan,
    simulation: Simulation,
    sampler: Sampler,
    settings: dict[str, Any],
    folder: Path | None,
    progress: Progress,
    timing: Callable[[], dict[str, Any]],
) -> Run:
    """For tasks with an exact shared model, who combine it with what they can do alone."""
    tasks, kept = simulation.tasks, Personalised("none")
    ended = None if plan.personalise == "none" or not combines(tasks) else combine(tasks, progress)
    blend = None if ended is None else ended.blend
    run = Run.of(simulation, plan.privacy, settings, kept, blend)
    if plan.baselines:
        run.baselines = _beside(run, plan, sampler, progress, ended)
    run.delivered = None if ended is None else deliver(tasks, ended)
    return _finished(run, folder, progress, timing)


def _beside(
    run: Run, plan: Plan, sampler: Sampler, progress: Progress, ended: Ended | None
) -> dict[str, Metrics]:
    """What an exact run is compared with; what costs as much as its rounds, only if it tells."""
    simulation, blend = run.simulation, None if ended is None else ended.blend
    tasks = simulation.tasks
    if ended is None:
        alone = exactly_alone(tasks)
    else:
        alone = tasks.measure(tasks.test_part, blend=ended.alone)
    found = {"constant": own_means(tasks), "local": alone, "global": shared_scores(tasks)}
    run.baselines = _known(found)
    if not isinstance(simulation.method, Mixed):  # of others it takes longer than the run
        return run.baselines
    small = len(tasks.federation.train.y) * simulation.model.size <= SMALL
    if small or run.verdict.outcome == "helped":
        found["local"] = lower(alone, untold_scores(tasks, blend))
        run.baselines = _known(found)
    if plan.privacy is not None and (small or run.verdict.outcome != "helped"):
        found["open"] = open_scores(simulation, plan, sampler, progress, blend)
    return _known(found)


def _known(found: dict[str, Metrics | None]) -> dict[str, Metrics]:
    return {name: scores for name, scores in found.items() if scores is not None}


def _finished(
    run: Run, folder: Path | None, progress: Progress, timing: Callable[[], dict[str, Any]]
) -> Run:
    run.timing = timing()
    if folder is not None:
        progress.say("writing the report")
        run.save(folder)
    return run
