"""What a task can make of its own rows without anybody: a constant, an exact linear model.

Both say what they expect in the units that the run trains in: numbers, counts, or probabilities
(`mean_of` turns a model's raw outputs into these, `raw_of` back).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.data.federation import Kind, Rows
from tacit.families import HALF, expected_count
from tacit.local.batches import Batches
from tacit.local.bayes import average, design, grid, posterior
from tacit.local.stack import per_task

SURE = 1e-6
"""No probability is nearer to zero or one."""
STRENGTHS = {True: (3.0, 4.0, 9), False: (0.0, 2.0, 5)}
"""Where a linear model looks for its strength (see `local.bayes`): the middle, how far, how many
points. Numbers (true) can be predicted almost without error, so their range is wide."""


def half_cauchy(strengths: Tensor) -> Tensor:
    """Logarithm of how likely strengths are before any row is seen.

    Their roots are half-Cauchy (Andrew Gelman. "Prior distributions for variance parameters in
    hierarchical models." Bayesian Analysis, 2006): columns may tell nothing, and a dozen rows
    cannot say so by themselves; very strong ones are rare but not impossible.
    """
    root = 10.0 ** (strengths / 2)
    return torch.log(root / (1 + root * root))


def mean_of(kind: Kind, out: Tensor) -> Tensor:
    """What raw outputs [rows, k] (or [rows]) expect: [rows, outputs]."""
    out = out.unsqueeze(-1) if out.ndim == 1 else out
    if kind == "regression":
        return out
    if kind in ("count", "survival"):
        return expected_count(out)
    # The last numbers of a tensor come out of torch.sigmoid with other bits: how many rows others
    # have would move a task's own.
    chances = 1 / (1 + (-out).exp()) if out.shape[-1] == 1 else out.softmax(dim=-1)
    return chances.clamp(SURE, 1 - SURE)


def raw_of(kind: Kind, mean: Tensor) -> Tensor:
    """The raw outputs that expect this."""
    if kind == "regression":
        return mean
    if kind in ("count", "survival"):
        return mean.clamp(min=SURE).log()
    mean = mean.clamp(SURE, 1 - SURE)
    return mean.logit() if mean.shape[-1] == 1 else mean.log()


def coded(kind: Kind, y: Tensor, outputs: int) -> Tensor:
    """Targets as what a perfect model would expect: [rows, outputs]."""
    if kind == "multiclass":
        return torch.nn.functional.one_hot(y.long(), outputs).float()
    return y.float().unsqueeze(-1)


def constants(kind: Kind, rows: Rows, outputs: int) -> Tensor:
    """Each task's own mean [k, outputs]; classes that it never saw stay possible.

    Of an outcome over time its own hazards, as if one more interval had been lived through each
    time at the hazard of all.
    """
    if kind == "survival":
        lived, events = rows.y.nan_to_num().abs(), (rows.y < 0)
        lived, events = (per_task(side.T.double(), rows.offsets).T for side in (lived, events))
        usual = (events.sum(1, keepdim=True) + HALF) / (lived.sum(1, keepdim=True) + 1)
        return (events + usual) / (lived + 1)
    sums = per_task(coded(kind, rows.y, outputs).T.double(), rows.offsets).T
    counts = rows.counts.unsqueeze(1).double()
    if kind == "regression":
        return sums / counts.clamp(min=1)
    if kind == "count":
        return (sums + HALF) / (counts + 1)
    return (sums + 1 / max(outputs, 2)) / (counts + 1)


def linear_alone(kind: Kind, batches: Batches, outputs: int) -> Tensor:
    """One task's exact linear model [outputs, d + 1], averaged over strengths by their evidence.

    Columns are scaled inside the task, and numbers are centred: so nothing is drawn to zero that is
    zero by nobody's choice.
    """
    width = batches.x[0][0].numel() + 1
    x, y, counts = design(batches, width)
    many = counts.sum().clamp(min=1.0)
    middle = x.sum(0) / many
    spread = torch.sqrt(((x - middle) ** 2 * counts.unsqueeze(1)).sum(0) / many)
    constant = spread <= 1e-6 * middle.abs()
    last = torch.arange(width, device=x.device) == width - 1
    scale = torch.where(constant, torch.inf, spread)
    scale, middle = torch.where(last, 1.0, scale), torch.where(last, 0.0, middle)
    level, reach = y.new_zeros(()), y.new_ones(())
    if kind == "regression":
        level = y.sum() / many
        reach = torch.sqrt(((y - level) ** 2 * counts).sum() / many).clamp(min=1e-30)
    rows = (x - middle) / scale * counts.unsqueeze(1), (y - level) / reach * counts, counts
    centre, far, points = STRENGTHS[kind == "regression"]
    strengths, zero = grid(centre, far / 2, points).to(x), x.new_zeros(outputs * width)
    each, evidence = posterior(kind, rows, zero, None, strengths)
    found = average(each, evidence + half_cauchy(strengths)).reshape(outputs, width)
    w = reach * found / scale
    bias = w[:, -1] - w @ torch.where(last, 0.0, middle) + level
    return torch.cat([w[:, :-1], bias.unsqueeze(1)], dim=1)


def linear_raw(w: Tensor, x: Tensor) -> Tensor:
    """Raw outputs [rows, outputs] of each row's own linear model [rows, outputs, d + 1]."""
    return torch.einsum("noi,ni->no", w[..., :-1], x.flatten(1).to(w)) + w[..., -1]
