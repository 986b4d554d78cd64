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
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

SLOTS = 16
"""No vector of a CPU holds more single-precision numbers. With AVX-512 two are taken at a time, and
a few functions treat an odd one in another way: "What remains" in docs/privacy.md."""
FEW = 4
"""So few tasks are computed one after the other: mapping them over a chunk would not pay."""
NARROW = 16
"""Tasks with fewer rows are filled up to so many."""
WIDTHS = 2
"""How many different widths a ragged cohort is taken to have."""
CPU_CHUNK_BYTES = 32 << 20
"""Working memory of one chunk of tasks; small chunks stay near the cache and are also faster."""
GPU_SHARE = 8
"""One chunk takes this part of a GPU's memory: of all of it, not of what other data leave free."""


class Chunk(NamedTuple):
    """Some tasks of one width, and the same tasks with fillers behind them."""

    tasks: Tensor
    filled: Tensor
    width: int


def chunk_bytes(device: torch.device) -> int:
    """Working memory of one chunk: a property of the machine, never of the data."""
    if device.type != "cuda":
        return CPU_CHUNK_BYTES
    return torch.cuda.get_device_properties(device).total_memory // GPU_SHARE


def widths_of(counts: Tensor, *, traced: bool = True) -> Tensor:
    """Row counts rounded up to 16, 32, 64, 96, 128, 192, 256, …; 24 and 48 too where not `traced`.

    Every width is traced by itself: where rows are few that costs more than filler does.
    """
    fraction, exponent = torch.frexp(counts.clamp(min=NARROW).double())
    power = torch.ldexp(torch.ones_like(fraction), exponent - (fraction == 0.5).int())
    middle = 0.75 * power
    halved = power >= (8 if traced else 2) * NARROW
    return torch.where(halved & (counts <= middle), middle, power).long()


@lru_cache(maxsize=1024)
def slots_for(
    expected: float, of: int, limit: int, *, ragged: bool = False, overhead: int = 16
) -> int:
    """How many tasks a chunk holds: from public numbers alone.

    `expected` tasks of `of` are drawn, `limit` of them fit near the cache or into memory, and every
    chunk costs as much as `overhead` slots besides. Larger chunks have more filler, smaller ones
    are more. `ragged` cohorts fall apart into chunks of several widths.
    """
    if expected <= FEW or limit < FEW:
        return 1
    spread = math.sqrt(max(0.0, expected * (1 - expected / of)))
    if ragged:
        expected, spread = expected / WIDTHS, 0.0
    most = SLOTS * math.ceil(min(expected + 3 * spread, max(limit, SLOTS)) / SLOTS)
    sizes = range(SLOTS, most + 1, SLOTS)
    return min(sizes, key=lambda size: (size + overhead) * _needed(expected, spread, size))


def _needed(expected: float, spread: float, size: int) -> float:
    """Chunks of this size that a cohort fills: the sum of the chances that it needs one more."""
    if not spread:
        return math.ceil(expected / size)
    most = math.ceil((expected + 6 * spread) / size)
    away = ((number * size + 0.5 - expected) / spread for number in range(most))
    return sum(math.erfc(deviations / math.sqrt(2)) / 2 for deviations in away)


def chunks(tasks: Tensor, widths: Tensor | int, slots: Callable[[int], int]) -> Iterator[Chunk]:
    """The tasks, width by width, `slots(width)` at a time."""
    if isinstance(widths, int):  # one by itself need not be looked for
        alike = [(widths, tasks)] if len(tasks) else []
    else:
        found = torch.unique(torch.unique_consecutive(widths)).tolist()  # mostly alike
        alike = [(width, tasks[widths == width]) for width in found]
    for width, those in alike:
        size = slots(width)
        for some in those.split(size):
            yield Chunk(some, torch.cat([some, some[:1].expand(size - len(some))]), width)
