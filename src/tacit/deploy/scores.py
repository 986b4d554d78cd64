"""Scores on their way out of a silo, and what a release of their mean says.

A score and a loss, each divided by the worst that it is counted as, are together a vector of length
at most √2; divided by that, they are bounded like any contribution.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit import metrics
from tacit.data.federation import Federation, Part
from tacit.deploy.work import SCORES, Work
from tacit.errors import TacitError

WORST_LOSS = 4.0
"""Losses (and errors of regression, in standard deviations) beyond this are released as this."""


def _worst(federation: Federation) -> tuple[str, Tensor]:
    """The name of the score, and the worst that score and loss are counted as."""
    name, higher = metrics.main_score(federation.kind, federation.heads)
    return name, torch.tensor([1.0 if higher else WORST_LOSS, WORST_LOSS])


def bound_scores(work: Work) -> Tensor:
    """Score and loss of this silo's own model as a vector of length at most one."""
    tasks = work.reopen()
    if tasks is None:
        raise TacitError("this silo has no model yet")
    part: Part = "test" if len(tasks.federation.test.y) else "validation"
    found = tasks.measure(part, torch.tensor([work.task])).overall
    name, worst = _worst(tasks.federation)
    pair = torch.tensor([_known(found[name]), _known(found["loss"])]) / worst
    return (torch.nan_to_num(pair, nan=1.0).clamp(0.0, 1.0) / math.sqrt(SCORES)).float()


def release_scores(federation: Federation, mean: Tensor, noise: float) -> dict[str, float]:
    """Means over silos in their own units, with the standard deviation of the noise on them."""
    name, worst = _worst(federation)
    unit = worst * math.sqrt(SCORES)
    score, loss = (mean.cpu() * unit).tolist()
    of_score, of_loss = (noise * unit).tolist()
    return {name: score, "loss": loss, f"{name} noise": of_score, "loss noise": of_loss}


def _known(value: float | None) -> float:
    return math.nan if value is None else value
