"""Local steps on bags of words, which touch the weights of words that occur and no others.

A post has some fifty words of ten thousand. With a pull λ towards m, a step of rate η is
w ← w − η(g + λ(w − m)), so u = w − m follows u ← au − ηg with a = 1 − ηλ. The slope g is zero but
for words of the batch. Written as u = aˢv after s steps, v ← v − (η/aˢ⁺¹)g: nothing happens to the
other words until the end, where they are m + aᔆ(w − m). So a step gathers the weights of a few
words and adds to them, and there is one pass over all weights a round; none, where a task is handed
those of its own words alone (`local.reached`).

It is one operator, because a task knows by itself which words it has: how many there are differs
from task to task, which nothing that is mapped over tasks can express. Tasks are taken one after
the other, so none can tell who else is there. Equal to the plain steps but for rounding (tests).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tacit.local.batches import Batches
from tacit.models.words import BagOfWords

SELDOM = 2
"""Worth it while a round has fewer words than this many times the vocabulary."""
FADED = 1e-3
"""The smallest aᔆ: what is divided by it loses so much of its precision."""


def words_of(module: nn.Module) -> int | None:
    """How many words a model knows that is one linear layer on bags of words; None for others."""
    if not isinstance(module, nn.Sequential) or len(module) != 2:
        return None
    first, last = module[0], module[1]
    linear = isinstance(last, nn.Linear) and last.bias is not None
    return first.words if isinstance(first, BagOfWords) and linear else None


def applies(words: int | None, kind: str, batches: Batches, lr: Any, pull: Any) -> bool:
    """Whether the steps below can be taken, and pay: from sizes and settings alone."""
    if words is None or kind not in SLOPES or batches.x.is_cuda:
        return False
    if not isinstance(lr, float) or not isinstance(pull, (int, float)) or lr * pull >= 1:
        return False
    return batches.x.numel() < SELDOM * words and (1 - lr * pull) ** len(batches.x) > FADED


def bag_steps(
    w: Tensor,
    towards: Tensor,
    batches: Batches,
    lr: float,
    pull: float,
    steepest: float | None,
    how: tuple[int, bool, str],
) -> Tensor:
    """The parameters after one step for each batch; no slope is longer than the steepest.

    `how` says how many words there are, whether these are the words that occur and their weights
    lie word by word (`local.reached`), and what kind the target is.
    """
    bound = math.inf if steepest is None else steepest
    return torch.ops.tacit.bag_steps(w, towards, *batches, lr, float(pull), bound, *how)


def _binary(output: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(output) - y.unsqueeze(1)


def _multiclass(output: Tensor, y: Tensor) -> Tensor:
    found = output.softmax(dim=1)
    return found.scatter_add_(1, y.unsqueeze(1), found.new_full((len(y), 1), -1.0))


def _multilabel(output: Tensor, y: Tensor) -> Tensor:
    known = ~y.isnan()
    each = torch.where(known, torch.sigmoid(output) - y, 0.0)
    return each / known.sum(dim=1, keepdim=True).clamp(min=1)


SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "binary": _binary,
    "multiclass": _multiclass,
    "multilabel": _multilabel,
}
"""Of `losses.ROW_LOSSES`, by the outputs [rows, outputs]."""


def _steps_of_one(
    after: Tensor, w: Tensor, m: Tensor, batches: Batches, lr: float, pull: float, how: Any
) -> None:
    """`after` is written. Outputs are gathered from the words of each row; words that occur are
    columns of `shares`, so what a step changes is one product."""
    steepest, words, upright, kind = how
    x, y, weight = batches
    (table, tail), (middle, origin) = (_parts(side, words, upright) for side in (w, m))
    ids = x.long()
    known = (ids > 0) & (ids <= words)
    share = known.to(w.dtype) / (ids > 0).sum(dim=2, keepdim=True).clamp(min=1)
    met, place = None, (ids - 1).clamp(0, words - 1)
    if not upright:
        met, place = torch.unique(place, return_inverse=True)
    v, centre = _columns(table, met), None
    shares = w.new_zeros(*x.shape[:2], len(v)).scatter_add_(2, place, share)
    there, offset = torch.zeros_like(tail).expand(*x.shape[:2], -1), tail.clone()
    if pull:
        centre = _columns(middle, met)
        v -= centre
        offset -= origin
        found = _outputs(centre, place.flatten(0, 1), share.flatten(0, 1))
        there = found.view(there.shape) + origin
    keeps, scale, alike = 1 - lr * pull, 1.0, None
    if steepest < math.inf:  # what two rows have in common, the offset among it
        alike = shares @ shares.mT + 1
    for s in range(len(x)):
        found = torch.add(there[s], _outputs(v, place[s], share[s]), alpha=scale) + offset
        slope = SLOPES[kind](found, y[s]) * weight[s].unsqueeze(1)
        if alike is not None:
            length = (slope @ slope.T * alike[s]).sum().clamp(min=0).sqrt()
            slope = slope * (steepest / length.clamp(min=steepest))
        scale *= keeps
        v.addmm_(shares[s].T, slope, alpha=-lr / scale)
        offset = keeps * offset - lr * slope.sum(dim=0)
    if centre is not None:
        v, offset = centre.add_(v, alpha=scale), origin + offset
    ends, behind = _parts(after, words, upright)
    behind.copy_(offset)
    if met is None:
        ends.copy_(v)
    else:
        torch.lerp(middle, table, scale, out=ends)
        ends.T.index_copy_(1, met, v.T)


def _parts(flat: Tensor, words: int, upright: bool) -> tuple[Tensor, Tensor]:
    """The weights [words, outputs] and the rest of a flat vector."""
    outputs = len(flat) // (words + 1)
    table, rest = flat[: outputs * words], flat[outputs * words :]
    return table.view(words, outputs) if upright else table.view(outputs, words).T, rest


def _columns(table: Tensor, met: Tensor | None) -> Tensor:
    """A copy of the weights of these words, or of all."""
    some = table if met is None else table.T.index_select(1, met).T
    return some.clone(memory_format=torch.contiguous_format)


def _outputs(weights: Tensor, place: Tensor, share: Tensor) -> Tensor:
    """Σ of a row's words, each with its share: [rows, outputs]."""
    return nn.functional.embedding_bag(place, weights, per_sample_weights=share, mode="sum")


def _steps(
    w: Tensor,
    towards: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    lr: float,
    pull: float,
    *how: Any,
) -> Tensor:
    """Of one task, or of several stacked; what all read is not."""
    after = torch.empty(w.shape, dtype=w.dtype)
    if w.ndim == 1:
        _steps_of_one(after, w, towards, Batches(x, y, weight), lr, pull, how)
    else:
        for own, before, middle, *rows in zip(after, w, towards, x, y, weight, strict=True):
            _steps_of_one(own, before, middle, Batches(*rows), lr, pull, how)
    return after


def _mapped(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
    def stacked(value: Any, dim: int | None) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)

    return torch.ops.tacit.bag_steps(*map(stacked, given, in_dims)), 0


torch.library.define(
    "tacit::bag_steps",
    "(Tensor w, Tensor towards, Tensor x, Tensor y, Tensor weight, float lr, float pull, "
    "float steepest, int words, bool upright, str kind) -> Tensor",
)
torch.library.impl("tacit::bag_steps", "CPU", _steps)
torch.library.register_vmap("tacit::bag_steps", _mapped)
