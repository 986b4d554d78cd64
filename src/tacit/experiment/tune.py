"""`tacit.tune`: random search whose cost is part of the promise.

The search makes a random number of runs, each with settings drawn at random and one noisy score at
its end, and hands out the best run only. What that costs, and why, is in `privacy.selection`. The
number of runs and everything about those that lost is thrown away: the proof rests on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import metrics
from tacit.checks import annotations_of, check_type, fits
from tacit.data.federation import NUMBERS, Federation
from tacit.engine import evaluate
from tacit.engine.persons import by_person
from tacit.engine.progress import OnRound, Progress
from tacit.engine.simulate import Simulation
from tacit.engine.store import CHECKPOINT, LEDGER
from tacit.errors import TacitError
from tacit.experiment.auto import choose
from tacit.experiment.finish import finish
from tacit.experiment.plan import Plan, takes_settings
from tacit.experiment.prepare import simulation_of
from tacit.experiment.run import Run
from tacit.experiment.start import (
    device_of,
    fresh_folder,
    method_of,
    model_of,
    name_of,
    progress_of,
    sampler_of,
)
from tacit.experiment.train import SETTINGS, carry_out
from tacit.files import hold, make_folder, replace
from tacit.methods import Method
from tacit.methods.of_persons import of_persons
from tacit.privacy import Channel, Ledger, Prepaid, Release, Sampler, spent
from tacit.privacy.calibration import smallest_noise
from tacit.privacy.sampling import Unit
from tacit.privacy.selection import number_of_runs, tuning
from tacit.randomness import Randomness

Search = Mapping[str, list[Any] | tuple[float, float]]

SCORES = {
    "regression": "1 / (1 + squared error / variance of the task's targets)",
    "count": "1 / (1 + deviance / deviance of the task's mean)",
    "binary": "accuracy",
    "multiclass": "accuracy",
    "multilabel": "F1",
    "segmentation": "mean intersection over union",
    "survival": "concordance",
}
"""What a task reports about a run, on its own validation rows: in [0, 1], higher is better."""


@takes_settings
def tune(
    federation: Federation,
    method: Method | str,
    *,
    search: Search,
    expected_runs: float = 10,
    progress: Progress | None = None,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Choose settings by private runs, and return the best of them; ε covers the choice.

    A tuning cannot be resumed: it is booked as a whole before its first run, and one that was cut
    off is spent. What is not searched is the same in all runs; `privacy` is the promise for
    everything together, tuning included.

    Parameters
    ----------
    search : settings of the method and where to look: a list is a choice among its values, a pair
        (low, high) a range of positive numbers, drawn log-uniformly (whole where the setting is)
    expected_runs : how many runs are made on average; their number is drawn, and never shown
    federation, progress, config : as for `train`
    """
    plan = Plan.of(method=method, **settings)
    return tune_plan(plan, federation, search, expected_runs, progress=progress, config=config)


def tune_plan(
    plan: Plan,
    federation: Federation,
    search: Search,
    expected_runs: float,
    *,
    progress: Progress | None = None,
    config: dict[str, Any] | None = None,
) -> Run:
    """The best run of a plan whose settings are searched."""
    plan.check_tuning(federation)
    privacy = plan.privacy
    assert privacy is not None
    named = method_of(plan.method)
    space = _Space.of(named if privacy.unit == "task" else of_persons(named), search)
    found = choose(federation, plan.but(personalise="none"))
    plan, method, rounds = found.plan.but(personalise=plan.personalise), found.method, found.rounds
    plan.check(federation)
    progress, tasks, seed = progress_of(progress), len(federation), plan.seed
    sampler, delta = sampler_of(plan, tasks), privacy.delta_for(tasks)
    _rehearse(plan, federation, sampler)
    progress.say("calibrating the noise")

    def booking(noise: float):
        neighbours, unit, crowd = privacy.neighbours, privacy.unit, privacy.crowd(tasks)
        return tuning(sampler, noise, rounds, crowd, neighbours, expected_runs, unit)

    booking(1.0)  # refuses a pair that nobody can account for

    def cost(noise: float) -> float:
        return spent({booking(noise)[0]: 1}, delta, privacy.neighbours).epsilon

    noise = privacy.noise
    if noise is None:
        assert privacy.epsilon is not None
        noise = smallest_noise(cost, privacy.epsilon, delta, rounds)
    booked, score = booking(noise)
    promised = dataclasses.asdict(privacy)
    paid = Prepaid(**promised | {"epsilon": None, "noise": noise, "delta": delta})
    about = {"search": space.words(), "expected_runs": expected_runs}
    ledger, folder = _open(plan.out, f"{name_of(method)}-tuned", seed, about)
    ledger.book(0, booked, repeatable=False)

    randomness = Randomness.of(seed)
    best: tuple[float, Run, dict[str, Any]] | None = None
    for number in range(number_of_runs(expected_runs, randomness)):
        drawn = space.draw(randomness, number)
        own_seed = None if seed is None else randomness.key("tuning", number + 1)
        one = plan.but(
            method=dataclasses.replace(method, **drawn),
            privacy=paid,
            seed=own_seed,
            personalise="none",
            baselines=False,
            out=None,
        )
        run = carry_out(one, federation, progress=_Unseen(progress))
        found = noisy_score(run.simulation, score)
        if best is None or found > best[0]:
            best = (found, run, drawn)
        del run
    assert best is not None  # the distribution starts at one

    found, run, drawn = best
    simulation, timing = run.simulation, run.timing
    # From here on ε is read off the ledger of the tuning, of which this run is a part.
    simulation.channel.ledger = ledger
    for point in simulation.curve:
        point["epsilon"] = None  # all of it was spent before the first round
    about |= {
        "chosen": drawn,
        "score": found,
        "score_means": _score_means(federation, privacy.unit),
    }
    about["score_noise"] = score.noise_multiplier * 0.5 * privacy.at_most / privacy.crowd(tasks)
    settings = run.config | {"seed": seed, "privacy": promised}
    settings |= {"personalise": plan.personalise, **(config or {}), "tuning": about}
    # The time is of this run alone: that of all of them would tell their number.
    paid_for = plan.but(privacy=paid)
    return finish(paid_for, simulation, sampler, settings, folder, progress, lambda: timing)


def _rehearse(plan: Plan, federation: Federation, sampler: Sampler) -> None:
    """A run that could not start must be refused before it is paid for."""
    assert plan.privacy is not None
    compute = device_of(plan.device)
    known = plan.but(privacy=dataclasses.replace(plan.privacy, epsilon=None, noise=1.0))
    made = model_of(plan.model, federation, 0).to(compute)
    simulation_of(known, federation.to(compute), made, sampler, Randomness.of(0), compute)


def noisy_score(simulation: Simulation, release: Release) -> float:
    """The mean over all tasks of a score in [0, 1], through the same channel as everything else.

    Around ½, a task's score is a number of length at most ½: that is the clip. A task that cannot
    tell (no validation rows, say) contributes nothing. Where persons are hidden, so are their
    scores, and the mean is over as many as there are about.
    """
    run = simulation.channel
    scores = person_scores(simulation) if run.of_persons else task_scores(simulation)
    sent = torch.from_numpy(scores - 0.5).unsqueeze(1)  # the channel counts NaN as zero
    channel = Channel(release.sampler, run.tasks, run.randomness, clip=0.5, release=release)
    channel.share = run.share
    # The round after the last: with a seed, its noise is a stream of its own.
    collection = channel.open(simulation.course.length, simulation.course.length + 1)
    collection.add(sent)
    return 0.5 + float(collection.publishable(1))


def _score_means(federation: Federation, unit: Unit) -> str:
    if unit != "task":
        return f"e^−loss of the shared model for each {unit}; ½ for one without validation rows"
    name, _ = metrics.task_score(federation.kind, federation.heads)
    return "accuracy" if name == "accuracy" else SCORES[federation.kind]


def task_scores(simulation: Simulation) -> np.ndarray:
    """What each task thinks of its own model, on its own validation rows; NaN where undefined."""
    federation = simulation.federation
    name, _ = metrics.task_score(federation.kind, federation.heads)
    scores = simulation.measure("validation").per_task[name]
    if federation.kind not in NUMBERS:
        return scores
    spread = _spread(federation)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, 1 / (1 + scores / spread), math.nan)


def person_scores(simulation: Simulation) -> np.ndarray:
    """What each person thinks of the shared model, on its own validation rows: e^−loss.

    The model is a function of releases, and nothing here depends on two persons.
    """
    federation, tasks = simulation.federation, simulation.tasks
    rows, task, _ = by_person(federation.validation)
    out = evaluate.outputs(
        simulation.model,
        lambda persons: simulation.newcomer(task[persons]),
        rows,
        torch.arange(len(task), device=simulation.device),
        tasks.seen_at_once,
        simulation.channel.tasks,
    )
    found = metrics.evaluate(federation.kind, out, rows.y, rows.offsets, federation.heads)
    return np.exp(-np.maximum(found.per_task["loss"], 0.0))


def _spread(federation: Federation) -> np.ndarray:
    """What each task's mean loses on its training targets, in the units of its error."""
    rows, scale = federation.train, federation.target_scale
    y = rows.y.double().cpu().numpy()
    counts = rows.counts.cpu().numpy()
    task = np.repeat(np.arange(len(counts)), counts)
    if scale is not None:
        y = metrics.original_units(rows.y, rows.offsets, scale)
    return metrics.spread(federation.kind, y, task, counts)


@dataclasses.dataclass(frozen=True)
class _Space:
    """Where to look: settings of a method, drawn independently and without looking at data."""

    wanted: Search
    whole: frozenset[str]

    @classmethod
    def of(cls, method: Method, search: Search) -> _Space:
        if not search:
            raise TacitError("search is empty: name settings to look for, like lr=[0.01, 0.1]")
        types = {field.name: annotations_of(type(method))[field.name] for field in fields(method)}
        kind = method.called
        for name, wanted in search.items():
            if name not in types:
                raise TacitError(
                    f"{kind} has no setting {name!r} to search (rounds, cohort and noise are the "
                    f"same in all runs, so that all cost the same); there are {', '.join(types)}"
                )
            if isinstance(wanted, tuple):
                ends = wanted if fits(tuple[float, float], wanted) else (0, 0)
                if not 0 < ends[0] < ends[1] < math.inf:
                    raise TacitError(
                        f"search {name}={wanted!r}: a range is (low, high) with 0 < low < high"
                    )
            elif not isinstance(wanted, list) or not wanted:
                raise TacitError(
                    f"search {name}={wanted!r}: pass a list of values or a pair (low, high)"
                )
            for value in wanted:
                check_type(f"search {name}", types[name], value)
                dataclasses.replace(method, **{name: value})  # refuses what cannot work
        whole = frozenset(name for name, kind in types.items() if not fits(kind, 0.5))
        return cls(search, whole)

    def draw(self, randomness: Randomness, number: int) -> dict[str, Any]:
        uniform = randomness.uniform("tuning", number + 1, 1, len(self.wanted))
        drawn: dict[str, Any] = {}
        for u, (name, wanted) in zip(uniform.tolist(), self.wanted.items(), strict=True):
            if isinstance(wanted, list):
                drawn[name] = wanted[min(int(u * len(wanted)), len(wanted) - 1)]
            else:
                value = wanted[0] * (wanted[1] / wanted[0]) ** u
                drawn[name] = round(value) if name in self.whole else value
        return drawn

    def words(self) -> dict[str, str]:
        return {
            name: f"one of {', '.join(map(str, wanted))}"
            if isinstance(wanted, list)
            else f"{wanted[0]:g} to {wanted[1]:g}, log-uniform"
            for name, wanted in self.wanted.items()
        }


class _Unseen:
    """Progress of a run that may lose: that it goes on, and nothing of how it does."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def say(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[OnRound]:
        with self._shown.rounds("tuning", total) as on_round:
            yield lambda round, point: on_round(round, {})


def _open(
    out: str | Path | None, name: str, seed: int | None, about: dict[str, Any]
) -> tuple[Ledger, Path | None]:
    """The ledger, in a folder that holds nothing else."""
    if out is None and seed is None:
        out = fresh_folder(name)
    if out is None:
        return Ledger(), None
    folder = Path(out)
    settings = folder / CHECKPOINT / SETTINGS
    with hold(folder):
        if settings.exists() or (folder / LEDGER).exists():
            raise TacitError(
                f"{folder} already holds a run, or a tuning that was cut off and is spent: choose "
                "another folder, and add up what both cost"
            )
        make_folder(settings.parent)
        # So that `train` keeps out of this folder as well, from now on.
        replace(settings, json.dumps({"settings": {"tuning": about}, "key": 0}, indent=2).encode())
    return Ledger.at(folder / LEDGER), folder
