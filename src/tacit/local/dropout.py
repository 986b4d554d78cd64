"""Dropout whose masks are a task's own.

PyTorch draws masks for a whole chunk of tasks from one stream of random numbers, so that a task's
mask would depend on its place among the others. Here a mask is hashed from a key that belongs to
the task and the round, the number of the dropout call, and the place of the number in the layer.

`with own_chance(key):` goes around the code of one task; `dropped` is what layers run. Layers that
draw random numbers in any other way are refused when the model is tried out.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.randomness import scramble


class _Chance(threading.local):
    """The key of the task whose code a thread is running, and how many masks it drew."""

    def __init__(self) -> None:
        self.keys: list[tuple[Tensor, Iterator[int]]] = []


_chance = _Chance()

_SELU = -1.7580993408473766
"""What SELU tends to for large negative inputs: what alpha dropout puts in place of a value."""


@contextlib.contextmanager
def own_chance(key: Tensor) -> Iterator[None]:
    """Masks inside are drawn with this key (one 64-bit integer)."""
    _chance.keys.append((key, itertools.count()))
    try:
        yield
    finally:
        _chance.keys.pop()


def _kept(like: Tensor, share: float, by_channel: bool) -> Tensor:
    """Which numbers (or whole channels) stay, as a tensor that broadcasts with `like`."""
    if not _chance.keys:
        raise RuntimeError("dropout draws random numbers here, where no task is training")
    key, calls = _chance.keys[-1]
    shape = (*like.shape[:2], *[1] * (like.ndim - 2)) if by_channel else like.shape
    place = torch.arange(math.prod(shape), device=like.device)
    drawn = scramble(scramble(key, next(calls)), place) >> 11 & (1 << 52) - 1
    return (drawn >= round(share * 2**52)).reshape(shape)


def _plain(input: Tensor, share: float, by_channel: bool) -> Tensor:
    if share == 1:
        return torch.zeros_like(input)
    return input * (_kept(input, share, by_channel).to(input.dtype) / (1 - share))


def _alpha(input: Tensor, share: float, by_channel: bool) -> Tensor:
    """Keeps mean and variance of SELU's activations (Klambauer et al. 2017)."""
    if share == 1:
        return torch.zeros_like(input)
    scale = ((1 - share) * (1 + share * _SELU**2)) ** -0.5
    kept = _kept(input, share, by_channel)
    return scale * torch.where(kept, input, _SELU) - scale * share * _SELU


_LAYERS: dict[Any, tuple[Callable[[Tensor, float, bool], Tensor], bool]] = {
    functional.dropout: (_plain, False),
    functional.dropout1d: (_plain, True),
    functional.dropout2d: (_plain, True),
    functional.dropout3d: (_plain, True),
    functional.alpha_dropout: (_alpha, False),
    functional.feature_alpha_dropout: (_alpha, True),
}


def is_dropout(func: Any) -> bool:
    return func in _LAYERS


def dropped(
    func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """What `func` of `torch.nn.functional` does, with the task's own mask."""
    if not training or p == 0:
        return input
    mask, by_channel = _LAYERS[func]
    return mask(input, p, by_channel)
