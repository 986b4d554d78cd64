"""The three attacks of `tacit.audit`, each on a run that is ready to start."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.attacks.audited import Audit, Promised
from tacit.attacks.canaries import WithCanaries
from tacit.engine.progress import Progress
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.privacy import Booked, Ledger, Privacy
from tacit.privacy.attack import Worlds, scores, stage, worst_worlds
from tacit.privacy.channel import Channel
from tacit.privacy.guesses import guess, told_apart
from tacit.privacy.observer import hides, moves

RELEASES = 200_000
"""About so many are made, unless it is said how many runs."""
FEWEST, MOST = 2000, 20_000
"""Runs, unless it is said how many."""
ON_SHARES = 10
"""Times fewer where servers sum: each release is a protocol of its own."""
ROUNDING = 1e-9
"""Clips that adding up in double precision may be off."""

KNOWS_OTHERS = "the observer is all other tasks together, and knows what they sent and when"
SECRET_COHORT = "the observer does not know whether the target was in a Poisson cohort"
PUBLIC_COHORT = "the observer knows in which rounds the target took part"
ALL_RELEASES = "every release is seen as it was published, none is missed"
WORST_TASK = "the target sends the most that the clip lets through, in every cohort it is in"
COLLUDING = "all servers but one pool what they know, their noise included"


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
    servers = (COLLUDING,) if channel.curator is not None else ()
    return (
        KNOWS_OTHERS,
        SECRET_COHORT if hides(channel.sampler) else PUBLIC_COHORT,
        ALL_RELEASES,
        *servers,
        *more,
    )


def coming(channel: Channel, rounds: int) -> Counter[Booked]:
    """The releases that a run is about to make."""
    releases = [channel.release_at(round) for round in range(rounds)]
    return Counter(one for one in releases if one is not None)


def many_runs(channel: Channel, booked: Sequence[float] | None, rounds: int, how: How) -> Audit:
    """One worst task, there or not, in many runs of the channel alone.

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
        _assumed(channel, WORST_TASK),
    )


def one_run(simulation: Simulation, canaries: int, how: How) -> Audit:
    """The whole run, with canaries put in by fair coins."""
    rounds, length = simulation.course.length, simulation.course.contribution_size
    if any(simulation.course.size_at(round) != length for round in range(rounds)):
        raise TacitError(
            f"canaries send vectors of one length, but those of {simulation.method.called} "
            "differ from round to round: attack the channel in many runs instead (many_runs=…)"
        )
    privacy, coins = how.privacy, np.random.default_rng(how.seed).random(canaries) < 0.5
    channel = WithCanaries.of(
        simulation.channel, coins, length, privacy.neighbours, rounds, simulation.device
    )
    promised = Promised.of(coming(channel, rounds), privacy, channel.sampler)
    simulation.course.channel = channel
    with how.progress.rounds("one run with canaries", rounds) as on_round:
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
            f"{canaries} canaries were added by fair coins, as tasks without rows that send the "
            "most that the clip lets through",
        ),
    )


def neighbour(simulations: tuple[Simulation, Simulation], how: How) -> Audit:
    """The first round of two federations that differ in one task, from what tasks send in it."""
    first, second = simulations
    channel = dataclasses.replace(stage(first.channel), tasks=len(first.federation))
    target = _differing(first, second)
    release = channel.release_at(0)
    assert release is not None
    sent = [_first_round(one) / channel.unit for one in simulations]
    worlds = Worlds(sent[0], sent[1], target, there=True)
    every = torch.arange(channel.tasks)
    moved = moves(channel, sent[1], every) - moves(channel, sent[0], every)
    alone, whole = np.delete(moved, target, axis=0).sum(axis=0), moved.sum(axis=0)
    others, total = float(np.linalg.norm(alone)), float(np.linalg.norm(whole))
    runs = how.runs or _runs(channel, 1)
    broken = ""
    if others > 0:
        broken = (
            f"other tasks' contributions moved by {others:.3g} clips with one task's rows, and "
            "must not move at all"
        )
    elif total > release.replaced + ROUNDING:
        broken = f"the sum moved by {total:.3g} clips, and {release.replaced:.3g} are claimed"
    return Audit(
        "neighbour",
        Promised.of({release: 1}, how.privacy, channel.sampler, "replace"),
        _bound(channel, worlds, 1, runs, how),
        how.confidence,
        {"releases": runs, "others_moved": others, "sum_moved": total},
        _assumed(
            channel,
            f"two federations differ in task {first.federation.names[target]!r} only; the first "
            "round of both is compared, from the same start and with the same key",
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


def _first_round(simulation: Simulation) -> Tensor:
    """What every task would send in the first round, were it asked."""
    board, tasks = simulation.board, len(simulation.federation)
    everyone = torch.arange(tasks, device=simulation.device)
    sent = torch.zeros(tasks, simulation.course.size_at(0))
    for some in simulation.tasks.ask(board, everyone):
        sent[some.tasks[: some.count].cpu()] = some.vectors[: some.count].float().cpu()
    return sent


def _differing(first: Simulation, second: Simulation) -> int:
    """The one task that has a row more, or less, in the other federation."""
    one, other = first.federation, second.federation
    if list(one.names) != list(other.names):
        raise TacitError("the neighbour must have the same tasks in the same order: change rows")
    counts = [
        sum(each.part(part).counts.cpu() for part in ("train", "validation", "test"))
        for each in (one, other)
    ]
    assert isinstance(counts[0], Tensor) and isinstance(counts[1], Tensor)
    changed = (counts[0] != counts[1]).nonzero()[:, 0]
    if len(changed) != 1:
        raise TacitError(
            f"the neighbour has another number of rows in {len(changed)} tasks: add or take a row "
            "of exactly one"
        )
    return int(changed[0])
