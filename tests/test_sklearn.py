"""Estimators in scikit-learn's shape."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

import tacit
from tacit.sklearn import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    PrivateMultiTaskClassifier,
    PrivateMultiTaskRegressor,
)

ALL = [
    PrivateMultiTaskRegressor(),
    PrivateMultiTaskClassifier(),
    PrivateMultiTaskClassifier(tacit.PMTL(lr=0.5), rounds=20),
    MultiTaskRegressor(strength=0.01),
    MultiTaskClassifier(strength=0.01),
]
NOT_FOR_US: dict[str, str] = {}
"""Checks that cannot hold: name -> reason."""


@parametrize_with_checks(ALL, expected_failed_checks=lambda estimator: NOT_FOR_US)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
