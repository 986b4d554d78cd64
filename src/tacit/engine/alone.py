"""The best model of a task that could not be trained with the others: what it finds alone.

Rows far out of scale make local training diverge. Such a task has contributed zeros; here it gets a
model from its own rows, by steps that cannot diverge. Nobody else notices, and nothing leaves it.

    linear and logistic regression   the exact solution, over a range of prior strengths
    everything else                  gradient descent on all rows; a step that does not lower the
                                     task's own loss is taken back, and the next one is shorter
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import ONE_OUTPUT, Rows
from tacit.local.batches import Batches, all_rows
from tacit.local.chunks import Chunk
from tacit.local.dropout import own_chance
from tacit.local.flat import FlatModel
from tacit.methods.linear import fitted_alone

STEPS = 200
SHORTER, LONGER = 0.2, 1.5
"""What a failed and a successful step do to the length of the next."""


def trained_alone(
    model: FlatModel, rows: Rows, tasks: Tensor, chunks: Iterable[Chunk]
) -> tuple[Tensor, Tensor]:
    """Parameters [k, d] and buffers [k, b] of these tasks, which are in these chunks."""
    exact = model.kind in ONE_OUTPUT and len(model.layers) == 1 and not model.buffers.numel()
    train = _solve if exact else descend
    w = model.start.expand(len(tasks), -1).clone()
    buffers = model.buffers.expand(len(tasks), -1).clone()
    place = torch.empty(len(rows.counts), dtype=torch.int64, device=tasks.device)
    place[tasks] = torch.arange(len(tasks), device=tasks.device)
    for chunk in chunks:
        batches, some = all_rows(rows, chunk.filled, chunk.width), place[chunk.tasks]
        found = train(model, batches)
        w[some], buffers[some] = (side[: len(some)] for side in found)
    return w, buffers


def _solve(model: FlatModel, batches: Batches) -> tuple[Tensor, Tensor]:
    found = vmap(lambda own: fitted_alone(model, own))(batches)
    found = torch.where(found.isfinite().all(dim=1, keepdim=True), found, model.start)
    return found, model.buffers.expand(len(found), -1)


def descend(model: FlatModel, batches: Batches) -> tuple[Tensor, Tensor]:
    """Parameters and buffers after steps that cannot diverge, from where the model begins."""
    step = tuple(side[:, 0] for side in batches)
    many = len(step[0])
    key = torch.zeros((), dtype=torch.int64, device=model.start.device)

    def slope(w: Tensor, buffers: Tensor, x: Tensor, y: Tensor, weight: Tensor):
        with own_chance(key):
            return model.gradient(w, buffers, x, y, weight)

    def loss(w: Tensor, buffers: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        with own_chance(key):
            return model.loss(w, buffers, x, y, weight)[0]

    w, buffers = model.start.expand(many, -1), model.buffers.expand(many, -1)
    length = w.new_ones(many, 1)
    lowest = torch.nan_to_num(vmap(loss)(w, buffers, *step), nan=torch.inf).unsqueeze(1)
    for _ in range(STEPS):
        down, after = vmap(slope)(w, buffers, *step)
        # In units of the slope itself: rows of any scale begin with a step of length one.
        steepest = torch.linalg.vector_norm(down, dim=1, keepdim=True).clamp(min=1e-30)
        tried = w - length * down / steepest
        found = vmap(loss)(tried, buffers, *step).unsqueeze(1)
        better = (found < lowest) & tried.isfinite().all(dim=1, keepdim=True)
        better &= after.isfinite().all(dim=1, keepdim=True)
        w, buffers = torch.where(better, tried, w), torch.where(better, after, buffers)
        lowest = torch.where(better, found, lowest)
        length = torch.where(better, LONGER * length, SHORTER * length)
    return w, buffers
