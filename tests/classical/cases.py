"""Small problems that the tests of this folder share."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.classical import Problem
from tacit.data.federation import Rows

KINDS = ("regression", "binary")


def rows_of(x: Tensor, y: Tensor, counts: list[int]) -> Rows:
    return Rows(x, y, torch.tensor([0, *counts]).cumsum(0))


def generated(
    kind: str, counts: list[int], features: int, intercept: bool = True, seed: int = 0
) -> Problem:
    """Tasks with a common part, features of unequal size that are off centre, and noise."""
    draw = torch.Generator().manual_seed(seed)
    rows = sum(counts)
    x = torch.randn(rows, features, generator=draw, dtype=torch.float64)
    x = x * torch.linspace(0.5, 2, features, dtype=torch.float64) + 0.7
    common = torch.randn(features, generator=draw, dtype=torch.float64)
    own = common + 0.5 * torch.randn(len(counts), features, generator=draw, dtype=torch.float64)
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    noise = torch.randn(rows, generator=draw, dtype=torch.float64)
    y = (x * own[owner]).sum(dim=1) + noise
    if kind == "binary":
        y = (y > y.median()).double()
    return Problem.of(rows_of(x, y, counts), kind, intercept)  # type: ignore[arg-type]


def random_models(problem: Problem, seed: int = 1) -> Tensor:
    shape = (problem.tasks, problem.x.shape[1])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
