"""What additive models are learned by: a few smooth numbers for the shape of every column.

A shape has a height at each place (`models.additive`). Noise on heights would be as large between
neighbours as between the ends, but shapes are smooth; so what is learned, and noised, is a few
numbers u of which heights are smooth functions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.local.batches import Batches
from tacit.models.additive import APART, PLACES, shares

BUMPS = 5
"""Numbers that stand for the shape of a column: with more of them noise only finds more room."""
NEAR = 1.0
"""How far places see each other, in spreads of a column."""
LOUD = 0.5
"""The constant in z, where all columns together have length one."""


def _bumps() -> Tensor:
    """[places, BUMPS], rows of length one: how far a row at a place counts for each number.

    Their inner products are those of a bell around each place, without what all have in common
    (that is the intercept), for rows somewhere between evenly and normally spread.
    """
    places = torch.tensor(PLACES, dtype=torch.float64)
    ends = torch.cat([-torch.inf * places[-1:], places[:-1] + APART / 2, torch.inf * places[-1:]])
    chance = 0.5 * torch.special.ndtr(ends).diff() + 0.5 / len(places)
    alike = torch.exp(-0.5 * ((places[:, None] - places) / NEAR) ** 2)
    centred = torch.eye(len(places), dtype=torch.float64) - chance
    alike = centred @ alike @ centred.T
    size = alike.diagonal().sqrt()
    root = chance.sqrt()
    alike = alike / size / size[:, None] * root * root[:, None]
    values, vectors = torch.linalg.eigh(alike)
    found = vectors[:, -BUMPS:] * values[-BUMPS:].sqrt() / root[:, None]
    found = found * found[-1].sign()  # eigenvectors have none, and all machines must agree on one
    return found / torch.linalg.vector_norm(found, dim=1, keepdim=True)


SHAPES = _bumps()


def spread_out(batches: Batches) -> tuple[Tensor, Tensor, Tensor]:
    """z of all rows of a task [n, columns · BUMPS + 1], the targets, which rows count.

    No row of z is longer than one: those of bumps are as long as that, and shares add up to one.
    """
    x, y, weight = batches.x[0], batches.y[0], batches.weight[0]
    there = shares(x.reshape(len(x), -1).double())
    counts = (weight > 0).to(there.dtype)
    each = (there @ SHAPES.to(there)).flatten(1)
    z = torch.cat([each / math.sqrt(there.shape[1]), LOUD * torch.ones_like(each[:, :1])], dim=1)
    return z / math.sqrt(1 + LOUD**2) * counts.unsqueeze(1), y.double() * counts, counts


def shapes_of(u: Tensor) -> Tensor:
    """The shapes [columns, places] that these numbers stand for, and the intercept: flat."""
    columns, unit = len(u) // BUMPS, math.sqrt(1 + LOUD**2)
    shapes = u[:-1].reshape(columns, BUMPS) @ SHAPES.to(u).T / (unit * math.sqrt(columns))
    return torch.cat([shapes.flatten(), LOUD / unit * u[-1:]])


def variances_of(blur: Tensor) -> Tensor:
    """Those of the shapes [columns, places], where numbers have these variances."""
    columns = len(blur) // BUMPS
    each = blur[:-1].reshape(columns, BUMPS) @ (SHAPES.to(blur) ** 2).T
    return each / (columns * (1 + LOUD**2))


def numbers_of(parameters: Tensor) -> Tensor:
    """The numbers whose shapes are nearest to these: the reverse of `shapes_of`."""
    columns, unit = len(parameters) // len(PLACES), math.sqrt(1 + LOUD**2)
    back = torch.linalg.pinv(SHAPES.to(parameters)).T * (unit * math.sqrt(columns))
    each = parameters[:-1].reshape(columns, len(PLACES)) @ back
    return torch.cat([each.flatten(), parameters[-1:] * unit / LOUD])
