"""The training loss of each kind of target: of single rows, and as a weighted mean over a batch.

Weights sum to one and are zero on filler rows, so tasks with fewer rows than a batch need no
special case.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from tacit.federation import Kind


def squared(output: Tensor, y: Tensor) -> Tensor:
    error = output - y
    return error * error


def binary(output: Tensor, y: Tensor) -> Tensor:
    # softplus(z) - y z: the log loss of a logit, with a second derivative everywhere
    return F.softplus(output) - y * output


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return -output.log_softmax(dim=1).gather(1, y.unsqueeze(1)).squeeze(1)


def multilabel(output: Tensor, y: Tensor) -> Tensor:
    return (F.softplus(output) - y * output).mean(dim=1)


ROW_LOSSES: dict[Kind, Callable[[Tensor, Tensor], Tensor]] = {
    "regression": squared,
    "binary": binary,
    "multiclass": cross_entropy,
    "multilabel": multilabel,
}


def weighted_loss(kind: Kind, output: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return (ROW_LOSSES[kind](output, y) * weight).sum()
