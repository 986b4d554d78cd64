"""Common units for the columns of all tasks, found privately: raw numbers of any size will do.

A task knows the centre and the spread of each of its columns. A number of any size is a point on a
circle, and a point has length one; so units cost four releases and no guess about the data:

    "units"    each column: the power of ten that its spread is, and the one that its reach is (the
               larger of its spread and its distance from zero). Where a column is constant inside
               a task it says so instead of a spread
    "places"   each column: its centre
    "closer"   each column: its centre and spread, as they are seen from those that were found
    "closest"  the same, from those that were found then

In the first two each number is told as points on several circles. On long ones the points of all
tasks lie together and their mean is about one long. On those shorter than the spread between tasks
they cancel each other. So the lengths of the means tell how far tasks are apart (they are the
characteristic function of the numbers), and the angles tell the middle: from the longest circle,
roughly, to the shortest on which points lie together, finely.

This only has to be right within a factor, for the sake of the last two. There centre and spread of
a column are one point on a sphere, and its sides are numbers of nearly the size that they tell of.
In other units (in cents, or as years since 1900) points on circles are turned and the noise is not:
what is found first differs by about as much as it does with other noise. But on the sphere tasks
are seen from what was found, and so all points move by little. Seen twice, they are where they
would have been in any other units: with the same noise, units come out the same within a per cent
or two.

A column that is constant inside every task has its spread between tasks alone. Where points do not
rise out of the noise, there is no common unit (NaN), and every task keeps its own. All that a task
tells has length one at most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

STAGES = ("units", "places", "closer", "closest")
SHARES = (0.32, 0.42, 0.08, 0.18)
"""Parts of what units cost."""
NAMES = ("reach", "step", "centre", "spread", "deviation")
"""What is public about units; the unit is the spread, which is larger than the deviation."""
SMALLEST, LARGEST = -8, 10
"""Decimal logarithms of spreads and centres that can be told apart."""
POWERS = (4.5, 20.0)
"""Lengths of the circles for powers of ten: one is longer than all of them."""
MARGIN = 0.5
"""By how many powers of ten the reach is longer than most tasks say."""
CIRCLES, FIRST, LONGER = 15, 10.0, (4.0, 5.0)
"""Most circles of a column; how many spreads the shortest is long; how much longer the next are."""
USUAL = 3
"""A column's circles count as so many at least: those far from zero must not have more noise."""
FINENESS = 5
"""Circles that are shorter than a constant is large: its spread is known to nobody before."""
TOGETHER, SURE = {"units": 0.4, "places": 0.6}, 4.0
"""Points lie together where their mean is so long, and so many standard deviations of the noise."""
MIDDLE = (SMALLEST + LARGEST) / 2
WIDE = 1.6
"""A sphere is seen from a place that is so many deviations wide."""
FARTHEST, STEPS, RIDGE, NEAR = 0.97, 12, 0.05, 1e-4
"""Longest mean point that is believed; steps until a bell has it, what keeps them short, and how
far a slope is looked at."""
RATHER_UP = 1.15
"""Units are chosen rather too large: what is far out costs more than noise does."""


def blank(columns: int, like: Tensor) -> dict[str, Tensor]:
    """What is public about units, before anybody told anything."""
    return {name: like.new_ones(columns, dtype=torch.float64) for name in NAMES}


def votes(stage: str, known: Tensor, board: dict[str, Tensor]) -> Tensor:
    """What one task tells, from centre and spread of its columns [columns, 2]; NaN abstains."""
    centre, spread = known.unbind(dim=1)
    if stage == "units":
        constant = spread == 0
        numbers = torch.stack([spread, torch.maximum(centre.abs(), spread)], dim=1)
        powers = torch.where(numbers > 0, numbers.log10().clamp(SMALLEST, LARGEST), torch.nan)
        told = _points(powers - MIDDLE, _powers(known)).flatten(1)
        told = torch.cat([constant.to(told).unsqueeze(1), told], dim=1)
    elif stage == "places":
        turns = _turns(board)
        # Most columns need few circles, and the board is public: on the others nobody is asked.
        used = int((~turns.isnan()).any(dim=0).sum())
        told = _points(centre, turns[:, :used])
        told = torch.nn.functional.pad(told, (0, 0, 0, CIRCLES - used))
    else:
        unit = _unit(board)
        told = _sphere((centre - board["centre"]) / unit, spread / unit).nan_to_num(0.0)
    return (told * _weight(stage, len(known), board)).reshape(-1)


def _points(numbers: Tensor, turns: Tensor) -> Tensor:
    """Numbers [..] and radians for each of their units [.., circles] → [.., circles, 2].

    Zero where a number or a circle is NaN.
    """
    angle = turns * numbers.unsqueeze(-1)
    return torch.stack([angle.cos(), angle.sin()], dim=-1).nan_to_num(0.0)


def _powers(like: Tensor) -> Tensor:
    """Radians for each power of ten on each circle [circles]."""
    return 2 * math.pi / torch.tensor(POWERS).to(like)


def _turns(board: dict[str, Tensor]) -> Tensor:
    """Radians for each unit of a column, on each circle [columns, circles]; NaN: not used.

    The reach goes around at most half of the longest circle that is used, so it is clear which way;
    and there are two at least, because tasks may be farther apart than the shortest is long.
    """
    times = [LONGER[circle % len(LONGER)] for circle in range(CIRCLES - 1)]
    times = torch.tensor([FIRST, *times]).to(board["step"]).cumprod(0)
    length, reach = board["step"].unsqueeze(1) * times, 2 * board["reach"].unsqueeze(1)
    enough = (length >= reach) & (length > length[:, :1])
    used = ~enough | (enough.cumsum(dim=1) == 1)
    return torch.where(used & enough.any(dim=1, keepdim=True), 2 * math.pi / length, torch.nan)


def _unit(board: dict[str, Tensor]) -> Tensor:
    """What is one long before it is on the sphere; NaN where there is no unit."""
    return WIDE * torch.where(board["spread"].isnan(), torch.nan, board["deviation"])


def _sphere(away: Tensor, wide: Tensor) -> Tensor:
    """A centre so far away, and how wide it is [..] → a point [.., 3], one from the middle.

    Columns that are constant are at its edge (0 in the last side), all others on one half of it.
    Seen from the right place the first two sides are zero on average: they are the slopes of
    Cauchy's likelihood, so that nobody's centre, however far away, decides much.
    """
    away, wide = torch.broadcast_tensors(away, wide)
    square = away**2 + wide**2
    return torch.stack([2 * away, square - 1, 2 * wide], dim=-1) / (1 + square).unsqueeze(-1)


def _weight(stage: str, columns: int, board: dict[str, Tensor]) -> Tensor | float:
    """Of one vote or point: all that a task tells has length one, at most."""
    if stage == "units":
        return 1 / math.sqrt(2 * len(POWERS) * columns)
    if stage != "places":
        return 1 / math.sqrt(columns)
    told = (~_turns(board).isnan()).double().sum()
    return 1 / torch.sqrt(told.clamp(min=USUAL * columns))


def read(stage: str, mean: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    """What all tasks together say; the mean has noise of this standard deviation."""
    columns = len(board["spread"])
    weight = _weight(stage, columns, board)
    told, noise = (mean / weight).reshape(columns, -1), noise / weight
    if stage == "units":
        return _read_units(told, noise)
    return _read_places(told, noise, board) if stage == "places" else _read_closer(told, board)


def _read_units(told: Tensor, noise: Tensor) -> dict[str, Tensor]:
    turns = _powers(told).expand(len(told), 2, -1)
    found = _read(told[:, 1:].unflatten(1, (2, len(POWERS), 2)), turns, noise, TOGETHER["units"])
    size = torch.where(found.sure, 10 ** (found.middle + MIDDLE), torch.nan)
    constant, reach = told[:, 0] > torch.clamp(3 * noise, min=0.5), size[:, 1] * 10**MARGIN
    spread = torch.where(constant, 0.0, size[:, 0])
    # What is constant inside tasks has no spread yet: circles begin far below its size.
    finest = reach / (FIRST * math.prod(LONGER) ** (FINENESS / len(LONGER)))
    step = torch.where(constant, finest, spread)
    found = {"reach": reach, "step": step, "spread": spread, "deviation": spread.clone()}
    return found | {"centre": torch.zeros_like(reach)}


def _read_places(told: Tensor, noise: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    turns, step = _turns(board), board["step"]
    found = _read(told.unflatten(1, (CIRCLES, 2)), turns, noise, TOGETHER["places"])
    # A bell spreads points to a mean of this length: the bell nearest to all that tell.
    wide = _DEVIATIONS.to(step) * step.unsqueeze(1)
    bell = torch.exp(-((turns.unsqueeze(2) * wide.unsqueeze(1)) ** 2) / 2)
    off = torch.where(found.tells.unsqueeze(2), (bell - found.length.unsqueeze(2)) ** 2, 0.0)
    between = wide.gather(1, off.sum(dim=1).argmin(dim=1, keepdim=True))[:, 0]
    total = torch.sqrt(board["spread"] ** 2 + between**2)
    spread = torch.where(found.sure, RATHER_UP * total, torch.nan)
    return board | {"centre": found.middle, "spread": spread, "deviation": total}


def _read_closer(told: Tensor, board: dict[str, Tensor]) -> dict[str, Tensor]:
    """The bell whose tasks, with spreads that are all alike, have the told mean point."""
    told = told / (told.norm(dim=1, keepdim=True) / FARTHEST).clamp(min=1.0)
    begin, low, high = (torch.tensor(side).to(told) for side in _BELLS)
    bell, each = begin.expand_as(told), torch.eye(3).to(told)
    around = torch.cat([NEAR * each, -NEAR * each, 0 * each[:1]])
    for _ in range(STEPS):  # Gauss and Newton
        seen = _of_bell(bell.unsqueeze(1) + around)
        slope, off = (seen[:, :3] - seen[:, 3:6]) / (2 * NEAR), told - seen[:, 6]
        steep, up = slope @ slope.mT + RIDGE * each, slope @ off.unsqueeze(2)
        step = torch.linalg.solve_ex(steep, up)[0].squeeze(2)
        bell = torch.minimum(torch.maximum(bell + step, low), high)
    unit = _unit(board)
    total = unit * bell[:, 1].exp()
    found = {"centre": board["centre"] + unit * bell[:, 0], "deviation": total}
    return board | found | {"spread": RATHER_UP * total}


def _of_bell(bell: Tensor) -> Tensor:
    """The mean point of tasks whose centres are a bell [.., 3]: where that is, the logarithm of its
    deviation with that inside tasks, and what part of it is inside."""
    away, power, inside = bell.unsqueeze(-2).unbind(dim=-1)
    nodes, chances = (side.to(bell) for side in _PLACES)
    between = (1 - inside**2).clamp(min=1e-4).sqrt()
    wide = power.exp()
    points = _sphere(away + wide * between * nodes, wide * inside)
    return (chances.unsqueeze(1) * points).sum(dim=-2)


class Read(NamedTuple):
    """What the mean points on circles say about numbers."""

    middle: Tensor
    length: Tensor
    """Of the means, on each circle."""
    tells: Tensor
    """Circles down to the first on which points come apart. On shorter ones whole numbers come
    together again."""
    sure: Tensor
    """Whether noise alone would hardly look like it."""


def _read(points: Tensor, turns: Tensor, noise: Tensor, together: float) -> Read:
    """From mean points [.., circles, 2], on the shortest circle first."""
    mean, used = torch.complex(points[..., 0], points[..., 1]), ~turns.isnan()
    length = (mean.abs() ** 2 - 2 * noise**2).clamp(min=0.0).sqrt()
    low = ~used | (length < (SURE * noise).clamp(min=together))
    # Where points come apart they do so on all shorter circles: one alone is a draw of the noise.
    apart = used & low & torch.nn.functional.pad(low[..., :-1], (1, 0), value=True)
    longer_apart = apart.long().flip(-1).cumsum(dim=-1).flip(-1) - apart.long()
    tells = used & (longer_apart == 0)
    middle = torch.zeros_like(length[..., 0])
    for circle in reversed(range(points.shape[-2])):
        turn = turns[..., circle]
        off = torch.angle(mean[..., circle] * torch.polar(torch.ones_like(turn), -turn * middle))
        here = (tells & ~apart)[..., circle]
        middle = torch.where(here, middle + off / turn, middle)
    return Read(middle, length, tells, (tells & ~apart).any(dim=-1))


_PLACES = tuple(torch.from_numpy(side) for side in np.polynomial.hermite_e.hermegauss(31))
_PLACES = (_PLACES[0], _PLACES[1] / _PLACES[1].sum())
"""Places on a bell, and how likely they are."""
_BELLS = (0.0, -0.5, 0.5), (-2.0, -1.5, 0.0), (2.0, 1.5, 1.0)
"""The first bell, and the ends of what is believed (as `_of_bell` has them)."""
_DEVIATIONS = torch.logspace(-1, 7, 641, dtype=torch.float64)
"""Spreads between tasks, in steps, that centres may have."""
