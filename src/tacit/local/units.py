"""Common units for the columns of all tasks, chosen by votes: raw numbers of any size will do.

A task knows the centre and the spread of each of its columns. One-hot votes have a bounded length
whatever the numbers are, so units cost two releases and no guess about the data:

    "units"    each column: which power of √10 its spread is, and which its centre is (or zero,
               where the centre is within one spread). Where a column is constant inside a task it
               says so instead, and the size of the constant stands for the spread
    "places"   each column: where its centre lies between the published bounds, in wide steps and,
               modulo a circle, in steps of half a spread

From the places come the common centre and, with the spread inside tasks, the spread of all rows. A
column that is constant inside every task has its spread between tasks alone. Results are rounded
(spreads to powers of √√10, centres to quarters of a spread), so that noise rarely shows in them.

A vote weighs 1/√(2·columns): a task moves the sum by at most one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

STAGES = ("units", "places")
SMALLEST, LARGEST = -8, 10
"""Decimal logarithms of spreads and centres that can be told apart."""
SPREADS = 2 * (LARGEST - SMALLEST) + 1
CENTRES = 4 * (LARGEST - SMALLEST) + 1
WIDE, FINE = 8, 128
PENALTY = 3.5
"""A window of votes is believed for what exceeds so many standard deviations of its noise."""
WIDER = 0.08
"""A window twice as wide must hold so much more of the votes."""
MOST, TOO_FEW = 0.7, 10.0
"""Fine steps are believed where a window of them holds this share of what the wide ones hold."""
UNUSUAL = 0.3
"""Each power of ten away from 1 needs so many standard deviations more of votes."""


def blank(columns: int, like: Tensor) -> dict[str, Tensor]:
    """What is public about units, before anybody voted."""
    names = ("low", "high", "step", "centre", "spread")
    return {name: like.new_ones(columns, dtype=torch.float64) for name in names}


def votes(stage: str, known: Tensor, board: dict[str, Tensor]) -> Tensor:
    """One task's votes, from centre and spread of its columns [columns, 2]; NaN abstains."""
    centre, spread = known.unbind(dim=1)
    weight = 1 / math.sqrt(2 * len(known))
    if stage == "units":
        # From far below zero over zero to far above it.
        far = _power(centre.abs(), 4, CENTRES) + 1
        place = CENTRES + torch.where(centre.abs() > spread, torch.sign(centre) * far, 0.0)
        place = torch.where(spread == 0, 2.0 * CENTRES + 1, place)
        size = torch.where(spread == 0, centre.abs(), spread)
        power = _power(size, 2, SPREADS)
        parts = (_one(power, SPREADS, size > 0), _one(place, 2 * CENTRES + 2, spread >= 0))
    else:
        low, high, step = board["low"], board["high"], board["step"]
        wide = torch.floor((centre - low) / (high - low) * WIDE)
        fine = torch.remainder(torch.floor((centre - low) / step), FINE)
        here = (wide >= 0) & (wide < WIDE)
        parts = (_one(wide, WIDE, here), _one(fine, FINE, here))
    return weight * torch.cat(parts, dim=1).reshape(-1)


def _power(size: Tensor, per_decade: int, of: int) -> Tensor:
    exponent = per_decade * (torch.log10(size.clamp(min=1e-300)) - SMALLEST)
    return exponent.round().clamp(0, of - 1)


def _one(place: Tensor, of: int, where: Tensor) -> Tensor:
    """[columns, of]: one-hot, or nothing."""
    numbers = torch.arange(of).to(place)
    return ((numbers == place.unsqueeze(1)) & where.unsqueeze(1)).double()


def read(stage: str, mean: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the votes (shares of all tasks, with noise) say."""
    columns = len(board["spread"])
    weight = 1 / math.sqrt(2 * columns)
    shares = (mean / weight).reshape(columns, -1)
    noise = noise / weight
    return _units(shares, noise) if stage == "units" else _places(shares, noise, board)


def _units(shares: Tensor, noise: Tensor) -> dict[str, Tensor]:
    inside, at = shares[:, :SPREADS], shares[:, SPREADS:]
    exponents = torch.arange(SPREADS).to(shares) / 2 + SMALLEST
    found = _window(inside - UNUSUAL * noise * exponents.abs(), noise, (1, 2, 3))
    sure = found.sure
    size = torch.where(sure, 10 ** (found.middle / 2 + SMALLEST), 1.0)
    constant = at[:, -1] > torch.clamp(2 * noise, min=0.5)
    spread, at = torch.where(sure & ~constant, size, 0.0), at[:, :-1]
    exponents = torch.arange(CENTRES).to(shares) / 4 + SMALLEST
    unusual = (
        UNUSUAL * noise * torch.cat([exponents.flip(0).abs(), noise.new_zeros(1), exponents.abs()])
    )
    found, across, _, known = _window(at - unusual, noise, (1, 2, 4, 8))
    low, high = (_edge(found + side * across / 2 - CENTRES, size) for side in (-1, 1))
    around = constant | ~known  # zero is as good a guess as any
    low, high = torch.where(around, -4 * size, low), torch.where(around, 4 * size, high)
    # A circle of fine steps goes around more than one wide step, so that it is clear which.
    step = torch.maximum(spread / 2, 2 * (high - low) / (WIDE * FINE))
    return {"low": low, "high": high, "step": step, "centre": (low + high) / 2, "spread": spread}


def _edge(place: Tensor, spread: Tensor) -> Tensor:
    """Where a window of votes for centres ends; half a place beyond zero means a few spreads."""
    far = 10 ** ((place.abs() - 1) / 4 + SMALLEST)
    return torch.sign(place) * torch.where(place.abs() < 1, 2 * spread, far)


def _places(shares: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    low, high, step, inside = (board[name] for name in ("low", "high", "step", "spread"))
    step = step.clamp(min=1e-30)
    width = (high - low) / WIDE
    wide, fine = shares[:, :WIDE], shares[:, WIDE:]
    coarse, across, held, _ = _window(wide, noise, (1, 2, 4, 8))
    centre, between = low + (coarse + 0.5) * width, across * width / 4
    # In fine steps, around the coarse centre: what is more than half a circle away is not meant.
    first = torch.floor((coarse + 0.5) * width / step)
    offset = torch.arange(FINE).to(shares) - FINE // 2
    turned = torch.remainder(first.unsqueeze(1) + offset, FINE).long()
    # Whole numbers pile up: a narrow window with few of the votes may be one of them.
    circle = fine.gather(1, turned)
    near, narrow, most, sure = _window(circle, noise, (1, 2, 4, 8, 16, 32, 64), MOST * held)
    clear = (across <= 2) & sure & (most > MOST * held)
    centre = torch.where(clear, low + (first + near - FINE // 2 + 0.5) * step, centre)
    between = torch.where(clear, narrow * step / 4, between)
    total = torch.sqrt(inside**2 + between**2).clamp(min=1e-12)
    spread = 10 ** ((4 * torch.log10(total)).round() / 4)
    return {
        "low": low, "high": high, "step": step, "spread": spread,
        "centre": (4 * centre / spread).round() * spread / 4,
    }  # fmt: skip


class Window(NamedTuple):
    """Where most votes are, for each column."""

    middle: Tensor
    width: Tensor
    votes: Tensor
    sure: Tensor
    """Whether it holds more than noise would put into the best of windows."""


def _window(
    shares: Tensor, noise: Tensor, widths: tuple[int, ...], least: Tensor | None = None
) -> Window:
    """The window that holds most votes for the noise in it; at least so many, if any does."""
    before = torch.nn.functional.pad(shares.cumsum(dim=1), (1, 0))
    found: list[tuple[Tensor, ...]] = []
    for size in widths:
        votes = before[:, size:] - before[:, :-size]
        cost = PENALTY * noise * math.sqrt(size) + WIDER * math.log2(size)
        missing = 0.0 if least is None else (votes < least.unsqueeze(1)).double()
        height, place = (votes - cost - TOO_FEW * missing).max(dim=1)
        held = votes.gather(1, place.unsqueeze(1))[:, 0]
        middle, width = place + (size - 1) / 2, torch.full_like(held, size)
        found.append((height, middle, width, held, held - cost > noise))
    sides = [torch.stack(side) for side in zip(*found, strict=True)]
    best = sides[0].argmax(dim=0, keepdim=True)
    return Window(*(side.gather(0, best)[0] for side in sides[1:]))
