"""Classical multi-task learning of linear models, without privacy.

From a federation to predictions:

    problem = Problem.of(federation.train, "regression")
    strengths = [strongest(problem, trace_norm) * 0.5**i for i in range(10)]
    choice = cross_validate(trace_norm, problem, strengths)
    Problem.of(federation.test, "regression").predict(choice.fit.w)
"""

from tacit.classical.path import Choice, Solver, cross_validate, path, strongest
from tacit.classical.problem import Problem
from tacit.classical.proximal import Fit
from tacit.classical.solvers import (
    group_sparse,
    lasso,
    mean_regularised,
    pooled,
    relationship,
    ridge,
    task_covariance,
    trace_norm,
)

SOLVERS: dict[str, Solver] = {
    "ridge": ridge,
    "lasso": lasso,
    "pooled": pooled,
    "mean-regularised": mean_regularised,
    "trace-norm": trace_norm,
    "group-sparse": group_sparse,
    "relationship": relationship,
}

__all__ = [
    "SOLVERS",
    "Choice",
    "Fit",
    "Problem",
    "Solver",
    "cross_validate",
    "group_sparse",
    "lasso",
    "mean_regularised",
    "path",
    "pooled",
    "relationship",
    "ridge",
    "strongest",
    "task_covariance",
    "trace_norm",
]
