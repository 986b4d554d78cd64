"""Predictions of many personal models on their own tasks' rows, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import vmap

from tacit.federation import Rows
from tacit.local.flat import FlatModel

Personal = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Task numbers -> their personal parameters [k, d] and buffers [k, b]."""


def outputs(
    model: FlatModel,
    personal: Personal,
    rows: Rows,
    tasks: Tensor,
    chunk_rows: int,
    chunk_tasks: int,
) -> Tensor:
    """Raw outputs for the rows of `tasks`, in the order of `select(rows, tasks)`.

    At most so many rows, and so many models, are looked at together.
    """
    counts = rows.count(tasks)
    begin = counts.cumsum(0) - counts
    result: Tensor | None = None
    for members in _chunks(counts, chunk_rows, chunk_tasks):
        place = torch.arange(int(counts[members].max()), device=counts.device)
        inside = place < counts[members].unsqueeze(1)
        position = torch.minimum(place, counts[members].unsqueeze(1) - 1)
        x = rows.x[rows.offsets[tasks[members]].unsqueeze(1) + position]
        out = vmap(model.predict, randomness="different")(*personal(tasks[members]), x)
        if result is None:
            result = out.new_zeros((int(counts.sum()), *out.shape[2:]))
        result[(begin[members].unsqueeze(1) + position)[inside]] = out[inside]
    assert result is not None
    return result


def select(rows: Rows, tasks: Tensor) -> Rows:
    """The rows of some tasks only, as rows of a smaller federation."""
    counts = rows.count(tasks)
    begin = counts.cumsum(0) - counts
    rank = torch.repeat_interleave(torch.arange(len(tasks), device=counts.device), counts)
    index = rows.offsets[tasks][rank] + torch.arange(len(rank), device=counts.device) - begin[rank]
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Rows(rows.x[index], rows.y[index], offsets)


def _chunks(counts: Tensor, chunk_rows: int, chunk_tasks: int) -> Iterator[Tensor]:
    """Groups of tasks of similar size, so that little of a padded chunk is filler."""
    order = torch.argsort(counts)
    order = order[counts[order] > 0]
    sizes = counts[order].tolist()
    begin = 0
    while begin < len(sizes):
        end, most = begin + 1, min(len(sizes), begin + chunk_tasks)
        while end < most and (end - begin + 1) * sizes[end] <= chunk_rows:
            end += 1
        yield order[begin:end]
        begin = end
