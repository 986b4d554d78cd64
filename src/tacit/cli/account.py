"""`tacit account`: noise into ε and back."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

from rich.console import Console

from tacit.cli.options import OPTION, Json
from tacit.errors import TacitError
from tacit.privacy import Privacy, Release, guarantee, sampler_for


def account(
    rounds: Annotated[int, OPTION(help="Number of releases.")],
    noise: Annotated[float | None, OPTION(help="Noise multiplier: report its ε.")] = None,
    epsilon: Annotated[float | None, OPTION(help="ε: report the noise it needs.")] = None,
    rate: Annotated[float, OPTION(help="Chance of a task to be in a cohort.")] = 1.0,
    delta: Annotated[float | None, OPTION(help="δ; or give --tasks for the default.")] = None,
    tasks: Annotated[int | None, OPTION(help="Number of tasks.")] = None,
    neighbours: Annotated[str, OPTION(help="add-remove or replace.")] = "add-remove",
    sampling: Annotated[str, OPTION(help="poisson, in-turn or everyone.")] = "poisson",
    unit: Annotated[str, OPTION(help="task, person or row; --tasks then counts those.")] = "task",
    at_most: Annotated[int, OPTION(help="How many tasks a person may be at.")] = 1,
    tasks_epsilon: Annotated[
        float | None, OPTION(help="With persons or rows: also hide whole tasks, at this ε.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a noise multiplier is worth in ε, or the other way round; no data needed."""
    if delta is None and tasks is None:
        raise TacitError(
            "give --delta, or --tasks for the default δ, 1 / (10 tasks) and at most 0.001"
        )
    if sampling == "in-turn" and tasks is None:
        raise TacitError("cohorts in turn need --tasks, the number they are taken from")
    if rounds < 1:
        raise TacitError(f"--rounds {rounds}: at least 1 is needed")
    number = tasks or 1
    chosen: Any = {"neighbours": neighbours, "sampling": sampling, "tasks_epsilon": tasks_epsilon}
    if unit != "task":
        # Without --tasks nothing but δ depends on how many there are, and that is then given.
        chosen |= {"unit": unit, "persons": max(2, number), "at_most": at_most}
    privacy = Privacy(epsilon=epsilon, delta=delta, noise=noise, **chosen)
    sampler = sampler_for(sampling, rate if sampling != "everyone" else 1.0, number, at_most)
    multiplier = privacy.noise_multiplier(sampler, rounds, number)
    task_clip = privacy.task_clip(multiplier, rounds, number, None)
    booked = Counter(
        Release(sampler.at(round), multiplier, unit=privacy.unit, task_clip=task_clip)
        for round in range(rounds)
    )
    promise = guarantee(
        booked,
        channel="billboard",
        privacy=privacy,
        tasks=number,
        sampler=sampler,
        clip=1.0,
        seeded=False,
    )
    if as_json:
        promised = ("epsilon", "delta", "unit", "neighbours", "sampling")
        keep = (*promised, "accountant", "releases", "noise_multiplier")
        full = promise.to_json()
        both = {} if task_clip is None else {"task_clip": task_clip}
        both |= {key: full[key] for key in ("tasks_epsilon",) if key in full}
        print(json.dumps({key: full[key] for key in keep} | both))
    else:
        clipped = "" if task_clip is None else f", sums of tasks within {task_clip:.3g} clips"
        Console().print(f"noise multiplier {multiplier:.6g}{clipped}: {promise}", soft_wrap=True)
