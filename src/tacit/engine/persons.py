"""Those who are asked where persons are the unit of privacy: every person of every task.

What a person contributes is computed from its own rows and the billboard, as a task's contribution
is where tasks are the unit: by the same function, lifted over persons in chunks whose shapes say
nothing about others. Where it is one gradient there is a shorter way (`engine.gradients`). Whatever
a person draws (shuffles of its rows, masks of dropout layers) is hashed from who it is: its place
among the others would move if one of them left. Persons keep no state. Tasks do: theirs learns from
all of their own rows, and nothing of it leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Rows
from tacit.engine.course import Public
from tacit.engine.gradients import Gradients
from tacit.engine.rounds import Sent
from tacit.engine.tasks import Tasks
from tacit.local.batches import Batches, all_rows, draw
from tacit.local.chunks import Chunk
from tacit.local.threads import side_by_side, threads_for
from tacit.methods.base import Board
from tacit.privacy.grid import Grid
from tacit.privacy.sampling import Poisson
from tacit.randomness import name_key, scramble

Work = tuple[Tensor, list[Chunk]]


class Persons:
    """All persons of the tasks whose rows are here."""

    def __init__(self, tasks: Tasks, *, all_work: bool = False, apart: bool = False) -> None:
        """With `all_work`, persons who are not drawn work for nothing: others see how long a task
        on a machine of its own takes, and must not see how many it drew. With `apart`, each
        person's vector comes by itself, and none as part of a sum."""
        self.tasks, self.course, self._all_work = tasks, tasks.course, all_work
        shape = tasks.federation.input_shape
        self._gradients = None if apart else Gradients.of(tasks.course, shape)
        self._take(tasks.federation.train)

    def _take(self, rows: Rows) -> None:
        self._rows, self._task, self._who = by_person(rows)
        self._counts = self._rows.counts
        self._last: tuple[Tensor, Grid, Work] | None = None

    def ask(self, board: Board, cohort: Tensor) -> Iterator[Sent]:
        """What persons of these tasks contribute; then tasks learn for themselves."""
        tasks, public = self.tasks, self.course.public(board)
        yield from self.contribute(board, public, cohort)
        if not self.course.votes_at(board.round) and tasks.learns:
            for chunk, states, _ in tasks.train(board, public, cohort):
                tasks.store.put(chunk.tasks, states)

    def contribute(
        self, board: Board, public: Public, cohort: Tensor, grid: Grid | None = None
    ) -> Iterator[Sent]:
        """What persons of these tasks contribute; those who are not drawn, nothing.

        `grid` has the integers of whoever sums; by default those of the channel.
        """
        tasks, course, method = self.tasks, self.course, self.tasks.method
        client = course.client(course.stage_at(board.round), public)
        votes = course.votes_at(board.round)
        chance = self.tasks.randomness.key("layers", board.round)
        shuffle = self.tasks.randomness.key("batches", board.round)

        def step(chunk: Chunk) -> Sent:
            some, task = chunk.filled, self._task[chunk.filled]
            with threads_for(tasks.in_flight(chunk), len(some)):
                own = self._keys(some)
                if votes:
                    batches = self._told(some)
                elif method.rows is None:
                    batches = all_rows(self._rows, some, chunk.width, method.steps)
                else:
                    keys = scramble(shuffle, own)
                    batches = draw(self._rows, some, method.steps, method.rows, keys)
                places, holds = course.places[task], course.holds[task]
                fresh = course.newcomers(public)(places)
                states = {name: value.expand(len(some), -1) for name, value in fresh.items()}
                own = scramble(chance, own)
                _, sent, reach = client((states, batches, places, holds, own))
                if self._all_work:  # what is not finite counts as nothing
                    sent = torch.where(drawn[some].unsqueeze(1), sent, torch.nan)
                return Sent(task, sent, len(chunk.tasks), reach=reach)

        grid = course.channel.grid_at(board.round) if grid is None else grid
        assert grid is not None  # persons contribute to what is bounded, always
        short = None if votes else self._gradients
        with threads_for(len(self._task)):
            inside = self._of(cohort)
            drawn = inside & self._drawn(board.round)
            working, few = self._divided(inside if self._all_work else drawn, short, grid)
        if short is not None:
            yield from short.contribute(board, self._rows, few, drawn, grid)
        width = 1 if votes else method.rows
        each = tasks.chunks(working, self._rows, width, of=course.channel.tasks)
        yield from side_by_side(step, each, tasks.abreast)

    def _divided(self, at_work: Tensor, short: Gradients | None, grid: Grid) -> Work:
        """Those who go the long way, and chunks of those who go the short one: the same as before
        where everybody takes part in every round."""
        if short is None:
            return at_work.nonzero().squeeze(1), []
        last = self._last
        if last is None or last[1] != grid or not torch.equal(at_work, last[0]):
            everyone = at_work.nonzero().squeeze(1)
            meant = short.takes(self._counts[everyone], grid)
            few = list(short.chunks(self._rows, everyone[meant]))
            self._last = last = at_work, grid, (everyone[~meant], few)
        return last[2]

    def _of(self, cohort: Tensor) -> Tensor:
        """Who belongs to one of these tasks."""
        asked = torch.zeros(len(self.course.names), dtype=torch.bool, device=cohort.device)
        asked[cohort] = True
        return asked[self._task]

    def _drawn(self, round: int) -> Tensor:
        """Who contributes: every person by itself, at the sampler's rate."""
        sampler, randomness = self.course.channel.sampler, self.course.randomness
        if isinstance(sampler, Poisson) and sampler.rate < 1:
            names, counts = self.course.names, torch.bincount(self._task).tolist()
            chance = [
                randomness.uniform("persons", round, name_key(names[task]), count)
                for task, count in enumerate(counts)
            ]
            uniform = torch.cat([torch.from_numpy(some) for some in chance])
            return uniform.to(self._task.device) <= sampler.rate
        return torch.ones_like(self._task, dtype=torch.bool)

    def _keys(self, persons: Tensor) -> Tensor:
        """A number for each, from its task's name and who it is: for shuffles and masks."""
        return scramble(self.tasks.federation.keys[self._task[persons]], self._who[persons])

    def _told(self, persons: Tensor) -> Batches:
        """What a person votes with: the mean of its own values in every column without a unit."""
        unscaled = self.tasks.federation.unscaled
        assert unscaled is not None
        values = unscaled.values(self._rows)
        known = ~values.isnan()
        counts = self._rows.counts
        person = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        total = values.new_zeros(len(counts), len(unscaled))
        total.index_add_(0, person, torch.where(known, values, 0.0))
        many = torch.zeros_like(total).index_add_(0, person, known.double())
        x = (total / many)[persons].unsqueeze(1)  # NaN where there is no value
        return Batches(x, x[..., 0], torch.ones_like(x[..., 0]))

    def read(self, board: Board) -> None:
        before = self.tasks.federation
        self.tasks.read(board)
        if self.tasks.federation is not before:
            self._take(self.tasks.federation.train)

    def look(self, *, closely: bool = False) -> dict[str, Any]:
        return self.tasks.look(closely=closely)

    def finish(self) -> bool:
        return self.tasks.finish()

    @property
    def notes(self) -> dict[str, Any]:
        return self.tasks.notes

    def remember(self, notes: dict[str, Any]) -> None:
        self.tasks.remember(notes)


def by_person(rows: Rows) -> tuple[Rows, Tensor, Tensor]:
    """The same rows, one person after the other, task by task; the task and the key of each."""
    assert rows.persons is not None
    counts = rows.counts
    task = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    order = torch.argsort(rows.persons, stable=True)
    order = order[torch.argsort(task[order], stable=True)]
    pairs = torch.stack([task[order], rows.persons[order]], dim=1)
    found, sizes = torch.unique_consecutive(pairs, dim=0, return_counts=True)
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return Rows(rows.x[order], rows.y[order], offsets), *found.T.contiguous().unbind()
