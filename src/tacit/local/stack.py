"""How a task weighs several models of its own, by predictions for rows that they have not seen.

Leo Breiman. "Stacked regressions." Machine Learning, 1996. Weights are at least zero and add up to
one, so what is combined never leaves the range of what is combined. A dozen rows always favour some
model by chance; so weights are drawn to a given place, as hard as `ROWS` rows would draw.

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

ROWS = 4.0
"""So many rows' worth of what everybody is drawn to."""
FOLDS = 5
SWEEPS, STEPS = 12, 60


def folds(offsets: Tensor, keys: Tensor, many: int = FOLDS) -> Tensor:
    """The fold of every row: each task's rows, shuffled by its own key, take turns."""
    counts = offsets[1:] - offsets[:-1]
    rank = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    row = torch.arange(len(rank), device=counts.device) - offsets[rank]
    order = torch.argsort(scramble(keys[rank], row))
    order = order[torch.argsort(rank[order], stable=True)]
    fold = torch.empty_like(row)
    fold[order] = row % many
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
    kind: Kind, said: Tensor, y: Tensor, offsets: Tensor, drawn_to: Tensor, counted: Tensor
) -> Tensor:
    """Each task's weights [k, models].

    said : [models, rows, outputs] for rows that the models have not seen
    drawn_to : [k, models] weights without any row
    counted : [rows] which rows count, true or false
    """
    inside = counted.to(said)
    if kind in NUMBERS:
        return _least_squares(y - said[..., 0], inside, offsets, drawn_to)
    seen = chance(said, y).clamp(min=1e-12)
    counts = offsets[1:] - offsets[:-1]
    weights, pull = drawn_to, ROWS * drawn_to
    for _ in range(STEPS):
        each = torch.repeat_interleave(weights, counts, dim=0).T * seen
        each = each / each.sum(dim=0) * inside
        weights = per_task(each, offsets).T + pull
        weights = weights / weights.sum(dim=1, keepdim=True)
    return weights


def _least_squares(errors: Tensor, inside: Tensor, offsets: Tensor, drawn_to: Tensor) -> Tensor:
    """Moves weight between two models at a time, each time as far as is best."""
    models, weights = len(errors), drawn_to.clone()
    pairs = [(a, b) for a in range(models) for b in range(a)]
    products = torch.stack(
        [errors[a] * errors[b] * inside for a in range(models) for b in range(models)]
    )
    gram = per_task(products, offsets).T.reshape(-1, models, models)
    rows = per_task(inside.unsqueeze(0), offsets)[0]
    each = torch.diagonal(gram, dim1=1, dim2=2) / rows.clamp(min=1).unsqueeze(1)
    # A model without any error is a unit of nothing: then rounding is the unit.
    unit = torch.maximum(each.amin(dim=1), 1e-12 * each.amax(dim=1)).clamp(min=1e-300)
    gram, eye = gram / unit[:, None, None], torch.eye(models).to(gram)
    gram, aim = gram + ROWS * eye, ROWS * drawn_to
    for _ in range(SWEEPS):
        for a, b in pairs:
            slope = (gram[:, a] - gram[:, b]) * weights
            slope = slope.sum(dim=1) - aim[:, a] + aim[:, b]
            curve = gram[:, a, a] + gram[:, b, b] - 2 * gram[:, a, b]
            move = (-slope / curve.clamp(min=1e-12)).clamp(min=-weights[:, a], max=weights[:, b])
            weights[:, a] += move
            weights[:, b] -= move
    return weights / weights.sum(dim=1, keepdim=True)


def per_task(values: Tensor, offsets: Tensor) -> Tensor:
    """[.., rows] -> [.., k]: sums over each task's rows."""
    return torch.segment_reduce(values.T.contiguous(), "sum", offsets=offsets, axis=0).T
