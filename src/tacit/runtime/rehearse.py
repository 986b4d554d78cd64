"""What is tried before any rows are touched, so that errors come before work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Method, OnBillboard, RelatedMethod
from tacit.relation import Relation

if TYPE_CHECKING:
    from tacit.runtime.course import Course


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
    few, y = _blank_rows(federation, device)
    return model.check(few, y, federation.outputs, trained=method.gradients > 0)


def contribution(course: Course, federation: Federation, stage: str) -> int:
    """Try the client step of a stage on blank rows; the length of a contribution."""
    method, device = course.method, course.device
    few, y = _blank_rows(federation, device)
    place, holds = course.places[:1].expand(2, -1), course.holds[:1].expand(2, -1)
    fresh = method.state(course.model, course.read(course.start, course.places[0]))
    blank = Batches(
        few.expand(2, method.steps, 2, *few.shape[1:]),
        y.expand(2, method.steps, *y.shape).clone(),
        torch.full((2, method.steps, 2), 0.5, device=device),
    )
    if stage in course.votes.stages:
        nobody = torch.zeros(2, dtype=torch.int64, device=device)
        blank = course.votes.known(federation, nobody)
    stacked = {name: value.expand(2, *value.shape) for name, value in fresh.items()}
    public, keys = course.public(course.start), torch.zeros_like(federation.keys[:1])
    states, sent = course.clients[stage].rehearse(
        public, (stacked, blank, place, holds, keys.expand(2))
    )
    if {k: v.shape[1:] for k, v in states.items()} != {k: v.shape for k, v in fresh.items()}:
        raise TacitError(
            f"{type(method).__name__}.client returns a state of another shape than `state`"
        )
    if sent.ndim != 2:
        raise TacitError(f"{type(method).__name__}.client must contribute one flat vector")
    return sent.shape[1]


def _blank_rows(federation: Federation, device: torch.device) -> tuple[Tensor, Tensor]:
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
