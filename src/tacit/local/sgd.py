"""Local stochastic gradient descent of one task, the client step most methods share."""

from __future__ import annotations

from torch import Tensor

from tacit.local.bags import applies, bag_steps
from tacit.local.batches import Batches
from tacit.local.descent import descend
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
    words, kind = model.words, model.kind
    if applies(model.vocabulary, kind, batches, lr, pull):
        assert words is not None and isinstance(lr, float) and isinstance(pull, (int, float))
        how, middle = (words, model.upright, kind), w if towards is None else towards
        return bag_steps(w, middle, batches, lr, pull, model.steepest, how), buffers
    for x, y, weight in batches.steps():
        slopes, buffers = model.slopes(w, buffers, x, y, weight)
        w = descend(w, slopes, lr, pull, towards)
    return w, buffers
