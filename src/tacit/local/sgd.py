"""Local stochastic gradient descent of one task, the client step most methods share."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.local.bags import applies, bag_steps
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel


def sgd(
    model: FlatModel,
    w: Tensor,
    buffers: Tensor,
    batches: Batches,
    lr: float | Tensor,
    *,
    pull: float | Tensor = 0.0,
    towards: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step per batch on `loss(w) + pull/2 · ‖w − towards‖²`; returns parameters and buffers."""
    if applies(model.words, model.kind, batches, lr, pull):
        assert isinstance(lr, float) and isinstance(pull, (int, float)) and model.words is not None
        how = (model.words, model.kind)
        middle, steepest = w if towards is None else towards, model.steepest
        return bag_steps(w, middle, batches, lr, pull, steepest, how), buffers
    for x, y, weight in batches.steps():
        slope, buffers = model.gradient(w, buffers, x, y, weight)
        if towards is not None and (isinstance(pull, Tensor) or pull):
            slope = slope + pull * (w - towards)
        w = torch.add(w, slope, alpha=-lr) if isinstance(lr, float) else w - lr * slope
    return w, buffers
