"""The rows each task trains on in a round, gathered for many tasks at once.

A task's rows are shuffled by hashing (key, name, row): the order depends on nothing but the task
itself and the round, so a silo alone draws exactly what the simulation draws for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.data.federation import Rows
from tacit.randomness import scramble


class Batches(NamedTuple):
    """Rows for a number of local steps; the first axis is the step.

    `weight` sums to one in each step. Rows of weight zero are repeats that fill the batch of a
    task with fewer rows: they count neither in a loss nor in BatchNorm's statistics.
    """

    x: Tensor
    y: Tensor
    weight: Tensor

    def steps(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows, targets and weights of one step after the other."""
        return zip(self.x.unbind(), self.y.unbind(), self.weight.unbind(), strict=True)


def draw(rows: Rows, tasks: Tensor, steps: int, batch: int, keys: Tensor) -> Batches:
    """Batches of every task in `tasks`, stacked: [tasks, steps, batch, ...].

    A task goes through its rows batch after batch, in the order that its own key [tasks] gives,
    starting over at the end. A task with no more rows than a batch uses all of them in every step.
    """
    counts = rows.count(tasks).unsqueeze(1)
    column = torch.arange(batch, device=counts.device)
    through = torch.arange(steps * batch, device=counts.device).reshape(steps, 1, batch)
    small = counts <= batch
    weight = torch.where(small, column < counts, True) / counts.clamp(max=batch)
    position = _shuffle(counts.squeeze(1), torch.where(small, column, through) % counts, keys)
    return _gather(rows, tasks, position, weight, steps)


def all_rows(rows: Rows, tasks: Tensor, width: int, steps: int = 1) -> Batches:
    """All rows of every task in every step: [tasks, steps, width, ...].

    They are gathered once, not copied for each step. A task with fewer than `width` rows repeats
    them with weight zero; `local.chunks` sees to it that `width` is the task's own.
    """
    counts = rows.count(tasks).unsqueeze(1)
    place = torch.arange(width, device=counts.device)
    weight = (place < counts) / counts.clamp(min=1)
    return _gather(rows, tasks, (place % counts.clamp(min=1)).unsqueeze(0), weight, steps)


def _gather(rows: Rows, tasks: Tensor, position: Tensor, weight: Tensor, steps: int) -> Batches:
    # Steps lead in memory, so that the rows of one step, of all tasks, lie together.
    index = rows.offsets[tasks].unsqueeze(1) + position
    x, y = (
        side.index_select(0, index.flatten()).unflatten(0, index.shape) for side in (rows.x, rows.y)
    )
    return Batches(
        x.expand(steps, *x.shape[1:]).transpose(0, 1),
        y.expand(steps, *y.shape[1:]).transpose(0, 1),
        weight.to(x.dtype).expand(steps, *weight.shape).transpose(0, 1),
    )


def _shuffle(counts: Tensor, position: Tensor, keys: Tensor) -> Tensor:
    """Positions [.., task, ..] in file order -> in each task's own shuffled order."""
    begin = counts.cumsum(0) - counts
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - begin[rank]
    order = torch.argsort(scramble(keys[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    return row[order][begin.unsqueeze(1) + position]
