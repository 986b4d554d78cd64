"""Common units of columns where persons vote: noisy histograms that zoom in.

A person has one value in a column (the mean of its rows), and no spread of its own. So in the first
round it votes for the power of ten of its size, and then again and again for one of the bins of the
range that most of the values are in. A vote is one-hot in every column, zero where there is no
value, and has length one in all columns together.

Written for one person; `read` turns the noisy shares of the votes into the next billboard. Noise is
in every bin, also far away from all values. So sizes are one stretch of powers of ten, the one with
the most votes above the noise; and the centre is that of the bell that is nearest to the noisy
shares. A column whose votes drown has no unit (NaN).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STAGES = ("sizes", "first zoom", "second zoom", "third zoom")
SHARES = (0.25, 0.25, 0.25, 0.25)
"""Parts of what units cost."""
NAMES = ("low", "high", "centre", "spread")
DECADES = torch.logspace(-7, 12, 20, dtype=torch.float64)
"""Sizes below the first count as zero, those above the last as that."""
BINS = 12
ABOVE, LEAST = 1.0, 0.01
"""A power of ten is worth its votes less so many standard deviations of the noise, and less this
share: a stretch over many empty ones costs."""
CLEAR = 3.0
"""A bin with so many standard deviations of the noise holds somebody."""
PLACES, WIDTHS = 49, 14
"""Bells that are tried: where they are, and how wide."""
WIDE = 3.0
"""A range is so many spreads to either side."""


def blank(columns: int, like: Tensor) -> dict[str, Tensor]:
    zeros = torch.zeros(columns, dtype=torch.float64, device=like.device)
    return {"low": zeros, "high": zeros + 1.0, "centre": zeros.clone(), "spread": zeros + 1.0}


def votes(stage: str, values: Tensor, board: dict[str, Tensor]) -> Tensor:
    """One person's votes, from its values [columns]; NaN where there is none."""
    there = ~values.isnan()
    values = torch.where(there, values, 0.0)
    if stage == STAGES[0]:
        place, bins = (values.abs().unsqueeze(1) >= DECADES.to(values)).sum(1), len(DECADES) + 1
    else:
        low, high = board["low"], board["high"]
        place, bins = ((values - low) / (high - low) * BINS).floor().clamp(0, BINS - 1), BINS
    one = (torch.arange(bins).to(values) == place.unsqueeze(1)).double()
    return (one * there.unsqueeze(1)).reshape(-1) / math.sqrt(len(values))


def read(stage: str, mean: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    """The next range of every column, with its centre and spread."""
    columns = len(board["low"])
    shares, noise = mean.reshape(columns, -1) * math.sqrt(columns), noise * math.sqrt(columns)
    if stage == STAGES[0]:
        high, clear = _largest(shares, noise)
        low, centre = -high, torch.zeros_like(high)
        spread = torch.where(clear, high, torch.nan)
    else:
        centre, spread = _bell(shares, noise, board["low"], board["high"])
        spread = torch.where(board["spread"].isnan(), torch.nan, spread)
        wide = WIDE * spread.nan_to_num(1.0)
        low, high = centre - wide, centre + wide
    return {**board, "low": low, "high": high, "centre": centre, "spread": spread}


def _largest(shares: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The power of ten [columns] that values end at, and whether anything is clear."""
    worth = shares - ABOVE * noise - LEAST
    best, here, end = worth[:, 0], worth[:, 0], torch.zeros_like(shares[:, 0])
    for place in range(1, shares.shape[1]):  # the stretch with the largest sum (Kadane)
        here = here.clamp(min=0.0) + worth[:, place]
        end = torch.where(here > best, float(place), end)
        best = torch.maximum(best, here)
    edges = torch.cat([DECADES, DECADES[-1:] * 10]).to(shares)
    return edges[end.long()], best > CLEAR * noise


def _bell(shares: Tensor, noise: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Centre [columns] of the nearest bell, and its spread or that of the bins that stand out."""
    turn = torch.linspace(0, 1, BINS + 1).to(shares)
    inner = turn[1:-1]  # beyond the ends is in the bins there
    places = torch.linspace(0, 1, PLACES).to(shares)
    widths = torch.logspace(math.log10(0.02), math.log10(0.6), WIDTHS).to(shares)
    away = (inner - places.reshape(-1, 1, 1)) / widths.reshape(-1, 1)  # [places, widths, bins - 1]
    below = torch.nn.functional.pad(torch.special.ndtr(away), (1, 0), value=0.0)
    bells = torch.diff(torch.nn.functional.pad(below, (0, 1), value=1.0), dim=-1).flatten(0, 1)
    # Gaps make all shares smaller: a bell of any height.
    squares, alike = (bells * bells).sum(1), shares @ bells.T
    height = (alike / squares).clamp(0.0, 1.0)
    best = (height**2 * squares - 2 * height * alike).argmin(dim=1)
    centre, width = places[best // WIDTHS], widths[best % WIDTHS]
    # Two values far apart are no bell: the other one must not come out far away.
    middle = (turn[1:] + turn[:-1]) / 2
    clear = torch.where(shares > CLEAR * noise, shares, 0.0)
    off = (clear * (middle - centre.unsqueeze(1)) ** 2).sum(1) / clear.sum(1).clamp(min=1e-9)
    # What is below the noise may lie anywhere: with much of it, zoom with care.
    width = torch.maximum(width, noise.clamp(max=0.2))
    reach = high - low
    return low + centre * reach, torch.maximum(width, off.sqrt()) * reach
