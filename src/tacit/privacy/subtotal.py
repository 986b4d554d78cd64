"""What a task on a machine of its own sends where persons contribute: the sum over its persons.

    persons ─► drop non-finite ─► clip to γ, on a grid ─► sum (exact) ─► (+ its own noise) ─► out

These are the steps of `privacy.channel`, in the same order and on the same grid, so that whoever
adds up what tasks send has the very sum of a simulation. A task with more persons than there is
room for in a sum (`Channel.room`) sends what fits: no number wraps around unseen. Where whole tasks
are hidden, too, its sum is shortened before it adds noise (`Channel.held`).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tacit.privacy.bounds import Bounded
from tacit.privacy.channel import Channel
from tacit.privacy.grid import Grid


def subtotal(
    channel: Channel,
    task: str,
    round: int,
    size: int,
    grid: Grid,
    contributions: Iterable[tuple[Tensor, Tensor, int]],
) -> Tensor:
    """int64 [size] in steps of the grid; of each contribution [k, ...] the first so many count.
    Beside it is the place [k] of the task: where every task has sums of its own, it decides which.

    Integers are sums of persons that were bounded already (`privacy.factors`).
    """
    total, place = torch.zeros(size, dtype=torch.int64), channel.place
    assert channel.of_persons
    parts = channel.parts(size, grid)
    for vectors, tasks, count in contributions:
        if not vectors.is_floating_point():
            total += vectors[:count].sum(dim=0).cpu()
            continue
        bounded = Bounded.of(vectors, channel.clip, channel.moments).over(parts)
        total += bounded.first(count).summed(place, tasks[:count], grid).cpu()
    held = channel.held(total.numpy(), grid)
    if channel.noisy_tasks:
        held = held + channel.noise_of(task, round, grid, size)
    return torch.from_numpy(held)
