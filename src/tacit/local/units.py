"""Common units for the columns of all tasks, chosen by votes: raw numbers of any size will do.

A task knows the centre and the spread of each of its columns. One-hot votes have a bounded length
whatever the numbers are, so units cost two releases and no guess about the data:

    "units"    each column: which power of √10 its spread is, and which its reach is, the larger of
               its spread and its distance from zero. Where a column is constant inside a task it
               says so instead, and the size of the constant stands for its spread
    "places"   each column: where its centre lies within the published reach, in wide steps and,
               modulo a circle, in steps of half a spread; where the reach is many circles long
               (years, or numbers far from zero), also modulo circles of coarser steps

From the places come the common centre and, with the spread inside tasks, the spread of all rows. A
column that is constant inside every task has its spread between tasks alone. Results are rounded
(spreads to powers of √√10, centres to quarters of a spread), so that noise rarely shows in them.

Where votes do not rise out of the noise, there is no common unit (NaN), and every task keeps its
own. A vote weighs 1/√(votes that a task has): a task moves the sum by at most one.
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
REACHES = 4 * (LARGEST - SMALLEST) + 1
WIDE, FINE = 8, 256
CIRCLES, FIRST, COARSER = (32, 32, 32, 32), 32.0, 8.0
"""Between wide and fine: circles of so many steps, the first of so many fine ones, then coarser."""
_ANSWERS = {"units": (SPREADS, REACHES + 1), "places": (WIDE, FINE, *CIRCLES)}
"""Among how many answers a task chooses in each stage, once each for every column."""
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
    names = ("reach", "step", "centre", "spread")
    return {name: like.new_ones(columns, dtype=torch.float64) for name in names}


def votes(stage: str, known: Tensor, board: dict[str, Tensor]) -> Tensor:
    """One task's votes, from centre and spread of its columns [columns, 2]; NaN abstains."""
    values, at = marks(stage, known, board)
    blank = torch.zeros(size(stage, len(known))).to(values)
    return blank.scatter_add(0, at, values)


def size(stage: str, columns: int) -> int:
    """How many numbers the votes are."""
    return columns * sum(_ANSWERS[stage])


def marks(stage: str, known: Tensor, board: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The votes that are not zero: their values [2 * columns] and where they are among all."""
    centre, spread = known.unbind(dim=1)
    if stage == "units":
        constant = spread == 0
        size = torch.where(constant, centre.abs(), spread)
        reach = _power(torch.maximum(centre.abs(), spread), 4, REACHES)
        places = _power(size, 2, SPREADS), torch.where(constant, REACHES, reach)
        cast = size > 0, spread >= 0
    else:
        away = centre + board["reach"]
        wide = torch.floor(away / (2 * board["reach"]) * WIDE)
        fine = torch.remainder(torch.floor(away / board["step"]), FINE)
        here = (wide >= 0) & (wide < WIDE)
        steps, used = _circles(board)
        around = [
            torch.remainder(torch.floor(away / step), of)
            for step, of in zip(steps.unbind(), CIRCLES, strict=True)
        ]
        places, cast = (wide, fine, *around), (here, here, *(here & used).unbind())
    answers = torch.tensor((0, *_ANSWERS[stage])).to(known.device).cumsum(0)
    begin = torch.arange(len(known)).to(known.device).unsqueeze(1) * answers[-1] + answers[:-1]
    made, place = torch.stack(cast, dim=1), torch.stack(places, dim=1)
    at = begin + torch.where(made, place, 0.0).long()
    return (made.double() * _weight(stage, len(known), board)).reshape(-1), at.reshape(-1)


def _circles(board: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Steps of the coarser circles [circles, columns], and which of them a column needs.

    The largest that is used goes around more than two wide steps, so that it is clear which.
    """
    step, reach = board["step"], board["reach"]
    steps = torch.stack([FIRST * COARSER**k * step for k in range(len(CIRCLES))])
    of = torch.tensor((FINE, *CIRCLES[:-1])).to(step).unsqueeze(1)
    around = of * torch.cat([step.unsqueeze(0), steps[:-1]])
    return steps, around < reach / 2


def _weight(stage: str, columns: int, board: dict[str, Tensor]) -> Tensor | float:
    """Of one vote: all votes of a task together have length one, at most."""
    if stage == "units":
        return 1 / math.sqrt(2 * columns)
    return 1 / torch.sqrt(2 * columns + _circles(board)[1].double().sum())


def _power(size: Tensor, per_decade: int, of: int) -> Tensor:
    exponent = per_decade * (torch.log10(size.clamp(min=1e-300)) - SMALLEST)
    return exponent.round().clamp(0, of - 1)


def read(stage: str, mean: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the votes (shares of all tasks, with noise) say."""
    columns = len(board["spread"])
    weight = _weight(stage, columns, board)
    shares = (mean / weight).reshape(columns, -1)
    noise = noise / weight
    return _units(shares, noise) if stage == "units" else _places(shares, noise, board)


def _units(shares: Tensor, noise: Tensor) -> dict[str, Tensor]:
    inside, reach = shares[:, :SPREADS], shares[:, SPREADS:-1]
    exponents = torch.arange(SPREADS).to(shares) / 2 + SMALLEST
    found = _window(inside - UNUSUAL * noise * exponents.abs(), noise, (1, 2, 3))
    size = torch.where(found.sure, 10 ** (found.middle / 2 + SMALLEST), torch.nan)
    constant = shares[:, -1] > torch.clamp(3 * noise, min=0.5)
    spread = torch.where(constant, 0.0, size)
    exponents = torch.arange(REACHES).to(shares) / 4 + SMALLEST
    found = _window(reach - UNUSUAL * noise * exponents.abs(), noise, (1, 2, 4, 8))
    most = 10 ** ((found.middle + found.width / 2) / 4 + SMALLEST)
    most = torch.where(constant, 4 * size, torch.where(found.sure, most, torch.nan))
    # What is constant inside tasks has no spread yet. Where even the coarsest circle would be too
    # short, because the spread is tiny beside the numbers, nobody can say where the centre is.
    longest = CIRCLES[-1] * FIRST * COARSER ** (len(CIRCLES) - 1)
    most = torch.where(~constant & (spread / 2 < most / (2 * longest)), torch.nan, most)
    step = torch.where(constant, most / (2 * FINE), spread / 2)
    return {"reach": most, "step": step, "centre": torch.zeros_like(most), "spread": spread}


def _places(shares: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    reach, step, inside = (board[name] for name in ("reach", "step", "spread"))
    step = step.clamp(min=1e-30)
    width = 2 * reach / WIDE
    wide, fine, *around = shares.split(_ANSWERS["places"], dim=1)
    coarse, across, held, known = _window(wide, noise, (1, 2, 4, 8))
    centre, between = (coarse + 0.5) * width, across.clamp(min=2) * width / 4
    clear = across <= 2
    steps, used = _circles(board)
    for votes, size, needed in reversed(
        list(zip(around, steps.unbind(), used.unbind(), strict=True))
    ):
        found, narrow, sure = _nearer(votes, noise, centre, size, held, (1, 2, 4, 8, 16))
        better = clear & needed & sure
        centre = torch.where(better, found, centre)
        between = torch.where(better, narrow * size / 4, between)
        clear = clear & (~needed | (sure & (narrow <= 2)))
    found, narrow, sure = _nearer(fine, noise, centre, step, held, (1, 2, 4, 8, 16, 32, 64))
    centre = torch.where(clear & sure, found, centre) - reach
    between = torch.where(clear & sure, narrow * step / 4, between)
    total = torch.sqrt(inside**2 + between**2).clamp(min=1e-12)
    spread = torch.where(known, 10 ** ((4 * torch.log10(total)).round() / 4), torch.nan)
    return {
        "reach": reach, "step": step, "spread": spread,
        "centre": (4 * centre / spread).round() * spread / 4,
    }  # fmt: skip


def _nearer(
    votes: Tensor,
    noise: Tensor,
    centre: Tensor,
    step: Tensor,
    held: Tensor,
    widths: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """A better centre from votes on a circle of smaller steps, their width, and whether it is sure.

    What is more than half a circle away is not meant. Whole numbers pile up: a narrow window with
    few of the votes may be one of them.
    """
    of = votes.shape[1]
    first = torch.floor(centre / step)
    offset = torch.arange(of).to(votes) - of // 2
    turned = torch.remainder(first.nan_to_num().unsqueeze(1) + offset, of).long()
    near, narrow, most, sure = _window(votes.gather(1, turned), noise, widths, MOST * held)
    return (first + near - of // 2 + 0.5) * step, narrow, sure & (most > MOST * held)


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
