"""Classical multi-task learning behind `fit` and `predict`, without privacy, to compare with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tacit.classical import SOLVERS, Problem, cross_validate, strongest
from tacit.classical.path import NORMS
from tacit.errors import TacitError
from tacit.privacy import Guarantee
from tacit.sklearn.base import Classifier, MultiTask, Regressor, check_flag, number

FOLDS = 5
POOLED = "the rows of all tasks were pooled in one place"


class _Classical(MultiTask):
    strength_: float

    def __init__(
        self,
        method: str = "trace-norm",
        *,
        strength: float | None = None,
        fit_intercept: bool = True,
    ) -> None:
        self.method = method
        self.strength = strength
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, tasks: Any = None):
        """Train the models of all tasks together.

        Parameters
        ----------
        X : [rows, features] numbers, or a data frame
        y : [rows] targets
        tasks : [rows] the task of each row: text, numbers, categories; None for one task
        """
        if not isinstance(self.method, str) or self.method not in SOLVERS:
            raise TacitError(f"method={self.method!r}: choose one of {', '.join(SOLVERS)}")
        given = self.strength
        if given is not None and not (number(given) and 0 < given < math.inf):
            raise TacitError(f"strength={given!r}: a positive number or None is needed")
        check_flag(self.fit_intercept, "fit_intercept")
        self._forget()
        rows = self._rows(X, y, tasks)
        kind = "regression" if isinstance(self, Regressor) else "binary"
        problem = Problem.of(rows, kind, bool(self.fit_intercept))
        solver = SOLVERS[self.method]
        if given is not None:
            self.strength_, w = float(given), solver(problem, float(given)).w
        else:
            folds = min(FOLDS, int(rows.counts.max()))
            if folds < 2:
                raise TacitError("one sample per task is too few to choose by: pass strength")
            choice = cross_validate(solver, problem, _strengths(problem, solver), folds)
            self.strength_, w = choice.strength, choice.fit.w
        every = torch.cat([w, w.mean(dim=0, keepdim=True)]).numpy()
        self._no_newcomers = ""
        self._keep_linear(every, 1, np.ones(len(every)), np.zeros(len(every)))
        lone = len(self.tasks_) == 1
        said: Any = ("nothing", 0.0, "") if lone else ("billboard", math.inf, POOLED)
        unknown: Any = (None, None, None, None, 0, None, None)
        self.guarantee_ = Guarantee(*said[:2], *unknown, seeded=False, refuted=said[2])
        return self


class MultiTaskRegressor(Regressor, _Classical):
    """Classical multi-task regression, without privacy.

    Parameters
    ----------
    method : a name in `tacit.classical.SOLVERS`
    strength : of the penalty; None chooses one of 15 by five-fold cross-validation inside tasks
        (folds are always dealt alike)
    fit_intercept : whether models have an intercept, which is never penalised

    Attributes
    ----------
    guarantee_ : says that there is none: the rows of all tasks were pooled in one place
    strength_ : the strength that was used
    tasks_, coef_, intercept_, n_features_in_, feature_names_in_ : as for
        `PrivateMultiTaskRegressor`
    billboard_coef_, billboard_intercept_ : the mean of all models, which predicts for tasks that
        were not there
    """


class MultiTaskClassifier(Classifier, _Classical):
    """Classical multi-task classification with two classes, without privacy.

    Parameters and attributes are those of `MultiTaskRegressor`, and `classes_`.
    """


def _strengths(problem: Problem, solver: Any) -> list[float]:
    """From where nothing is left of the features, or from a strong pull, downwards."""
    if solver in NORMS:
        top = strongest(problem, solver) or 1.0
        return [top * 0.6**step for step in range(15)]
    unit = float(problem.x[:, : problem.penalised].square().mean()) or 1.0
    return [unit * 10 ** (2 - step / 2) for step in range(15)]
