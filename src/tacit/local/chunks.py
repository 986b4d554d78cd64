"""Which tasks are computed together, so that none of them can tell who else is there.

Tasks run in chunks, as one batch of tensors. The last bits of floating-point results depend on the
shapes of such a batch: another number of tasks, or of rows, is another order of additions. So a
chunk's shape is fixed by what is public and by the task itself:

* all tasks of a chunk have the same `width`, the number of their rows rounded up (or the size of a
  batch). A task that gains a row moves to another chunk, and the others never see it;
* every chunk has the same number of slots, from the expected cohort and the memory of the machine.
  Slots that nobody needs are filled with repetitions, and what they compute is thrown away.

What is left is the *place* of a task in its chunk, which depends on who was drawn. Operations that
treat all slots alike give the same bits in each. Vectorised loops handle the last few numbers of a
tensor in another way, and threads cut a tensor into pieces that end in such a remainder. So the
number of slots is a multiple of `SLOTS`, more than a vector holds, for every thread. One slot alone
has one place only. Matrix products are asked to give the same bits wherever in memory their
operands lie (`tacit/__init__.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

SLOTS = 16
"""No vector of a CPU holds more single-precision numbers."""
FEW = 4
"""So few tasks are computed one after the other: mapping them over a chunk would not pay."""
NARROW = 16
"""Tasks with fewer rows are filled up to so many."""
WIDTHS = 4
"""How many different widths a ragged cohort is taken to have."""


class Chunk(NamedTuple):
    """Some tasks of one width, and the same tasks with fillers behind them."""

    tasks: Tensor
    filled: Tensor
    width: int


def widths_of(counts: Tensor) -> Tensor:
    """Row counts rounded up to 16, 32, 64, 96, 128, 192, 256, …

    Every width is traced by itself: where rows are few that costs more than filler does.
    """
    fraction, exponent = torch.frexp(counts.clamp(min=NARROW).double())
    power = torch.ldexp(torch.ones_like(fraction), exponent - (fraction == 0.5).int())
    middle = 0.75 * power
    return torch.where((power >= 8 * NARROW) & (counts <= middle), middle, power).long()


def slots_for(expected: float, of: int, limit: int, *, ragged: bool = False) -> int:
    """How many tasks a chunk holds: from public numbers alone.

    `expected` tasks of `of` are drawn, `limit` of them fit near the cache or into memory. `ragged`
    cohorts fall apart into chunks of several widths.
    """
    # A cohort is rarely larger than this, so one chunk is enough if memory is.
    most = expected + 1.5 * math.sqrt(max(0.0, expected * (1 - expected / of)))
    if most <= FEW or limit < FEW:
        return 1
    if ragged:
        most /= WIDTHS
    parts = math.ceil(most / max(limit, SLOTS))
    return SLOTS * math.ceil(most / parts / SLOTS)


def chunks(tasks: Tensor, widths: Tensor | int, slots: Callable[[int], int]) -> Iterator[Chunk]:
    """The tasks, width by width, `slots(width)` at a time."""
    if isinstance(widths, int):
        widths = torch.full_like(tasks, widths)
    for width in torch.unique(widths).tolist():
        size = slots(width)
        for some in tasks[widths == width].split(size):
            yield Chunk(some, torch.cat([some, some[:1].expand(size - len(some))]), width)
