"""Predictions of many personal models on their own tasks' rows, all at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import Rows
from tacit.local.chunks import Chunk, chunks, slots_for, widths_of
from tacit.local.flat import FlatModel
from tacit.local.losses import ROW_LOSSES
from tacit.local.threads import abreast_for, side_by_side, threads_for
from tacit.local.together import Together

ROWS_AT_ONCE = 65536
MODEL_BYTES = 256 << 20
"""Memory for the models that predict together."""
Personal = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Task numbers -> their personal parameters [k, d] and buffers [k, b]."""


def rows_from(models: tuple[Tensor, Tensor], place: Tensor | None = None) -> Personal:
    """Models that are there already; `place[task]` is a task's own, by default its number."""
    w, buffers = models

    def personal(tasks: Tensor) -> tuple[Tensor, Tensor]:
        index = tasks if place is None else place[tasks]
        return w[index], buffers[index]

    return personal


def outputs(
    model: FlatModel,
    personal: Personal,
    rows: Rows,
    tasks: Tensor,
    limit: Callable[[int], int],
    about: int | None = None,
) -> Tensor:
    """Raw outputs for the rows of `tasks`, in the order of `select(rows, tasks)`.

    `limit(width)` models with so many rows each fit into memory. Where the number of those who are
    asked is private, `about` is what everybody knows of it.
    """
    return _each_row(model, personal, rows, tasks, limit, lambda out, y: out, about)


def outputs_by_task(model: FlatModel, personal: Personal, x: Tensor, task: np.ndarray) -> Tensor:
    """Raw outputs for rows in any order, each by the model of its `task`, a number."""
    device, order = model.start.device, np.argsort(task, kind="stable")
    present, counts = np.unique(task, return_counts=True)
    offsets = torch.from_numpy(np.append(0, np.cumsum(counts))).to(device)
    rows = Rows(x[order].to(device), torch.zeros(len(x), device=device), offsets)
    numbers, every = torch.from_numpy(present).to(device), torch.arange(len(present), device=device)
    out = outputs(
        model,
        lambda k: personal(numbers[k]),
        rows,
        every,
        lambda width: min(ROWS_AT_ONCE // width, MODEL_BYTES // (4 * model.size)),
    )
    back = torch.empty_like(out)
    back[order] = out
    return back


def losses(
    model: FlatModel, personal: Personal, rows: Rows, tasks: Tensor, limit: Callable[[int], int]
) -> Tensor:
    """The loss of each row, in the same order."""
    of_rows = ROW_LOSSES[model.kind]

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return of_rows(out.flatten(0, 1), y.flatten(0, 1)).unflatten(0, out.shape[:2])

    return _each_row(model, personal, rows, tasks, limit, loss)


def _each_row(
    model: FlatModel,
    personal: Personal,
    rows: Rows,
    tasks: Tensor,
    limit: Callable[[int], int],
    read: Callable[[Tensor, Tensor], Tensor],
    about: int | None = None,
) -> Tensor:
    """`read(outputs, targets)` of every row, computed in the chunks of `local.chunks`.

    So what a task's own model says about its rows does not depend on who else is asked.
    """
    counts, many = rows.count(tasks), len(tasks) if about is None else about
    begin = counts.cumsum(0) - counts
    having = counts.nonzero().squeeze(1)
    predict = _predictor(model, rows.x.device)

    def step(chunk: Chunk) -> tuple[Tensor, Tensor]:
        """Where the rows of a chunk go, and what is read off them."""
        numbers = chunk.width * math.prod(rows.x.shape[1:]) + model.size
        with threads_for(len(chunk.filled) * numbers, len(chunk.filled)):
            place = torch.arange(chunk.width, device=counts.device)
            position = torch.minimum(place, counts[chunk.filled].unsqueeze(1) - 1)
            index = rows.offsets[tasks[chunk.filled]].unsqueeze(1) + position
            out = predict(*personal(tasks[chunk.filled]), rows.x[index])
            found = read(out, rows.y[index])[: len(chunk.tasks)]
            inside = place < counts[chunk.tasks].unsqueeze(1)
            target = begin[chunk.tasks].unsqueeze(1) + position[: len(chunk.tasks)]
            return target[inside], found[inside]

    every = chunks(
        having,
        widths_of(counts[having], traced=False),
        lambda width: slots_for(many, many, limit(width), ragged=True),
    )
    result: Tensor | None = None
    for target, found in side_by_side(step, every, abreast_for(rows.x)):
        if result is None:
            result = found.new_zeros((int(counts.sum()), *found.shape[1:]))
        result.index_copy_(0, target, found)
    assert result is not None
    return result


def _predictor(model: FlatModel, device: torch.device) -> Callable[..., Tensor]:
    """For many models at once. A GPU runs it as one recording: most of these calls are short."""
    if device.type != "cuda":
        return vmap(model.predict)
    together: Together = model.traced.setdefault(
        "predict", Together(lambda _, own: model.predict(*own))
    )
    return lambda *own: together((), own)


def rows_of(rows: Rows, tasks: Tensor) -> tuple[Tensor, Tensor]:
    """Where the rows of these tasks are, task after task, and how many each has."""
    counts = rows.count(tasks)
    begin = counts.cumsum(0) - counts
    rank = torch.repeat_interleave(torch.arange(len(tasks), device=counts.device), counts)
    within = torch.arange(len(rank), device=counts.device) - begin[rank]
    return rows.offsets[tasks][rank] + within, counts


def select(rows: Rows, tasks: Tensor) -> Rows:
    """The rows of some tasks only, as rows of a smaller federation."""
    index, counts = rows_of(rows, tasks)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Rows(rows.x[index], rows.y[index], offsets)
