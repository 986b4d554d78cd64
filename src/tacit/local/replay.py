"""A list of operations recorded on the GPU and replayed as one.

A local step of a small model is a hundred short operations, and launching one takes longer than
running it. The GPU can record them once (a CUDA graph) and replay them at a single launch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx

WARM = 2
"""Calls before recording: what is called once or twice is not worth it."""


LARGEST = 1 << 30
"""Bytes of arguments: more than that keeps a GPU busy for so long that launches do not count, and a
recording would hold all of it a second time."""


class Replay:
    """Calls `graph`, recorded from the third call on; arguments must keep shapes and strides."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = graph
        self._calls = 0
        self._record: tuple[torch.cuda.CUDAGraph, list[Tensor], list[Tensor]] | None = None
        self.refused: str | None = None
        self._recordable = True

    def __call__(self, *arguments: Tensor) -> list[Tensor]:
        self._calls += 1
        if self._record is None and self._recordable and self._calls > WARM:
            self._try_to_record(arguments)
        if self._record is None:
            return self._graph(*arguments)
        recording, inputs, outputs = self._record
        _fill(inputs, arguments)
        recording.replay()
        # The recording owns its memory and writes there again: hand out copies.
        return [value.clone() for value in outputs]

    def _try_to_record(self, arguments: tuple[Tensor, ...]) -> None:
        if sum(value.numel() * value.element_size() for value in arguments) > LARGEST:
            self._recordable, self.refused = False, "the arguments are too large"
            return
        try:
            inputs = [_like(value) for value in arguments]
            _fill(inputs, arguments)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries set themselves up outside the recording
                self._graph(*inputs)
            torch.cuda.current_stream().wait_stream(stream)
            recording = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recording, pool=_pool()[0]):
                outputs = self._graph(*inputs)
            self._record = (recording, inputs, list(outputs))
        except RuntimeError as error:  # an operation that cannot be recorded: go on as before
            self._recordable, self.refused = False, str(error)
            torch.cuda.synchronize()


@lru_cache(maxsize=1)
def _pool() -> tuple[Any, torch.cuda.CUDAGraph]:
    """One memory pool for all recordings: they run one after the other, results are copied out.

    PyTorch forgets a pool that no recording uses any more, so one recording is never dropped.
    """
    pool, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(keeper, pool=pool):
        torch.zeros(1, device="cuda")
    return pool, keeper


def _like(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _fill(places: list[Tensor], values: tuple[Tensor, ...]) -> None:
    for place, value in zip(places, values, strict=True):
        # Where rows lie on top of each other (an expanded axis), the first is all of them.
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in value.stride())
        place[once].copy_(value[once])
