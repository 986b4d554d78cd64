"""What a task of a mixed model ends with: what it was told, weighed by its own rows.

Written for one task. Published variances are noisy, and no two tasks are alike; so a task averages
over what it may believe instead of believing what was published.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.data.federation import Kind
from tacit.local.bayes import average, bell, solve_each
from tacit.local.beliefs import beliefs
from tacit.local.mixed import level
from tacit.local.wide import Priors

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""By which the variance of own effects may differ from the published one."""
OWN_SLOPES = ((0.0, 0.4), (0.1, 0.25), (1.0, 0.2), (10.0, 0.15))
"""What own slopes in all columns may explain, over σ², nothing at first, and the chance that it is
so much."""
ALONE, BY_ITSELF = (1.0, 10.0, 100.0), 0.1
"""What a model that a task finds alone may explain, over σ², and the chance of such a model."""
WIDER = (1.0, 3.0, 10.0)
"""How much more than Poisson's the variance of counts may be, which nobody publishes: two counts
far apart would otherwise be taken for a slope.

The likelihood is extended to such variances as by John Nelder and Daryl Pregibon, "An extended
quasi-likelihood function", Biometrika, 1987."""
MOST, MOST_ARE_WITHIN = 0.8, 1.2816
"""So many of a bell's rows are within so many standard deviations."""
FAR = 5.0
"""Residuals are bounded by so many standard deviations: rows far out also tell most of slopes."""


def settled(
    kind: Kind,
    rows: tuple[Tensor, Tensor, Tensor],
    beta: Tensor,
    own: Tensor,
    rest: Tensor,
    by_itself: float = BY_ITSELF,
) -> Tensor:
    """The mean of what a task may believe, each as likely as its own rows say.

    Own effects of several sizes around the published one, which is noisy (σ²·own·ownᵀ); slopes of
    its own in all columns; and no use of the others at all.
    """
    x, _, counts = rows = _without_outliers(kind, rows, beta, rest)
    # A column whose unit is too small must not look like one with large slopes.
    squares = (counts.unsqueeze(1) * x * x).sum(0) / counts.sum().clamp(min=1.0)
    each = 1 / (1 + squares)
    spread = torch.sqrt(each / (each * squares).sum().clamp(min=1e-9))
    slopes, chances = zip(*OWN_SLOPES, strict=True)
    beside = bell(len(FACTORS)).unsqueeze(1) + torch.tensor(chances, dtype=beta.dtype).log()
    beside = beside + math.log1p(-by_itself)
    alone = torch.full((len(ALONE),), by_itself / len(ALONE), dtype=beta.dtype).log()
    if kind == "regression":
        found = beliefs(rows, beta, own, spread, rest, factors=FACTORS, slopes=slopes, alone=ALONE)
        likely = torch.cat([beside.flatten(), alone]).to(beta)
        return found.average(torch.softmax(found.evidence + likely, dim=0))
    likely = torch.cat([beside.T.flatten(), alone]).to(beta)
    many, each, about = beside.numel(), torch.zeros_like(likely), torch.zeros_like(beta)
    if kind == "count":  # a score of zero is one event a row, which is nobody's choice
        about = torch.cat([about[:-1], level(kind, rows, 1)])
    priors = Priors(
        torch.cat([beta.expand(many, -1), about.expand(len(ALONE), -1)]),
        own,
        spread,
        torch.cat([torch.tensor(FACTORS * len(slopes)).to(beta), each[many:]]),
        torch.tensor(slopes[1:] + ALONE).to(beta),
        [len(FACTORS)] * (len(slopes) - 1) + [1] * len(ALONE),
        bare=len(FACTORS),
    )
    if kind != "count":
        weights, evidence = solve_each(kind, rows, priors)
        return average(weights, evidence + likely)
    return _of_counts(rows, priors, likely)


def _of_counts(rows: tuple[Tensor, Tensor, Tensor], priors: Priors, likely: Tensor) -> Tensor:
    """The mean over all widths, too."""
    (x, y, counts), found = rows, []
    perfect = (torch.xlogy(y, y) - y) @ counts  # so that widths can be compared
    for wider in WIDER:
        weights, evidence = solve_each("count", (x, y, counts / wider), priors)
        evidence = evidence - perfect / wider - counts.sum() / 2 * math.log(wider)
        found.append((weights, evidence + likely))
    weights, evidence = (torch.cat(side) for side in zip(*found, strict=True))
    return average(weights, evidence)


def _without_outliers(
    kind: Kind, rows: tuple[Tensor, Tensor, Tensor], beta: Tensor, rest: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Residuals far from the task's own median one are brought nearer: σ² was found without such.

    Far is far both for everybody and for the task, whose own slopes may be anything. One wild row
    would otherwise decide the own effects of a task with few rows.
    """
    x, y, counts = rows
    if kind != "regression":
        return rows
    error = y - x @ beta
    middle = _quantile(error, counts, 0.5)
    usual = _quantile((error - middle).abs(), counts, MOST) / MOST_ARE_WITHIN
    most = FAR * torch.maximum(torch.sqrt(rest), usual)
    near = y - error + middle + torch.clamp(error - middle, -most, most)
    return x, near * counts, counts


def _quantile(values: Tensor, counts: Tensor, share: float) -> Tensor:
    """Of the rows that count; zero where none does."""
    ordered = torch.where(counts > 0, values, torch.inf).sort().values
    place = (share * (counts.sum() - 1).clamp(min=0.0)).long().reshape(1)
    return torch.nan_to_num(ordered.gather(0, place), posinf=0.0)
