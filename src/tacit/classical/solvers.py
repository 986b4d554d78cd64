"""Classical multi-task learning without privacy: what the private methods are measured against.

All minimise `f(W) + penalty(W)` with `f` of `Problem` (losses divided by the mean number of rows of
a task) for squared and for logistic loss; `W` is [tasks, features], the intercept is not penalised.

Theodoros Evgeniou, Massimiliano Pontil. "Regularized Multi-Task Learning." KDD 2004.
Andreas Argyriou, Theodoros Evgeniou, Massimiliano Pontil. "Convex Multi-Task Feature Learning."
Machine Learning 73, 2008.
Shuiwang Ji, Jieping Ye. "An Accelerated Gradient Method for Trace Norm Minimization." ICML 2009.
Guillaume Obozinski, Ben Taskar, Michael Jordan. "Joint Covariate Selection and Joint Subspace
Selection for Multiple Classification Problems." Statistics and Computing 20, 2010.
Yu Zhang, Dit-Yan Yeung. "A Convex Formulation for Learning Task Relationships in Multi-Task
Learning." UAI 2010.

| penalty                                                          | here               |
|------------------------------------------------------------------|--------------------|
| strength/2 Σ ‖w_k‖², each task alone                             | `ridge`            |
| strength ‖W‖₁, each task alone                                   | `lasso`            |
| strength/2 Σ ‖w‖², one w for all tasks                           | `pooled`           |
| pull/2 Σ ‖w_k − w̄‖² + strength/2 Σ ‖w̄‖² (Evgeniou & Pontil)      | `mean_regularised` |
| strength ‖W‖_* (Argyriou et al.; Ji & Ye)                        | `trace_norm`       |
| strength ‖W‖_{2,1}, a group is a feature (Obozinski et al.)      | `group_sparse`     |
| ridge/2 ‖W‖² + strength/2 tr(WᵀΩ⁻¹W), tr Ω = 1 (Zhang & Yeung)   | `relationship`     |
| Ω = (WWᵀ)^½ / tr (WWᵀ)^½ (Zhang & Yeung)                         | `task_covariance`  |

Zhang & Yeung alternate between W and Ω. Their problem is convex in both together and its minimum
over Ω is known, `min tr(WᵀΩ⁻¹W) = ‖W‖²_*`; so we minimise over W alone, with the squared trace norm
as penalty. That is exact also where Ω is singular, where the alternation stands still: a direction
that Ω lacks never comes back.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.classical.problem import Problem
from tacit.classical.proximal import GROUP, L1, TRACE, Fit, Step, minimise, squared_trace_prox
from tacit.errors import TacitError

# --- smooth penalties: Newton ---


def ridge(problem: Problem, strength: float, *, start: Tensor | None = None) -> Fit:
    """Each task alone, weights kept short."""
    _check(problem, strength=strength)

    def solve(a: Tensor, b: Tensor) -> Tensor:
        return torch.cholesky_solve(b.unsqueeze(2), _factor(a, strength)).squeeze(2)

    return _newton(problem, lambda v: strength * v, solve, start)


def pooled(problem: Problem, strength: float, *, start: Tensor | None = None) -> Fit:
    """One model, and one intercept, for the rows of all tasks."""
    one = ridge(problem.pooled(), strength, start=None if start is None else start[:1])
    w = one.w.expand(problem.tasks, -1).clone()
    return Fit(w, one.iterations, one.residual, one.converged)


def mean_regularised(
    problem: Problem, pull: float, *, strength: float = 1e-3, start: Tensor | None = None
) -> Fit:
    """Each task near the mean of all tasks; `pull` is what a path varies."""
    _check(problem, pull=pull, strength=strength)

    def penalty(v: Tensor) -> Tensor:
        return pull * v + (strength - pull) * v.mean(dim=0)

    def solve(a: Tensor, b: Tensor) -> Tensor:
        # (A_k + pull) w_k = b_k + (pull − strength) w̄. Put into the mean over tasks of
        # A_k w_k + strength w̄ = b_k it leaves one small system for w̄; written with
        # A_k (A_k + pull)⁻¹ nothing cancels when the pull is large.
        factor = _factor(a, pull)
        own = torch.cholesky_solve(b.unsqueeze(2), factor).squeeze(2)
        spread = torch.cholesky_solve(a, factor).mean(dim=0)
        eye = torch.eye(len(spread), dtype=a.dtype, device=a.device)
        mean = torch.linalg.solve(
            (pull - strength) * spread + strength * eye, pull * own.mean(dim=0)
        )
        towards = ((pull - strength) * mean).expand_as(b).unsqueeze(2)
        return own + torch.cholesky_solve(towards, factor).squeeze(2)

    return _newton(problem, penalty, solve, start)


def _newton(
    problem: Problem,
    penalty: Callable[[Tensor], Tensor],
    solve: Callable[[Tensor, Tensor], Tensor],
    start: Tensor | None,
    aim: float = 1e-9,
    tolerance: float = 1e-6,
    limit: int = 100,
) -> Fit:
    """Newton's method; `penalty(v)` is the gradient of the quadratic penalty, linear in v.

    `solve(a, b)` gives the v with a_k v_k + penalty(v)_k = b_k. For squared loss the first step is
    the closed form, a second one takes off its rounding. A pull of 1e9 rounds away what is below
    1e-7, so within the tolerance a step that no longer helps ends the descent.
    """
    flat = problem.centred()
    p = flat.penalised
    w = flat.null() if start is None else problem.recentred(start)

    def objective(w: Tensor) -> Tensor:
        return flat.value(w) + 0.5 * (w[:, :p] * penalty(w[:, :p])).sum()

    def gradient(w: Tensor) -> Tensor:
        slope = flat.gradient(w)
        slope[:, :p] += penalty(w[:, :p])
        return slope

    slope, done, before = gradient(w), 0, float("inf")
    residual = float(slope.norm()) / flat.scale
    while done < limit and residual > (aim if residual < before / 2 else tolerance):
        done, before = done + 1, residual
        step = _direction(flat, w, -slope, solve)
        here, descent, size = objective(w), float((slope * step).sum()), 1.0
        slack = 1e-12 * float(here.abs())  # near the minimum the objective is all rounding
        while size > 1e-9 and objective(w + size * step) > here + 1e-4 * size * descent + slack:
            size /= 2
        w = w + size * step
        slope = gradient(w)
        residual = float(slope.norm()) / flat.scale
    fit = Fit(problem.restored(w), done, residual, residual <= tolerance)
    return fit.checked(tolerance)


def _direction(
    problem: Problem, w: Tensor, rhs: Tensor, solve: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The Newton step, the unpenalised intercept eliminated first (its Schur complement)."""
    hessian = problem.hessian(w)
    if not problem.intercept:
        return solve(hessian, rhs)
    across, corner = hessian[:, :-1, -1], hessian[:, -1:, -1]
    share = across / corner
    a = hessian[:, :-1, :-1] - share.unsqueeze(2) * across.unsqueeze(1)
    v = solve(a, rhs[:, :-1] - share * rhs[:, -1:])
    last = (rhs[:, -1:] - (across * v).sum(dim=1, keepdim=True)) / corner
    return torch.cat([v, last], dim=1)


def _factor(a: Tensor, diagonal: float) -> Tensor:
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    factor, failed = torch.linalg.cholesky_ex(a + diagonal * eye)
    if failed.any():
        size = float(a.diagonal(dim1=1, dim2=2).max())
        raise TacitError(
            f"a strength of {diagonal:g} is lost beside rows of size {size:g}: take a larger one"
        )
    return factor


# --- norms: proximal gradient ---


def lasso(problem: Problem, strength: float, *, start: Tensor | None = None) -> Fit:
    """Each task alone, few features."""
    _check(problem, strength=strength)
    return minimise(problem, lambda v, t: L1.prox(v, strength * t), start=start, by_task=True)


def trace_norm(problem: Problem, strength: float, *, start: Tensor | None = None) -> Fit:
    """Models in a common subspace of few dimensions."""
    _check(problem, strength=strength)
    return minimise(problem, lambda v, t: TRACE.prox(v, strength * t), start=start)


def group_sparse(problem: Problem, strength: float, *, start: Tensor | None = None) -> Fit:
    """Few features, the same ones for all tasks."""
    _check(problem, strength=strength)
    return minimise(problem, lambda v, t: GROUP.prox(v, strength * t), start=start)


def relationship(
    problem: Problem, strength: float, *, ridge: float = 0.0, start: Tensor | None = None
) -> Fit:
    """Models with a covariance between tasks that is learned; `task_covariance` gives it."""
    _check(problem, strength=strength)
    if not 0 <= ridge < float("inf"):
        raise TacitError(f"ridge is {ridge}: it must be zero or more")

    def prox(v: Tensor, t: Step) -> Tensor:
        shorter = 1 + ridge * t  # ½‖w − v‖² + t·ridge/2 ‖w‖² is one square around v/shorter
        return squared_trace_prox(v / shorter, strength * t / shorter)

    return minimise(problem, prox, start=start)


def task_covariance(problem: Problem, w: Tensor) -> Tensor:
    """Ω [tasks, tasks] of models `w`: positive semidefinite, trace 1."""
    u, values, _ = torch.linalg.svd(w[:, : problem.penalised], full_matrices=False)
    if not values.any():  # every Ω is as good as any other; this one takes no side
        return torch.eye(len(w), dtype=w.dtype, device=w.device) / len(w)
    return (u * (values / values.sum())) @ u.mT


def _check(problem: Problem, **strengths: float) -> None:
    for name, value in strengths.items():
        if not 0 < value < float("inf"):
            raise TacitError(f"{name} is {value}: it must be a positive number")
    empty = (problem.counts == 0).nonzero().flatten().tolist()
    if empty:
        raise TacitError(f"task {empty[0]} has no rows to learn from: leave it out")
