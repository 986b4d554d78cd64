"""Persons whose contribution is one gradient at the billboard: many more of them at a time.

Where a method sends a single plain step and the model is a chain of linear layers, what a person
sends is known by its factors (`privacy.factors`): inputs and errors of its rows. Those are computed
for rows, whoever they belong to, and neither a person's gradient nor filler up to 16 rows is made.
Everything else goes the long way of `Persons`: other methods and models, persons with many rows.

Rows of a person lie in chunks as tasks do in `local.chunks`, with shapes that say nothing about
others, and every row gives the same bits in every place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.data.federation import Rows
from tacit.engine.course import Course
from tacit.engine.rounds import Sent
from tacit.engine.tasks import CHUNK_COSTS
from tacit.local.batches import all_rows
from tacit.local.chain import Chain
from tacit.local.chunks import SLOTS, Chunk, chunk_bytes, chunks, slots_for
from tacit.local.threads import abreast_for, side_by_side, threads_for
from tacit.methods.base import Board, TrainedMethod
from tacit.privacy.factors import FINE, FINEST, MOST, ROWS, WIDEST, Factors, Layer
from tacit.privacy.grid import Grid

POWERS = 2 ** torch.arange(ROWS.bit_length())
"""Rows of persons are filled up to so many."""
BYTES = 8
"""Of every number of a row that is in work. Larger chunks than those of tasks are faster: there are
many small operations on the lengths of rows."""


@dataclass(frozen=True)
class Gradients:
    """Makes the contributions of persons with few rows."""

    course: Course
    chain: Chain
    method: TrainedMethod
    origin: str
    """The tensor of the billboard that is the model."""
    numbers: int
    """In work for every row."""

    @classmethod
    def of(cls, course: Course, shape: tuple[int, ...]) -> Gradients | None:
        """For rows of this shape; None where contributions are something else."""
        method, channel, model = course.method, course.channel, course.model
        origin, chain = method.plain_step, Chain.of(model, shape)
        if origin is None or chain is None or not isinstance(method, TrainedMethod):
            return None
        wide = max(max(layer.in_features, layer.out_features) for layer in chain.linear)
        plain = channel.relation is None and channel.moments is None and course.per_holder is None
        plain = plain and model.steepest is None and channel.curator is None
        plain = plain and channel.task_clip is None  # a chunk may have persons of several tasks
        numbers = math.prod(shape) + course.activations
        return cls(course, chain, method, origin, numbers) if plain and wide <= WIDEST else None

    def takes(self, counts: Tensor, grid: Grid) -> Tensor:
        """Whether persons with so many rows are meant, where sums are on this grid."""
        fine = FINE <= grid.fraction <= FINEST
        return (counts <= min(ROWS, self.method.rows or ROWS)) & fine

    def contribute(
        self, board: Board, rows: Rows, persons: list[Chunk], drawn: Tensor, grid: Grid
    ) -> Iterator[Sent]:
        """What these persons contribute, in sums on the grid; those who are not drawn, nothing."""
        w, rate, channel = board[self.origin], self.method.rate(board), self.course.channel

        def step(chunk: Chunk) -> tuple[Tensor, int]:
            some, shape = chunk.filled, (len(chunk.filled), chunk.width)
            with threads_for(len(some) * chunk.width * self.numbers, len(some)):
                x, y, weight = (side.flatten(0, 2) for side in all_rows(rows, some, chunk.width))
                # What is not finite counts as nothing.
                weight = torch.where(drawn[some].repeat_interleave(chunk.width), weight, torch.nan)
                found = self.chain.factors(w, x, y, -rate * weight)
                layers = (
                    Layer(a.unflatten(0, shape), e.unflatten(0, shape), layer.bias is not None)
                    for (a, e), layer in zip(found, self.chain.linear, strict=True)
                )
                total, lost = Factors(tuple(layers)).summed(channel, grid, len(chunk.tasks))
                return total, lost - int((~drawn[chunk.tasks]).sum())

        for total, dropped in side_by_side(step, persons, abreast_for(rows.x)):
            channel.dropped += dropped
            yield Sent(persons[0].tasks[:0], total.unsqueeze(0), 1, bounded=True)

    def chunks(self, rows: Rows, persons: Tensor) -> Iterator[Chunk]:
        """These persons, in chunks that are computed at a time."""
        powers = POWERS.to(persons.device)
        widths = powers[torch.bucketize(rows.count(persons), powers)]
        return chunks(persons, widths, self._slots)

    def _slots(self, width: int) -> int:
        """How many persons with so many rows are computed at a time: from public numbers alone."""
        channel, numbers = self.course.channel, width * self.numbers
        limit = min(MOST, max(SLOTS, chunk_bytes(self.course.device) // (BYTES * numbers)))
        return slots_for(
            channel.sampler.expected(channel.tasks),
            channel.tasks,
            limit,
            ragged=True,
            overhead=CHUNK_COSTS[self.course.device.type] // numbers,
        )
