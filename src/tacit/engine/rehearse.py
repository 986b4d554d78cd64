"""What a simulation tries before any rows are touched, so that errors come before work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.data.relation import Relation
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Method, OnBillboard, RelatedMethod

if TYPE_CHECKING:
    from tacit.engine.simulate import Simulation


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


def contribution(simulation: Simulation, stage: str) -> int:
    """Try the client step of a stage on blank rows; the length of a contribution."""
    method, federation, device = simulation.method, simulation.federation, simulation.device
    few, y = _blank_rows(federation, device)
    place = simulation._places[:1].expand(2, -1)
    fresh = method.state(
        simulation.model, simulation._read(simulation.board, simulation._places[0])
    )
    blank = Batches(
        few.expand(2, method.steps, 2, *few.shape[1:]),
        y.expand(2, method.steps, *y.shape).clone(),
        torch.full((2, method.steps, 2), 0.5, device=device),
    )
    if stage in simulation._votes.stages:
        nobody = torch.zeros(2, dtype=torch.int64, device=device)
        blank = simulation._votes.known(federation, nobody)
    stacked = {name: value.expand(2, *value.shape) for name, value in fresh.items()}
    public, keys = simulation._public(simulation.board), torch.zeros_like(federation.keys[:1])
    holds = simulation._holds[:1].expand(2, -1)
    states, sent = simulation._clients[stage].rehearse(
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
    return few, torch.zeros_like(train.y[:1]).expand(2, *train.y.shape[1:]).clone()


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
