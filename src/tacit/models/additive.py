"""Additive models: a sum of shapes, one for each column, given by their heights at a few places.

Places are the same for every column and every table, so they say nothing about anybody's rows. They
are meant for columns in common units, centred at about 0 with a spread of about 1. Between two
places a shape is a straight line, beyond the last it is level: steps would need many more places
for what is nearly a line.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.models.refuse import refuse_pixels, refuse_words

PLACES = (-2.1, -1.5, -0.9, -0.3, 0.3, 0.9, 1.5, 2.1)
"""Evenly spread, so that all but a few rows of a common column are between the first and last."""
APART = 0.6
"""From a place to the next."""


def shares(x: Tensor) -> Tensor:
    """[.., columns, places]: how far each value of x [.., columns] is at each of the places.

    They are not negative and add up to one, and at most two neighbours are above zero.
    """
    places = torch.tensor(PLACES, dtype=x.dtype, device=x.device)
    far = x.clamp(PLACES[0], PLACES[-1]).unsqueeze(-1) - places
    return (1 - far.abs() / APART).clamp(min=0.0)


class Learned(nn.Module):
    """Numbers that are learned, from zero."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(shape))


class AdditiveModel(nn.Module):
    """The shapes of all columns [outputs, columns, places], and an intercept for each output."""

    def __init__(self, columns: int, outputs: int = 1) -> None:
        super().__init__()
        self.shapes = Learned(outputs, columns, len(PLACES))
        self.intercept = Learned(outputs)

    def forward(self, x: Tensor) -> Tensor:
        there = shares(x.flatten(1)).flatten(1)
        return there @ self.shapes.values.flatten(1).T + self.intercept.values


def additive(federation: Federation) -> AdditiveModel:
    """As many outputs as the target needs; zeros, so that all runs start from the same point."""
    refuse_words(federation, "additive")
    refuse_pixels(federation, "additive")
    if federation.heads is not None:
        raise TacitError(
            "model 'additive' has one set of shapes, but tasks hold different heads: use model "
            "'linear'"
        )
    return AdditiveModel(math.prod(federation.input_shape), federation.outputs)
