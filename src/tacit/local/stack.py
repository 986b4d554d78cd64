"""How a task weighs several models of its own, by predictions for rows that they have not seen.

Leo Breiman. "Stacked regressions." Machine Learning, 1996. Weights are at least zero and add up to
one, so what is combined never leaves the range of what is combined. A dozen rows always favour some
model by chance; so weights are drawn to a given place, as hard as a few rows would draw. They are
drawn there less to what foresees a usual row badly (that gives it little chance, or whose squared
errors are several times those of the best model): one in fifteen for a model that knows nothing
costs a model that is nearly sure a quarter of its log loss.

| target             | what is combined | what the weights minimise                      |
|--------------------|------------------|------------------------------------------------|
| numbers, counts    | predictions      | squared errors, over those of the best model   |
| yes or no, classes | probabilities    | log loss (by EM: each row asks who foresaw it) |

All tasks at once; no task sees another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.data.federation import NUMBERS, Kind
from tacit.randomness import scramble

ROWS, ROWS_OF_NUMBERS = 4.0, 2.0
"""So many rows' worth of what everybody is drawn to; a number says more than a yes or no."""
HOPELESS = 5.0
"""A model with so many times the squared error of the best gets no weight: a little of it, given by
chance, costs more than it can ever bring."""
FOLDS, FEWER, MANY = 5, 3, 200
"""So many folds, and fewer for a task with many rows: two thirds of them say as much as most."""
SWEEPS, STEPS = 12, 60


def folds(offsets: Tensor, keys: Tensor, most: int = FOLDS) -> Tensor:
    """The fold of every row: each task's rows, shuffled by its own key, take turns."""
    counts = offsets[1:] - offsets[:-1]
    many = torch.where(counts < MANY, most, min(most, FEWER))
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - offsets[rank]
    order = torch.argsort(scramble(keys[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    fold = torch.empty_like(row)
    fold[order] = row % many[rank]
    return fold


def losses(kind: Kind, said: Tensor, y: Tensor) -> Tensor:
    """[.., rows] of what is said [.., rows, outputs]: squared errors, or log losses."""
    if kind in NUMBERS:
        return (said[..., 0] - y) ** 2
    return -chance(said, y).log()


def chance(said: Tensor, y: Tensor) -> Tensor:
    """The probability that what is said gave to what came."""
    if said.shape[-1] == 1:
        return torch.where(y > 0.5, said[..., 0], 1 - said[..., 0])
    index = y.long().expand(said.shape[:-1]).unsqueeze(-1)
    return said.gather(-1, index)[..., 0]


def weigh(
    kind: Kind,
    said: Tensor,
    y: Tensor,
    offsets: Tensor,
    drawn_to: Tensor,
    counted: Tensor,
    pull: Tensor | None = None,
) -> Tensor:
    """Each task's weights [k, models].

    said : [models, rows, outputs] for rows that the models have not seen
    drawn_to : [k, models] weights without any row; zero for a model that a task does not have
    counted : [rows] which rows count, true or false
    pull : [k] how many rows' worth those are drawn whose numbers follow luck: they have no say in
        where to. 0 for others; None: there are none
    """
    inside = counted.to(said)
    if kind in NUMBERS:
        pull = drawn_to.new_zeros(len(drawn_to)) if pull is None else pull
        return _least_squares(y - said[..., 0], inside, offsets, drawn_to, pull.unsqueeze(1))
    seen = chance(said, y).clamp(min=1e-12)
    counts = offsets[1:] - offsets[:-1]
    # Nobody is drawn to what hardly ever foresees: each row would pay for the doubt.
    many = per_task(inside.unsqueeze(0), offsets).clamp(min=1)
    usual = drawn_to * (per_task(seen.log() * inside, offsets) / many).T.exp()
    weights, pull = drawn_to, ROWS * usual / usual.sum(dim=1, keepdim=True)
    for _ in range(STEPS):
        each = torch.repeat_interleave(weights, counts, dim=0).T * seen
        each = each / each.sum(dim=0) * inside
        weights = per_task(each, offsets).T + pull
        weights = weights / weights.sum(dim=1, keepdim=True)
    return weights


def _least_squares(
    errors: Tensor, inside: Tensor, offsets: Tensor, drawn_to: Tensor, pull: Tensor
) -> Tensor:
    """Moves weight between two models at a time, each time as far as is best."""
    models = len(errors)
    pairs = [(a, b) for a in range(models) for b in range(a)]
    products = torch.stack(
        [errors[a] * errors[b] * inside for a in range(models) for b in range(models)]
    )
    gram = per_task(products, offsets).T.reshape(-1, models, models)
    rows = per_task(inside.unsqueeze(0), offsets)[0]
    each = torch.diagonal(gram, dim1=1, dim2=2) / rows.clamp(min=1).unsqueeze(1)
    there = drawn_to > 0
    # A model without any error is a unit of nothing: then rounding is the unit.
    least = torch.where(there, each, torch.inf).amin(dim=1)
    unit = torch.maximum(least, 1e-12 * each.amax(dim=1)).clamp(min=1e-300).unsqueeze(1)
    there = there & (each <= HOPELESS * unit)
    usual = drawn_to * there * torch.where(pull > 0, 1.0, unit / torch.maximum(each, unit))
    pull = torch.where(pull > 0, pull, ROWS_OF_NUMBERS).to(gram)
    gram, eye = gram / unit.unsqueeze(2), torch.eye(models).to(gram)
    gram = gram + pull.unsqueeze(2) * eye
    weights = usual / usual.sum(dim=1, keepdim=True)
    there, aim = there.to(weights), pull * weights
    for _ in range(SWEEPS):
        for a, b in pairs:
            slope = (gram[:, a] - gram[:, b]) * weights
            slope = slope.sum(dim=1) - aim[:, a] + aim[:, b]
            curve = gram[:, a, a] + gram[:, b, b] - 2 * gram[:, a, b]
            move = (-slope / curve.clamp(min=1e-12)).clamp(min=-weights[:, a], max=weights[:, b])
            move = move * there[:, a] * there[:, b]
            weights[:, a] += move
            weights[:, b] -= move
    return weights / weights.sum(dim=1, keepdim=True)


def per_task(values: Tensor, offsets: Tensor) -> Tensor:
    """[.., rows] -> [.., k]: sums over each task's rows."""
    return torch.segment_reduce(values.T.contiguous(), "sum", offsets=offsets, axis=0).T
