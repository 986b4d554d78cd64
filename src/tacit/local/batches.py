"""The rows each task trains on in a round, gathered for many tasks at once.

A task's rows are shuffled by hashing (key, task, row): the order depends on nothing but the task
itself and the round, so a silo alone draws exactly what the simulation draws for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tacit.federation import Rows
from tacit.randomness import scramble


class Batches(NamedTuple):
    """Rows for a number of local steps; the first axis is the step.

    `weight` sums to one in each step. Rows of weight zero are repeats that fill the batch of a
    task with fewer rows; they are real rows of the same task, so batch statistics stay sensible.
    """

    x: Tensor
    y: Tensor
    weight: Tensor

    @property
    def steps(self) -> int:
        return self.x.shape[0]

    def step(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.x[number], self.y[number], self.weight[number]


def draw(rows: Rows, tasks: Tensor, steps: int, batch: int | None, key: int) -> Batches:
    """Batches of every task in `tasks`, stacked: [tasks, steps, batch, ...].

    With `batch=None` every step sees all rows (gathered once, not copied per step). Otherwise a
    task goes through its shuffled rows batch after batch, starting over at the end; a task with no
    more rows than a batch uses all of them in every step.
    """
    counts = rows.count(tasks).unsqueeze(1)
    if batch is None:
        place = torch.arange(int(counts.max()), device=counts.device).expand(len(tasks), -1)
        position, weight = place % counts, (place < counts) / counts
        position = position.unsqueeze(1)
    else:
        column = torch.arange(batch, device=counts.device)
        through = torch.arange(steps * batch, device=counts.device).reshape(1, steps, batch)
        small = (counts <= batch).unsqueeze(2)
        position = torch.where(small, column, through) % counts.unsqueeze(2)
        weight = torch.where(small.squeeze(2), column < counts, torch.ones_like(column).bool())
        weight = weight / counts.clamp(max=batch)
        position = _shuffled(rows, tasks, position, key)
    index = rows.offsets[tasks].reshape(-1, 1, 1) + position
    x, y = rows.x[index], rows.y[index]
    return Batches(
        x.expand(-1, steps, *x.shape[2:]),
        y.expand(-1, steps, *y.shape[2:]),
        weight.to(x.dtype).unsqueeze(1).expand(-1, steps, -1),
    )


def _shuffled(rows: Rows, tasks: Tensor, position: Tensor, key: int) -> Tensor:
    """Positions in file order -> positions in each task's own shuffled order of this round."""
    counts = rows.count(tasks)
    begin = counts.cumsum(0) - counts
    rank = torch.repeat_interleave(torch.arange(len(tasks), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - begin[rank]
    order = torch.argsort(scramble(key, tasks[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    return row[order][begin.reshape(-1, 1, 1) + position]
