"""Accelerated proximal gradient for `f(W) + penalty(W)`, and the penalties' proximal operators.

Amir Beck, Marc Teboulle. "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse
Problems." SIAM Journal on Imaging Sciences 2(1), 2009.
Brendan O'Donoghue, Emmanuel Candès. "Adaptive Restart for Accelerated Gradient Schemes."
Foundations of Computational Mathematics 15, 2015.
Jian-Feng Cai, Emmanuel Candès, Zuowei Shen. "A Singular Value Thresholding Algorithm for Matrix
Completion." SIAM Journal on Optimization 20(4), 2010.

| paper                                                    | here                            |
|----------------------------------------------------------|---------------------------------|
| Beck & Teboulle (4.1)–(4.3): FISTA, constant step        | `minimise`                      |
| O'Donoghue & Candès: restart, gradient scheme            | `minimise`, `uphill`            |
| Cai, Candès & Shen Theorem 2.1: singular values shrunk   | `TRACE.prox`                    |
| prox of ½‖·‖²_*: shrunk by t times the trace norm left   | `squared_trace_prox`            |
| prox of ‖·‖_{2,1} and ‖·‖₁                               | `GROUP.prox`, `L1.prox`         |

The iteration stops on a certificate. The proximal step from z to w leaves s = (z − w)/t − ∇f(z) in
the subdifferential of the penalty at w, so `‖∇f(w) + s‖` is at least the distance of −∇f(w) to that
subdifferential, whatever the penalty. That is `Fit.residual`, relative to `Problem.scale`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from tacit.classical.problem import Problem

Step = Tensor | float
Prox = Callable[[Tensor, Step], Tensor]
"""`prox(v, t)` is the w that minimises ½‖w − v‖² + t·penalty(w)."""


@dataclass(frozen=True)
class Fit:
    """Models [tasks, features] and how sure we are that they are the minimum."""

    w: Tensor
    """Weights of each task; the intercept comes last."""
    iterations: int
    """How many steps it took."""
    residual: float
    """Distance from stationarity, or more, as a share of the gradient of the featureless fit."""
    converged: bool
    """Whether the residual is as small as was asked for."""

    def checked(self, tolerance: float) -> Fit:
        if not self.converged:
            warnings.warn(
                f"stopped after {self.iterations} iterations at a residual of {self.residual:.1e} "
                f"(wanted {tolerance:.0e}): scale the features alike, or take a larger strength",
                RuntimeWarning,
                stacklevel=4,
            )
        return self


@dataclass(frozen=True)
class Norm:
    """A penalty on models [tasks, penalised features]: its value, its prox and its dual norm."""

    value: Callable[[Tensor], Tensor]
    prox: Prox
    dual: Callable[[Tensor], Tensor]


def minimise(
    problem: Problem,
    prox: Prox,
    *,
    start: Tensor | None,
    by_task: bool = False,
    tolerance: float = 1e-7,
    limit: int = 20_000,
) -> Fit:
    """The minimum of f(W) + penalty of all columns but the intercept.

    `by_task` says that the penalty does not mix tasks: each then takes the step that suits it.
    """
    flat = problem.centred()
    if not flat.penalised:  # no feature varies
        return Fit(problem.restored(flat.null()), 0, 0.0, True)
    w = flat.null() if start is None else problem.recentred(start)
    p, steps, scale, gradient = flat.penalised, _steps(flat, by_task), flat.scale, flat.gradient(w)
    inner = steps[:, :1] if by_task else float(steps[0, 0])
    affine = flat.loss == "squared"  # then gradients extrapolate as points do: one per iteration
    z, slope, momentum, residual, done = w, gradient, 1.0, float("inf"), 0
    with torch.inference_mode():  # a fifth of an iteration on small problems is bookkeeping
        while done < limit and residual > tolerance:
            done += 1
            check = done % 10 == 1  # where gradients do not extrapolate, a certificate costs one
            moved = torch.addcmul(z, steps, slope, value=-1)
            if flat.intercept:
                moved[:, :p] = prox(moved[:, :p], inner)
            else:
                moved = prox(moved, inner)
            after = flat.gradient(moved) if affine or check else slope
            pulled = (z - moved).div_(steps)
            if check:
                residual = float((pulled + after - slope).norm()) / scale
            uphill = float(torch.dot(pulled.view(-1), (moved - w).view(-1))) > 0
            before = 1.0 if uphill else momentum
            momentum = 1.0 if uphill else (1 + sqrt(1 + 4 * momentum**2)) / 2
            reach = 1 + (before - 1) / momentum
            z = torch.lerp(w, moved, reach)
            slope = torch.lerp(gradient, after, reach) if affine else flat.gradient(z)
            w, gradient = moved, after
    fit = Fit(problem.restored(w.clone()), done, residual, residual <= tolerance)
    return fit.checked(tolerance)


def _steps(problem: Problem, by_task: bool) -> Tensor:
    """One over the curvature of every column: features share one step, intercepts have their own.

    Rows are centred, so the bound on the curvature has no entry between feature and intercept.
    """
    lipschitz = problem.lipschitz if by_task else problem.steepest.expand(problem.tasks)
    steps = torch.where(lipschitz > 0, 1 / lipschitz, 1.0).unsqueeze(1)
    steps = steps.repeat(1, problem.x.shape[1])
    if problem.intercept:
        steps[:, -1] = problem.mean_count / (problem.bend * problem.counts)
    return steps


# --- penalties ---


def _spectral(v: Tensor, kept: Callable[[Tensor], Tensor]) -> Tensor:
    """`v` with each singular value (they come in ascending order) times the share `kept` of it.

    Through the smaller Gram matrix, which is several times faster than a singular value
    decomposition. Values below 1e-8 of the largest drown in rounding, which moves the result by no
    more than that.
    """
    tall = v.shape[0] >= v.shape[1]
    squares, basis = torch.linalg.eigh(v.mT @ v if tall else v @ v.mT)
    share = kept(squares.clamp_min_(1e-300).sqrt_())
    onto = (basis * share) @ basis.mT
    return v @ onto if tall else onto @ v


def trace_prox(v: Tensor, t: Step) -> Tensor:
    return _spectral(v, lambda values: (values - t).clamp_min_(0).div_(values))


def squared_trace_prox(v: Tensor, t: Step) -> Tensor:
    """Prox of ½‖·‖²_*: singular values are shrunk by t times the sum of what is left of them.

    Whichever values are taken to be left, the shrinkage that follows from them is at most the true
    one; so that is the largest of the candidates.
    """

    def kept(values: Tensor) -> Tensor:
        left = torch.arange(1, len(values) + 1, device=values.device)
        by = (t * values.flip(0).cumsum(0) / (1 + t * left)).max()
        return (values - by).clamp_min_(0).div_(values)

    return _spectral(v, kept)


def group_prox(v: Tensor, t: Step) -> Tensor:
    length = v.norm(dim=0)
    return v * ((length - t).clamp_min(0) / length.clamp_min(1e-300))


def l1_prox(v: Tensor, t: Step) -> Tensor:
    return v.sign() * (v.abs() - t).clamp_min(0)


TRACE = Norm(
    lambda v: torch.linalg.matrix_norm(v, "nuc"), trace_prox, lambda g: torch.linalg.norm(g, 2)
)
"""Sum of the singular values: models share a subspace."""
GROUP = Norm(lambda v: v.norm(dim=0).sum(), group_prox, lambda g: g.norm(dim=0).max())
"""ℓ2,1: for each feature the length of its weights over all tasks, summed: tasks share features."""
L1 = Norm(lambda v: v.abs().sum(), l1_prox, lambda g: g.abs().max())
