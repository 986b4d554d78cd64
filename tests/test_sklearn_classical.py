"""Estimators over the classical solvers, which pool all rows and promise nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit.classical import Problem, trace_norm
from tacit.data.federation import Rows
from tacit.sklearn import MultiTaskClassifier, MultiTaskRegressor
from tests.conftest import arrays


def test_classical_estimators_are_the_solvers():
    x, y, tasks = arrays(8, 4, "regression")
    made = MultiTaskRegressor("trace-norm", strength=0.3).fit(x, y, tasks=tasks)
    counts = np.unique(tasks, return_counts=True)[1]
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    rows = Rows(torch.from_numpy(x).double(), torch.from_numpy(y), offsets)
    w = trace_norm(Problem.of(rows, "regression"), 0.3).w.numpy()
    np.testing.assert_allclose(made.coef_, w[:, :-1])
    np.testing.assert_allclose(made.intercept_, w[:, -1])
    np.testing.assert_allclose(made.billboard_coef_, w[:, :-1].mean(axis=0))
    assert "the rows of all tasks were pooled in one place" in str(made.guarantee_)
    assert not made.guarantee_.private


@pytest.mark.parametrize("method", tacit.classical.SOLVERS)
@pytest.mark.parametrize(
    ("kind", "estimator"),
    [
        ("regression", MultiTaskRegressor),
        pytest.param("binary", MultiTaskClassifier, marks=pytest.mark.slow),
    ],
)
def test_classical_estimators_choose_a_strength(kind, estimator, method):
    x, y, tasks = arrays(20, 4, kind, rows=(20, 30))
    even = np.arange(len(x)) % 2 == 0
    made = estimator(method).fit(x[even], y[even], tasks=tasks[even])
    assert made.score(x[~even], y[~even], tasks=tasks[~even]) > 0.8
    same = estimator(method, strength=made.strength_).fit(x[even], y[even], tasks=tasks[even])
    np.testing.assert_allclose(same.coef_, made.coef_, rtol=1e-3, atol=1e-4)


def test_settings_of_classical_estimators_are_checked():
    x, y, tasks = arrays(4, 2, "regression")
    with pytest.raises(tacit.TacitError, match="strength=-1"):
        MultiTaskRegressor(strength=-1).fit(x, y, tasks=tasks)
    with pytest.raises(tacit.TacitError, match="method='magic'"):
        MultiTaskRegressor("magic").fit(x, y, tasks=tasks)
