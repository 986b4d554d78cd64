"""Many strengths: warm-started paths, where a path begins, and the choice by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.classical.problem import Problem
from tacit.classical.proximal import GROUP, L1, TRACE, Fit, Norm
from tacit.classical.solvers import group_sparse, lasso, trace_norm
from tacit.errors import TacitError


class Solver(Protocol):
    """One of `SOLVERS`, or one of them with `functools.partial`."""

    def __call__(
        self, problem: Problem, strength: float, /, *, start: Tensor | None = None
    ) -> Fit: ...


NORMS: dict[object, Norm] = {lasso: L1, group_sparse: GROUP, trace_norm: TRACE}


def path(solver: Solver, problem: Problem, strengths: Sequence[float]) -> list[Fit]:
    """A fit for each strength, in the order given.

    Solved from the strongest down, each from the one before: a strong penalty is quick to solve,
    and its neighbour begins near its own solution.
    """
    fits: dict[float, Fit] = {}
    start: Tensor | None = None
    for strength in sorted(set(strengths), reverse=True):
        fits[strength] = solver(problem, strength, start=start)
        start = fits[strength].w
    return [fits[strength] for strength in strengths]


def strongest(problem: Problem, solver: Solver) -> float:
    """The smallest strength at which nothing but intercepts is left: the dual norm of the gradient.

    Only `lasso`, `group_sparse` and `trace_norm` have one.
    """
    if solver not in NORMS:
        known = ", ".join(norm.__name__ for norm in (lasso, group_sparse, trace_norm))
        raise TacitError(
            f"no strength makes this penalty's models zero; those of {known} become it"
        )
    gradient = problem.gradient(problem.null())[:, : problem.penalised]
    return float(NORMS[solver].dual(gradient))


@dataclass(frozen=True)
class Choice:
    """What cross-validation found."""

    strengths: tuple[float, ...]
    """Those that were tried."""
    scores: Tensor
    """Mean loss of held-out rows [strengths, folds]: squared error, or logistic loss."""
    strength: float
    """The one with the lowest mean score."""
    fit: Fit
    """With that strength, on all rows."""


def cross_validate(
    solver: Solver, problem: Problem, strengths: Sequence[float], folds: int = 5, seed: int = 0
) -> Choice:
    """The best of the strengths; every task is split into folds on its own."""
    if not strengths:
        raise TacitError("there are no strengths to choose from: give at least one")
    fold = within_tasks(problem, folds, seed)
    scores = torch.empty(len(strengths), folds, dtype=torch.float64)
    for number in range(folds):
        held = problem.subset(fold == number)
        if not len(held.y):
            raise TacitError(f"{folds} folds are too many: no task has so many rows")
        fits = path(solver, problem.subset(fold != number), strengths)
        losses = torch.stack([held.row_losses(fit.w).mean() for fit in fits])
        scores[:, number] = losses * (2 if problem.loss == "squared" else 1)
    best = int(scores.mean(dim=1).argmin())
    stronger = [strength for strength in strengths if strength >= strengths[best]]
    fit = path(solver, problem, stronger)[stronger.index(strengths[best])]
    return Choice(tuple(strengths), scores, strengths[best], fit)


def within_tasks(problem: Problem, folds: int, seed: int) -> Tensor:
    """The fold of each row: the rows of a task are dealt out in turn, from a fold drawn for it.

    A task with a single row keeps it in training always (fold −1): without it the task would have
    nothing to learn from.
    """
    if folds < 2:
        raise TacitError(f"there must be at least two folds, not {folds}")
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(len(problem.y), generator=generator, dtype=torch.float64)
    first = torch.randint(folds, (problem.tasks,), generator=generator)
    owner = problem.owner.cpu()
    order = torch.argsort(owner + draw)  # a draw is below one, so tasks stay in their order
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - problem.offsets.cpu()[owner]
    fold = (rank + first[owner]) % folds
    fold[problem.counts.cpu()[owner] == 1] = -1
    return fold.to(problem.x.device)
