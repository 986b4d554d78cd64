"""Which of several models a task keeps, by its own validation rows.

The lowest mean loss among many candidates flatters itself: with a dozen rows some candidate is
always lucky. So the whole act of choosing is rehearsed: rows are drawn with replacement, the best
candidate and the best *safe* candidate (training alone) are chosen on the drawn rows and compared,
row by row, on the rows left out. Only where choosing freely wins more often than it loses does the
task choose freely; otherwise it keeps the safe one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.randomness import scramble

RESAMPLES = 64


def choose(losses: Tensor, offsets: Tensor, safe: Tensor, tasks: Tensor, key: int) -> Tensor:
    """The candidate of each task [k].

    losses : [candidates, rows] loss of every row; task i owns rows `offsets[i]:offsets[i + 1]`
    safe : [candidates] true for those that need no trust; none or all true: plain best
    tasks : [k] task numbers, so that what is drawn depends on the task alone
    """
    counts = offsets[1:] - offsets[:-1]
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    losses = torch.nan_to_num(losses.double(), nan=1e12, posinf=1e12, neginf=1e12).clamp(max=1e12)
    means = _per_task(losses, rank, len(counts)) / counts.clamp(min=1)
    best = means.argmin(dim=0)
    if not safe.any() or safe.all():
        return best
    fallback = safe.nonzero()[:, 0][means[safe].argmin(dim=0)]
    row = torch.arange(len(rank), device=rank.device) - offsets[:-1][rank]
    wins = torch.zeros(len(counts), dtype=torch.float64, device=losses.device)
    for number in range(RESAMPLES):
        # Each row is drawn Poisson(1) times: nearly the bootstrap, and no task waits for another.
        uniform = (scramble(key + number, tasks[rank], row) >> 11).double() / 2.0**53 + 0.5
        drawn = _poisson(uniform)
        inside = _per_task(losses * drawn, rank, len(counts))
        free, kept = inside.argmin(dim=0), safe.nonzero()[:, 0][inside[safe].argmin(dim=0)]
        out = (drawn == 0).double()
        gap = (losses.gather(0, kept[rank][None]) - losses.gather(0, free[rank][None]))[0]
        wins += _per_task((gap * out)[None], rank, len(counts))[0].sign()
    return torch.where(wins > 0, best, fallback)


def _poisson(uniform: Tensor) -> Tensor:
    """Poisson(1) by inversion, from uniform numbers in [0, 1)."""
    steps = torch.tensor(
        [0.36787944, 0.73575888, 0.91969860, 0.98101184, 0.99634015, 0.99940582],
        dtype=torch.float64,
        device=uniform.device,
    )
    return (uniform[:, None] >= steps).sum(dim=1).double()


def _per_task(values: Tensor, rank: Tensor, tasks: int) -> Tensor:
    return values.new_zeros((len(values), tasks)).index_add_(1, rank, values)
