"""Which of several models a task keeps, by rows that they were not trained on, or how much of each.

The lowest mean loss among many candidates flatters itself: with a dozen rows some candidate is
always lucky. So the whole act of choosing is rehearsed: rows are drawn with replacement, the best
candidate and the best *safe* candidate are chosen on the drawn rows and compared, row by row, on
the rows left out. Only where choosing freely wins clearly more often than it loses does the task
choose freely; otherwise it keeps the safe one. One row alone can tell nothing.

Models that began at the same place and went different ways can be averaged instead (Mitchell
Wortsman et al. "Model soups." ICML 2022): `likely` says by which weights. An average of many is
lucky less often than the best of many.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.randomness import scramble

RESAMPLES = 64
MARGIN = 0.2
"""Wins minus losses, as a share of all comparisons, from which choosing freely is trusted."""


NEGLIGIBLE = 0.01
"""Weights are multiples of it, so smaller ones are dropped."""


def likely(losses: Tensor, offsets: Tensor, *, squared: bool) -> Tensor:
    """How likely each candidate is for each task [candidates, k], by what it lost on all rows.

    Log losses add up to the logarithm of what a candidate foresaw. Squared errors do so over twice
    their variance, which is that of the best candidate.
    """
    total = _per_task(_finite(losses), offsets)
    if squared:
        many = (offsets[1:] - offsets[:-1]).clamp(min=1)
        total = total / (2 * total.amin(dim=0) / many).clamp(min=1e-300)
    # Whole hundredths: the last bits of a loss may hang on who else is in a chunk.
    parts = (torch.softmax(-total, dim=0) / NEGLIGIBLE).round()
    return parts / parts.sum(dim=0)


def choose(
    losses: Tensor, offsets: Tensor, safe: Tensor, keys: Tensor, least_rows: int = 2
) -> Tensor:
    """The candidate of each task [k].

    losses : [candidates, rows] loss of every row; task i owns rows `offsets[i]:offsets[i + 1]`
    safe : [candidates, k] true where a candidate needs no trust; a task without: plain best
    keys : [k] each task's own, so that what is drawn depends on the task alone
    least_rows : a task with fewer rows keeps its safe candidate
    """
    counts = offsets[1:] - offsets[:-1]
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    losses = _finite(losses)
    total = _per_task(losses, offsets)
    best, fallback = total.argmin(dim=0), _best_safe(total, safe)
    row = torch.arange(len(rank), device=rank.device) - offsets[:-1][rank]
    wins, tries = torch.zeros(2, len(counts), dtype=torch.float64, device=losses.device)
    for number in range(RESAMPLES):
        # Each row is drawn Poisson(1) times: nearly the bootstrap, and no task waits for another.
        uniform = (scramble(keys[rank], number, row) >> 11).double() / 2.0**53 + 0.5
        drawn = _poisson(uniform)
        inside = _per_task(losses * drawn, offsets)
        free, kept = inside.argmin(dim=0), _best_safe(inside, safe)
        out = (drawn == 0).double()
        gap = (losses.gather(0, kept[rank][None]) - losses.gather(0, free[rank][None]))[0]
        parts = _per_task(torch.stack([gap * out, out, drawn]), offsets)
        valid = ((parts[1] > 0) & (parts[2] > 0)).double()
        wins += parts[0].sign() * valid
        tries += valid
    trusted = (wins > MARGIN * tries) & (counts >= least_rows)
    return torch.where(trusted | ~safe.any(dim=0), best, fallback)


def _finite(losses: Tensor) -> Tensor:
    return torch.nan_to_num(losses.double(), nan=1e12, posinf=1e12, neginf=1e12).clamp(max=1e12)


def _best_safe(total: Tensor, safe: Tensor) -> Tensor:
    return torch.where(safe, total, torch.inf).argmin(dim=0)


def _poisson(uniform: Tensor) -> Tensor:
    """Poisson(1) by inversion, from uniform numbers in [0, 1)."""
    steps = torch.tensor(
        [0.36787944, 0.73575888, 0.91969860, 0.98101184, 0.99634015, 0.99940582],
        dtype=torch.float64,
        device=uniform.device,
    )
    return (uniform[:, None] >= steps).sum(dim=1).double()


def _per_task(values: Tensor, offsets: Tensor) -> Tensor:
    """[.., rows] -> [.., k]: sums, each in the order of the task's own rows, on any device."""
    return torch.segment_reduce(values.T.contiguous(), "sum", offsets=offsets, axis=0).T
