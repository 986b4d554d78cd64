"""What `train` and `tune` do after the last round: each task's own model, scores, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.engine.combine import combine, combines, deliver
from tacit.engine.personalise import Personalised
from tacit.engine.personalise import personalise as last_step
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.experiment.baselines import exactly_alone, global_scores
from tacit.experiment.plan import Plan
from tacit.experiment.run import Run
from tacit.privacy import Sampler


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
        return _settled(plan, simulation, settings, folder, progress, timing)
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
        run.baselines = {"local": models.alone, "global": together}
    return _finished(run, folder, progress, timing)


def _settled(
    plan: Plan,
    simulation: Simulation,
    settings: dict[str, Any],
    folder: Path | None,
    progress: Progress,
    timing: Callable[[], dict[str, Any]],
) -> Run:
    """For tasks with an exact shared model, who combine it with what they can do alone."""
    tasks, kept = simulation.tasks, Personalised("none")
    if plan.personalise == "none" or not combines(tasks):
        run = Run.of(simulation, plan.privacy, settings, kept)
        if plan.baselines:
            run.baselines = {"local": exactly_alone(tasks)}
        return _finished(run, folder, progress, timing)
    ended = combine(tasks, progress)
    run = Run.of(simulation, plan.privacy, settings, kept, ended.blend)
    if plan.baselines:
        run.baselines = {"local": tasks.measure(tasks.test_part, blend=ended.alone)}
    run.delivered = deliver(tasks, ended)
    return _finished(run, folder, progress, timing)


def _finished(
    run: Run, folder: Path | None, progress: Progress, timing: Callable[[], dict[str, Any]]
) -> Run:
    run.timing = timing()
    if folder is not None:
        progress.say("writing the report")
        run.save(folder)
    return run
