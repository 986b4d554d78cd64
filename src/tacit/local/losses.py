"""The training loss of each kind of target: of single rows, and as a weighted mean over a batch.

Weights sum to one and are zero on filler rows, so tasks with fewer rows than a batch need no
special case.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.data.federation import Kind


def squared(output: Tensor, y: Tensor) -> Tensor:
    error = output - y
    return error * error


def binary(output: Tensor, y: Tensor) -> Tensor:
    # softplus(z) - y z: the log loss of a logit, with a second derivative everywhere
    return F.softplus(output) - y * output


def count(output: Tensor, y: Tensor) -> Tensor:
    """Of Poisson's distribution with the logarithm of its mean, but for a constant.

    Where the mean is more than e times the count and one, it rises no steeper than there: the slope
    of an exponential would throw the next step of gradient descent far beyond the other side.
    """
    near = torch.minimum(output, 1 + torch.log1p(y))
    return near.exp() * (1 + output - near) - y * output


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return -output.log_softmax(dim=1).gather(1, y.unsqueeze(1)).squeeze(1)


def multilabel(output: Tensor, y: Tensor) -> Tensor:
    """Mean over the labels that a row has; NaN is a label that nobody wrote down."""
    known = ~y.isnan()
    each = F.softplus(output) - torch.where(known, y, 0.0) * output
    return torch.where(known, each, 0.0).sum(dim=1) / known.sum(dim=1).clamp(min=1)


def segmentation(output: Tensor, y: Tensor) -> Tensor:
    """Mean over the pixels that have a class: [n, heads · classes, h, w] against [n, heads, h, w].

    All heads have equally many classes; -1 is a pixel without one.
    """
    scores = output.unflatten(1, (y.shape[1], -1)).log_softmax(dim=2)
    known, wanted = y >= 0, y.clamp(min=0).long()
    each = -scores.gather(2, wanted.unsqueeze(2)).squeeze(2)
    known = known.flatten(1)
    return torch.where(known, each.flatten(1), 0.0).sum(dim=1) / known.sum(dim=1).clamp(min=1)


def survival(output: Tensor, y: Tensor) -> Tensor:
    """Of hazards that are constant inside intervals: a count for each, over the part lived through.

    See `data.survival` for the cells.
    """
    known = ~y.isnan()
    lived = torch.where(known, y.abs(), 1.0)
    each = lived * count(output, (y < 0) / lived)
    return torch.where(known, each, 0.0).sum(dim=1)


ROW_LOSSES: dict[Kind, Callable[[Tensor, Tensor], Tensor]] = {
    "regression": squared,
    "count": count,
    "binary": binary,
    "multiclass": cross_entropy,
    "multilabel": multilabel,
    "segmentation": segmentation,
    "survival": survival,
}


def weighted_loss(kind: Kind, output: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return (ROW_LOSSES[kind](output, y) * weight).sum()
