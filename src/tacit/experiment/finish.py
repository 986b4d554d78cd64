"""What `train` and `tune` do after the last round: each task's own model, scores, files."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.engine.personalise import personalise, take_away
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
from tacit.experiment.finished import drawn
from tacit.experiment.plan import Plan
from tacit.experiment.run import Run
from tacit.local.threads import meanwhile
from tacit.methods import Mixed
from tacit.metrics import Metrics
from tacit.privacy import Sampler

SMALL = 50_000
"""Up to so many rows times coefficients, a run is compared with everything. Beyond that, two of the
comparisons take half a second each, and only one is made: with tasks that were told nothing, if
taking part seems to help; with a run without privacy, if it does not."""


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
    tasks, on_disk = simulation.tasks, folder if plan.store == "disk" else None
    places = {name: on_disk and on_disk / "checkpoint" / name for name in ("personal", "delivered")}
    ended = personalise(
        tasks, plan.personalise, progress, alone=plan.baselines, folder=places["personal"]
    )
    run = Run.of(simulation, plan.privacy, settings, ended)
    apart = copy.copy(tasks)
    apart.diverged = tasks.diverged.clone()
    take = functools.partial(take_away, apart, ended, places["delivered"])
    with meanwhile(take, tasks.federation.train.x) as delivered:
        if plan.baselines:
            beside = _beside_settled if simulation.method.settles else _beside_trained
            run.baselines = _known(beside(run, plan, sampler, progress))
        if folder is not None:
            drawn()
        run.delivered = delivered()
    run.timing = timing()
    if folder is not None:
        progress.say("writing the report")
        run.save(folder)
    return run


def _beside_trained(
    run: Run, plan: Plan, sampler: Sampler, progress: Progress
) -> dict[str, Metrics | None]:
    """What a run of gradient steps is compared with."""
    tasks, ended, alone = run.simulation.tasks, run.personalised.ended, run.personalised.alone
    assert alone is not None
    if ended is not None:
        alone = lower(alone, tasks.measure(tasks.test_part, blend=ended.alone))
    together = global_scores(run.simulation, plan, sampler, progress)
    return {"constant": own_means(tasks), "local": alone, "global": together}


def _beside_settled(
    run: Run, plan: Plan, sampler: Sampler, progress: Progress
) -> dict[str, Metrics | None]:
    """What an exact run is compared with; `SMALL` says when costly comparisons are left out."""
    simulation, tasks, ended = run.simulation, run.simulation.tasks, run.personalised.ended
    blend = None if ended is None else ended.blend
    if ended is None:
        alone = exactly_alone(tasks)
    else:
        alone = tasks.measure(tasks.test_part, blend=ended.alone)
    found = {"constant": own_means(tasks), "local": alone, "global": shared_scores(tasks)}
    if not isinstance(simulation.method, Mixed):  # of others it takes longer than the run
        return found
    run.baselines = _known(found)
    small = len(tasks.federation.train.y) * simulation.model.size <= SMALL
    if small or run.verdict.outcome == "helped":
        found["local"] = lower(alone, untold_scores(tasks, blend))
        run.baselines = _known(found)
    if plan.privacy is not None and (small or run.verdict.outcome != "helped"):
        found["open"] = open_scores(simulation, plan, sampler, progress, blend)
    return found


def _known(found: dict[str, Metrics | None]) -> dict[str, Metrics]:
    return {name: scores for name, scores in found.items() if scores is not None}
