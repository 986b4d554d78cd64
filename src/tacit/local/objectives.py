"""What a task minimises when it fine-tunes on its own rows: own loss, near a model it started from.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. "Private Multi-Task Learning: Formulation and
Applications to Federated Learning." TMLR, 04/2023, section 5.3 and Table 1.
Tao Yu, Eugene Bagdasaryan, Vitaly Shmatikov. "Salvaging Federated Learning by Local Adaptation."
2020 (fine-tuning after private training).
James Kirkpatrick et al. "Overcoming Catastrophic Forgetting in Neural Networks." PNAS, 2017 (EWC).

| objective | added to the own loss, with anchor a and strength λ                        |
|-----------|----------------------------------------------------------------------------|
| vanilla   | nothing                                                                    |
| mean      | λ/2 ‖w − a‖²                                                               |
| kl        | λ · (KL(p_w ‖ p_a) + KL(p_a ‖ p_w)), mean over the batch's predictions      |
| ewc       | λ/2 Σ_i F_i (w_i − a_i)², F the diagonal of the empirical Fisher at a       |

Everything here uses one task's rows and what is public, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.families import expected_count
from tacit.local.flat import FlatModel
from tacit.local.losses import ROW_LOSSES
from tacit.local.slopes import grad


class Anchor(NamedTuple):
    """Where fine-tuning starts and what it stays near; `fisher` is empty unless EWC asks for it."""

    w: Tensor
    buffers: Tensor
    fisher: Tensor


Step = tuple[Tensor, Tensor, Tensor]
Slope = Callable[..., tuple[Tensor, Tensor]]
"""(model, anchor, (strength, rate), w, buffers, (x, y, weight)) -> direction and buffers after it.

A step is `w − rate · direction`. The quadratic penalties are taken where the step ends instead of
where it begins, which changes no fixed point and is stable however strong they are.
"""


def vanilla(model: FlatModel, anchor: Anchor, how: Any, w: Tensor, buffers: Tensor, step: Step):
    return model.gradient(w, buffers, *step)


def mean(model: FlatModel, anchor: Anchor, how: Any, w: Tensor, buffers: Tensor, step: Step):
    return _pulled(model, anchor, torch.ones_like(w), how, w, buffers, step)


def kl(model: FlatModel, anchor: Anchor, how: Any, w: Tensor, buffers: Tensor, step: Step):
    strength, _ = how
    x, _, weight = step
    before = model.predict(anchor.w, anchor.buffers, x)
    return model.gradient(
        w, buffers, *step, lambda now: strength * symmetrised_kl(model.kind, now, before, weight)
    )


def ewc(model: FlatModel, anchor: Anchor, how: Any, w: Tensor, buffers: Tensor, step: Step):
    return _pulled(model, anchor, anchor.fisher, how, w, buffers, step)


OBJECTIVES: dict[str, Slope] = {"vanilla": vanilla, "mean": mean, "kl": kl, "ewc": ewc}


def _pulled(
    model: FlatModel,
    anchor: Anchor,
    stiffness: Tensor,
    how: Any,
    w: Tensor,
    buffers: Tensor,
    step: Step,
) -> tuple[Tensor, Tensor]:
    strength, rate = how
    slope, after = model.gradient(w, buffers, *step)
    pull = strength * stiffness
    return (slope + pull * (w - anchor.w)) / (1 + rate * pull), after


def symmetrised_kl(kind: Kind, now: Tensor, before: Tensor, weight: Tensor) -> Tensor:
    """KL both ways between predictions from raw outputs, weighted mean over rows.

    For the families in use (Gaussian of unit variance, Poisson, Bernoulli, categorical) it is the
    product of the differences of their means and of their raw outputs: the normalisers cancel.
    """
    means = {
        "regression": lambda raw: raw,
        "count": expected_count,
        "binary": torch.sigmoid,
        "multilabel": torch.sigmoid,
        "multiclass": lambda raw: raw.softmax(dim=1),
        "segmentation": torch.sigmoid,  # each class of a pixel as a yes or no of its own
        "survival": expected_count,
    }[kind]
    each = (means(now) - means(before)) * (now - before)
    if kind in ("multilabel", "segmentation", "survival"):
        each = each.flatten(1).mean(dim=1)
    elif kind == "multiclass":
        each = each.sum(dim=1)
    return (each * weight).sum()


def squared_slope(model: FlatModel, w: Tensor, buffers: Tensor, row: Step) -> Tensor:
    """The squared gradient of one row: the diagonal Fisher is its mean over rows.

    As the model predicts, not as it trains: BatchNorm has no statistics of a single row.
    """
    x, y, weight = row

    def loss(w: Tensor) -> Tensor:
        return ROW_LOSSES[model.kind](model.predict(w, buffers, x), y).sum()

    slope = grad(loss)(w)
    return weight * slope * slope
