"""What is tried before any rows are touched, so that errors come before work."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.data.relation import Relation
from tacit.errors import TacitError
from tacit.local.flat import FlatModel
from tacit.methods.base import Method, OnBillboard, RelatedMethod


def first_board(method: Method, model: FlatModel, relation: Relation | None) -> dict[str, Tensor]:
    """The billboard before the first round."""
    if isinstance(method, RelatedMethod):
        assert relation is not None
        return method.sums(model, relation)
    return method.board(model)


def activations(
    model: FlatModel, federation: Federation, method: Method, device: torch.device
) -> int:
    """Try the model on blank rows; how many numbers a row has in work."""
    few, y = blank_rows(federation, device)
    return model.check(few, y, federation.outputs, trained=method.gradients > 0)


def blank_rows(federation: Federation, device: torch.device) -> tuple[Tensor, Tensor]:
    """Two rows, and their targets."""
    train = federation.train
    few = torch.zeros((2, *train.x.shape[1:]), dtype=train.x.dtype, device=device)
    return few, torch.zeros((2, *train.y.shape[1:]), dtype=train.y.dtype, device=train.y.device)


def heads_of(
    federation: Federation, method: Method, model: FlatModel, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Which heads each task holds, and what makes a mean over tasks one over holders."""
    heads = federation.heads
    if heads is None:
        return torch.zeros(len(federation), 0, device=device), None
    if federation.kind == "segmentation" and len(set(heads.outputs)) > 1:
        raise TacitError(f"heads have {heads.outputs} classes of pixels: all need equally many")
    if len(model.parts) != 1 + len(heads):
        raise TacitError(
            f"tasks work on {len(heads)} different heads, but the model has "
            f"{len(model.parts) - 1}: use tacit.models.MultiHead, or a model by name"
        )
    if not isinstance(method, OnBillboard):
        return heads.holds, None
    each = len(federation) / heads.holders.clamp(min=1)
    return heads.holds, model.spread(each.new_ones(()), each).to(device)
