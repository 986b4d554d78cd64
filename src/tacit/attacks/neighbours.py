"""What is sent in the first round of two federations that differ in one task, or in one person.

Everybody is asked, and nobody is drawn: what is compared is what would be sent. Others must send
the very same bits, and the sum must not move by more than is claimed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.engine.persons import Persons
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.privacy.attack import Worlds
from tacit.privacy.observer import moves
from tacit.privacy.sampling import Everyone, Neighbours


class Apart(NamedTuple):
    """How far two federations are apart in their first round."""

    worlds: Worlds
    target: str
    """Who differs, in words."""
    neighbours: Neighbours
    """What a difference like this one is."""
    moved: float
    """Clips that the sum moved by."""
    tries: dict[str, float]
    others: str
    """What of the others moved, in words; nothing of them may."""


def tasks_apart(first: Simulation, second: Simulation) -> Apart:
    """A row more, or less, in one task: other data in its place."""
    channel, target = first.channel, _differing(first.federation, second.federation)
    sent = []
    for each in (first, second):
        tasks, vectors = _first_round(each)
        ordered = torch.zeros(len(each.federation), vectors.shape[1])
        ordered[tasks] = vectors / channel.unit
        sent.append(ordered)
    every = torch.arange(len(sent[0]))
    moved = moves(channel, sent[1], every) - moves(channel, sent[0], every)
    others = float(np.linalg.norm(np.delete(moved, target, axis=0).sum(axis=0)))
    said = f"other tasks' contributions moved by {others:.3g} clips with one task's rows, and must"
    return Apart(
        Worlds(sent[0], sent[1], every, target, there=True),
        f"task {first.federation.names[target]!r}",
        "replace",
        float(np.linalg.norm(moved.sum(axis=0))),
        {"others_moved": others},
        f"{said} not move at all" if others > 0 else "",
    )


def persons_apart(first: Simulation, second: Simulation) -> Apart:
    """A person more, or less, or one with a row more or less.

    Who sent a vector is not asked: what both federations send is what the others sent.
    """
    who, there = _differing_person(first.federation, second.federation)
    if sum(there) == 0:
        raise TacitError(
            "the one who differs is dealt to testing, of which nothing is released: add or take "
            "another one"
        )
    if there[0] == 0:  # who is there only once is there in world A
        first, second, there = second, first, there[::-1]
    channel, sent = first.channel, [_first_round(first), _first_round(second)]
    keys = [_keys(*each) for each in sent]
    common = Counter(keys[0]) & Counter(keys[1])
    left = [_without(one, common) for one in keys]
    changed = max(0, len(left[0]) - there[0]) + max(0, len(left[1]) - there[1])
    places = max(1, len(left[0]), len(left[1]))
    same = np.setdiff1d(np.arange(len(keys[0])), left[0])
    worlds = []
    for (tasks, vectors), own in zip(sent, left, strict=True):
        target = torch.zeros(places, vectors.shape[1])
        target[: len(own)] = vectors[own] / channel.unit
        homes = torch.zeros(places, dtype=torch.int64)
        homes[: len(own)] = tasks[own]
        others = sent[0][1][same] / channel.unit
        worlds.append((torch.cat([target, others]), torch.cat([homes, sent[0][0][same]])))
    (a, homes), (b, at) = worlds
    moved = moves(channel, a[:places], homes[:places]).sum(axis=0)
    neighbours: Neighbours = "replace" if there[1] else "add-remove"
    if there[1] or len(left[1]):
        moved = moved - moves(channel, b[:places], at[:places]).sum(axis=0)
    unit = channel.release.unit if channel.release is not None else "person"
    said = f"contributions of {changed} other {unit}s changed with the rows of one, and must not"
    return Apart(
        Worlds(a, b, homes, 0, bool(there[1]), places),
        f"one {unit} {who}",
        neighbours,
        float(np.linalg.norm(moved)),
        {"others_changed": changed},
        said if changed else "",
    )


def _first_round(simulation: Simulation) -> tuple[Tensor, Tensor]:
    """What everybody would send in the first round, were all asked: whose tasks', and vectors."""
    course = simulation.course
    asked, before = simulation.rounds.strategy.asked, course.channel
    asked = Persons(simulation.tasks, apart=True) if course.of_persons else asked
    everyone = torch.arange(len(simulation.federation), device=simulation.device)
    course.channel = dataclasses.replace(before, sampler=Everyone())
    try:
        sent = list(asked.ask(simulation.board, everyone))
    finally:
        course.channel = before
    tasks = [one.tasks[: one.count].cpu() for one in sent]
    return torch.cat(tasks), torch.cat([one.whole[: one.count].float().cpu() for one in sent])


def _keys(tasks: Tensor, vectors: Tensor) -> list[tuple[int, bytes]]:
    rows = vectors.numpy()
    return [(task, row.tobytes()) for task, row in zip(tasks.tolist(), rows, strict=True)]


def _without(keys: list[tuple[int, bytes]], common: Counter[tuple[int, bytes]]) -> list[int]:
    """The numbers of those that are not among these."""
    left, found = common.copy(), []
    for number, key in enumerate(keys):
        if left[key] > 0:
            left[key] -= 1
        else:
            found.append(number)
    return found


def _differing(one: Federation, other: Federation) -> int:
    """The one task that has a row more, or less, in the other federation."""
    _check_names(one, other)
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


def _differing_person(one: Federation, other: Federation) -> tuple[str, tuple[int, int]]:
    """Where the one person is who has other rows, and how many tasks learn from it in either."""
    _check_names(one, other)
    every = [_rows_of(each, ("train", "validation", "test")) for each in (one, other)]
    changed = {pair for pair in every[0] | every[1] if every[0][pair] != every[1][pair]}
    persons = {person for _, person in changed}
    if len(persons) != 1:
        raise TacitError(
            f"the neighbour has other rows of {len(persons)} persons: add or take all rows of "
            "exactly one"
        )
    learned = [_rows_of(each, ("train",)) for each in (one, other)]
    there = [sum(pair in rows for pair in changed) for rows in learned]
    tasks = ", ".join(repr(one.names[task]) for task in sorted({task for task, _ in changed}))
    return f"of task {tasks}", (there[0], there[1])


def _rows_of(federation: Federation, parts: tuple[str, ...]) -> Counter[tuple[int, int]]:
    """How many rows every person of every task has in these parts."""
    found: Counter[tuple[int, int]] = Counter()
    for part in parts:
        rows = federation.part(part)  # type: ignore[arg-type]
        assert rows.persons is not None
        task = torch.arange(len(federation)).repeat_interleave(rows.counts.cpu())
        found.update(zip(task.tolist(), rows.persons.tolist(), strict=True))
    return found


def _check_names(one: Federation, other: Federation) -> None:
    if list(one.names) != list(other.names):
        raise TacitError("the neighbour must have the same tasks in the same order: change rows")
