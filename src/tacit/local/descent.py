"""A step of gradient descent: gradients joined, the pull towards a point, and the step.

Parameters of a hundred networks are gigabytes to read and to write, and as single operations the
step goes over them eight times. On a GPU one kernel for each of the model's tensors goes over them
once, whatever layout a gradient came in. Beside it is the same in plain PyTorch, which other
devices run and tests compare with.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tacit import gpu
from tacit.local.fused import with_more_tasks

LONG = 1 << 12
"""Shorter models spend no time in their steps."""
DIMS = 4
"""A kernel follows strides of so many dimensions."""


def descend(
    w: Tensor,
    slopes: list[Tensor],
    lr: float | Tensor,
    pull: float | Tensor = 0.0,
    towards: Tensor | None = None,
) -> Tensor:
    """w − lr · (slope + pull · (w − towards)) of one task.

    The slope comes in parts of any shape, one after the other as they are in `w` [d].
    """
    if isinstance(pull, (int, float)) and not pull:
        towards = None
    plain = isinstance(lr, Tensor) or isinstance(pull, Tensor) or len(w) < LONG
    if plain or w.dtype != torch.float32 or not gpu.usable(w.device):
        return _stepped(w, joined(slopes), lr, pull, towards)
    led = (None if part is None else part.unsqueeze(0) for part in (w, towards))
    parts = [part.unsqueeze(0) for part in slopes]
    return torch.ops.tacit.descend(*led, parts, lr, float(pull)).squeeze(0)


def joined(parts: list[Tensor]) -> Tensor:
    """As one flat vector."""
    return parts[0] if len(parts) == 1 and parts[0].ndim == 1 else _cat(parts)


def _cat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _stepped(
    w: Tensor,
    slope: Tensor,
    lr: float | Tensor,
    pull: float | Tensor,
    towards: Tensor | None,
) -> Tensor:
    if towards is not None:
        slope = slope + pull * (w - towards)
    return w - lr * slope if isinstance(lr, Tensor) else torch.add(w, slope, alpha=-lr)


# The operator: everything is led by a task axis.


def _descend(
    w: Tensor, towards: Tensor | None, slopes: list[Tensor], lr: float, pull: float
) -> Tensor:
    slope = torch.cat([part.reshape(len(w), -1) for part in slopes], dim=1)
    return _stepped(w, slope, lr, pull, towards)


def _descend_fast(
    w: Tensor, towards: Tensor | None, slopes: list[Tensor], lr: float, pull: float
) -> Tensor:
    tasks, begin, out = len(w), 0, torch.empty(w.shape, device=w.device)
    w = w if w.stride(1) == 1 else w.contiguous()
    aim = w if towards is None else towards
    aim = aim if aim.stride(1) == 1 else aim.contiguous()
    for part in slopes:
        part, shape, strides = _places(part)
        rows, columns = shape[0], math.prod(shape[1:])
        high, wide = (32, 64) if rows > 1 else (1, 1024)
        grid = (-(-rows // high) * -(-columns // wide), tasks)
        gpu.load().descend[grid](
            w, aim, part, out, lr, pull, begin, w.stride(0), aim.stride(0), out.stride(0),
            part.stride(0), *strides, *shape, towards is not None, high, wide,
        )  # fmt: skip
        begin += rows * columns
    return out


def _places(part: Tensor) -> tuple[Tensor, list[int], list[int]]:
    """A part, and a task's sizes and strides in exactly four dimensions; a vector is a row."""
    if not 3 <= part.ndim <= 1 + DIMS:
        part = part.reshape(len(part), 1, -1)
    fill = [1] * (1 + DIMS - part.ndim)
    shape, strides = list(part.shape[1:]), list(part.stride()[1:])
    return part, shape[:1] + fill + shape[1:], strides[:1] + fill + strides[1:]


torch.library.define(
    "tacit::descend",
    "(Tensor w, Tensor? towards, Tensor[] slopes, float lr, float pull) -> Tensor",
)
torch.library.impl("tacit::descend", "CPU", _descend)
torch.library.impl("tacit::descend", "CUDA", _descend_fast)


def _for_more_tasks(info: Any, in_dims: Any, *given: Any) -> Any:
    outputs, _ = with_more_tasks(
        lambda *merged: (torch.ops.tacit.descend(*merged),), info, in_dims, *given
    )
    return outputs[0], 0


torch.library.register_vmap("tacit::descend", _for_more_tasks)
