"""The rows each task trains on in a round, gathered for many tasks at once.

A task's rows are shuffled by hashing (key, task, row): the order depends on nothing but the task
itself and the round, so a silo alone draws exactly what the simulation draws for it.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def steps(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows, targets and weights of one step after the other."""
        return zip(self.x.unbind(), self.y.unbind(), self.weight.unbind(), strict=True)


def draw(rows: Rows, tasks: Tensor, steps: int, batch: int | None, key: int) -> Batches:
    """Batches of every task in `tasks`, stacked: [tasks, steps, batch, ...].

    With `batch=None` every step sees all rows (gathered once, not copied per step). Otherwise a
    task goes through its shuffled rows batch after batch, starting over at the end; a task with no
    more rows than a batch uses all of them in every step.
    """
    counts = rows.count(tasks).unsqueeze(1)
    device = counts.device
    if batch is None:
        least, most = (int(bound) for bound in counts.aminmax())
        place = torch.arange(most if least == most else round_up(most), device=device)
        weight = (place < counts) / counts
        position = (place % counts).unsqueeze(0)
    else:
        column = torch.arange(batch, device=device)
        through = torch.arange(steps * batch, device=device).reshape(steps, 1, batch)
        small = counts <= batch
        weight = torch.where(small, column < counts, True) / counts.clamp(max=batch)
        position = _shuffled(rows, tasks, torch.where(small, column, through) % counts, key)
    # Steps lead in memory, so that the rows of one step, of all tasks, lie together.
    index = rows.offsets[tasks].unsqueeze(1) + position
    x, y = rows.x[index], rows.y[index]
    return Batches(
        x.expand(steps, *x.shape[1:]).transpose(0, 1),
        y.expand(steps, *y.shape[1:]).transpose(0, 1),
        weight.to(x.dtype).expand(steps, *weight.shape).transpose(0, 1),
    )


def round_up(number: int) -> int:
    """To 1, 2, 3, 4, 6, 8, 12, 16, …: ragged sizes become few, and so does what must be traced."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def _shuffled(rows: Rows, tasks: Tensor, position: Tensor, key: int) -> Tensor:
    """Positions [.., task, ..] in file order -> in each task's own shuffled order of this round."""
    counts = rows.count(tasks)
    begin = counts.cumsum(0) - counts
    rank = torch.repeat_interleave(torch.arange(len(tasks), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - begin[rank]
    order = torch.argsort(scramble(key, tasks[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    return row[order][begin.unsqueeze(1) + position]
