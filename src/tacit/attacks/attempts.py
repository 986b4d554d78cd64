"""The three attacks of `tacit.audit`, each on a run that is ready to start."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tacit.attacks.audited import Audit, Promised
from tacit.attacks.canaries import WithCanaries
from tacit.attacks.neighbours import persons_apart, tasks_apart
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.privacy import Booked, Ledger, Privacy
from tacit.privacy.attack import Worlds, scores, stage, worst_worlds
from tacit.privacy.channel import Channel
from tacit.privacy.guesses import guess, told_apart
from tacit.privacy.observer import hides

RELEASES = 200_000
"""About so many are made, unless it is said how many runs."""
FEWEST, MOST = 2000, 20_000
"""Runs, unless it is said how many."""
ON_SHARES = 10
"""Times fewer where servers sum: each release is a protocol of its own."""
ROUNDING = 1e-9
"""Clips that adding up in double precision may be off."""

KNOWS_OTHERS = "the observer is all other tasks together, and knows what they sent and when"
OUTSIDE = (
    "the observer is everybody outside the target's own task, all of them together, and knows what "
    "all other {unit}s sent and when, even those of that task"
)
SECRET_COHORT = "the observer does not know whether the target was in a Poisson cohort"
PUBLIC_COHORT = "the observer knows in which rounds the target took part"
ALL_RELEASES = "every release is seen as it was published, none is missed"
WORST = "the target sends the most that the clip lets through, in every cohort it is in"
COLLUDING = "all servers but one pool what they know, their noise included"
BESIDE_PERSONS = "the ε that is promised to whole tasks beside that is not attacked"
OTHERS_NOISE = "all tasks but the target's own pool what they know, their noise included"


class How(NamedTuple):
    """What all attacks on a run share."""

    privacy: Privacy
    """What is promised, with its δ."""
    runs: int | None
    """How often the channel is run, where it is; None for what is usual."""
    seed: int | None
    confidence: float
    progress: Progress


def _assumed(channel: Channel, *more: str) -> tuple[str, ...]:
    assert channel.release is not None
    pooled = (COLLUDING,) if channel.curator is not None else ()
    return (
        OUTSIDE.format(unit=channel.release.unit) if channel.of_persons else KNOWS_OTHERS,
        SECRET_COHORT if hides(channel.sampler) else PUBLIC_COHORT,
        ALL_RELEASES,
        *(pooled or ((OTHERS_NOISE,) if channel.noisy_tasks else ())),
        *((BESIDE_PERSONS,) if channel.task_clip is not None else ()),
        *more,
    )


def coming(channel: Channel, rounds: int) -> Counter[Booked]:
    """The releases that a run is about to make."""
    releases = [channel.release_at(round) for round in range(rounds)]
    return Counter(one for one in releases if one is not None)


def many_runs(channel: Channel, booked: Sequence[float] | None, rounds: int, how: How) -> Audit:
    """One worst task (or person), there or not, in many runs of the channel alone.

    `booked` is the noise of every release of a run that was made, in their order.
    """
    if booked is not None:
        assert channel.release is not None
        loudest = max(booked)
        release = dataclasses.replace(channel.release, noise_multiplier=loudest)
        weights = tuple(loudest / noise for noise in booked)
        channel = dataclasses.replace(channel, release=release, weights=weights)
        rounds = len(booked)
    channel = stage(channel)
    runs = how.runs or _runs(channel, rounds)
    worlds = worst_worlds(channel, how.privacy.neighbours)
    return Audit(
        "many runs",
        Promised.of(coming(channel, rounds), how.privacy, channel.sampler),
        _bound(channel, worlds, rounds, runs, how),
        how.confidence,
        {"runs": runs, "releases": runs * rounds},
        _assumed(channel, WORST),
    )


def one_run(simulation: Simulation, canaries: int, how: How) -> Audit:
    """The whole run, with canaries put in by fair coins."""
    course, privacy = simulation.course, how.privacy
    lengths = tuple(course.size_at(round) for round in range(course.length))
    coins = np.random.default_rng(how.seed).random(canaries) < 0.5
    homes = len(simulation.federation)
    channel = WithCanaries.of(
        simulation.channel, coins, lengths, privacy.neighbours, homes, simulation.device
    )
    promised = Promised.of(coming(channel, course.length), privacy, channel.sampler)
    course.channel = channel
    with how.progress.rounds("one run with canaries", course.length) as on_round:
        simulation.run(on_round=on_round)
    assert privacy.delta is not None
    found = guess(channel.scores, coins, privacy.delta, how.confidence)
    return Audit(
        "one run",
        promised,
        found.epsilon_lower,
        how.confidence,
        {"canaries": found.canaries, "guesses": found.guesses, "right": found.right},
        _assumed(
            channel,
            f"{canaries} canaries were added by fair coins, as {privacy.unit}s without data that "
            "send the most that the clip lets through",
        ),
    )


def neighbour(simulations: tuple[Simulation, Simulation], how: How) -> Audit:
    """The first round of two federations that differ in one task (or in one person), from what is
    sent in it."""
    first = simulations[0]
    differ = persons_apart if first.course.of_persons else tasks_apart
    apart = differ(*simulations)
    channel = dataclasses.replace(stage(first.channel), tasks=len(apart.worlds.a))
    release = channel.release_at(0)
    assert release is not None
    claimed = release.replaced if apart.neighbours == "replace" else 1.0
    broken = ""
    if apart.others:
        broken = apart.others
    elif apart.moved > claimed + ROUNDING:
        broken = f"the sum moved by {apart.moved:.3g} clips, and {claimed:.3g} are claimed"
    runs = how.runs or _runs(channel, 1)
    return Audit(
        "neighbour",
        Promised.of({release: 1}, how.privacy, channel.sampler, apart.neighbours),
        _bound(channel, apart.worlds, 1, runs, how),
        how.confidence,
        {"releases": runs, **apart.tries, "sum_moved": apart.moved},
        _assumed(
            channel,
            f"two federations differ in {apart.target} only; the first round of both is compared, "
            "from the same start and with the same key",
        ),
        broken,
    )


def noise_booked(ledger: Ledger) -> list[float]:
    """The noise of every round's release in the books."""
    if any(entry.get("kind") == "tuning" for entry in ledger.entries):
        raise TacitError(
            "this run was tuned, and its promise covers runs that nobody saw: give the experiment "
            "with the settings that were chosen, without [tune]"
        )
    # What was released before the run, such as a relation, is not a sum of the run's channel.
    booked = [entry["noise_multiplier"] for entry in ledger.entries if entry["round"] >= 0]
    if not booked:
        raise TacitError("the ledger is empty: nothing was released, so there is nothing to attack")
    return booked


def _runs(channel: Channel, rounds: int) -> int:
    fewer = 1 if channel.curator is None else ON_SHARES
    return max(FEWEST // fewer, min(MOST // fewer, RELEASES // (fewer * rounds)))


def _bound(channel: Channel, worlds: Worlds, rounds: int, runs: int, how: How) -> float:
    assert how.privacy.delta is not None
    with how.progress.rounds("attacking the channel", runs) as on_round:
        on_run: Callable[[int], None] = lambda run: on_round(run, {})  # noqa: E731
        found, coins = scores(channel, worlds, rounds, runs, how.seed, on_run)
    return told_apart(found, coins, how.privacy.delta, how.confidence)
