"""Variance components with their errors: against closed forms, and by what they promise."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.engine.progress import silent
from tacit.inference.components import components
from tacit.inference.summary import Deviation

EQUATIONS = np.array([[0.7, 0.1], [0.02, 1.0]])


def test_without_privacy_errors_are_those_of_analysis_of_variance():
    """One way, as many rows in each group: estimates and their variances have closed forms."""
    groups, rows = 120, 6
    generator = np.random.default_rng(0)
    y = 40 + np.repeat(3 * generator.normal(size=groups), rows)
    y += 2 * generator.normal(size=groups * rows)
    table = pd.DataFrame({"y": y, "g": np.repeat(np.arange(groups), rows)})
    found = tacit.mixed("y ~ 1 + (1 | g)", table, progress=silent).summary()
    each = table.groupby("g")["y"]
    inside = each.var().mean()
    between = each.mean().var() - inside / rows
    assert found.own_errors[0].variance == pytest.approx(between, rel=1e-3)
    assert found.residual_error is not None
    assert found.residual_error.variance == pytest.approx(inside, rel=1e-3)
    level = (inside + rows * between) ** 2 / (groups - 1)
    rest = inside**2 / (groups * (rows - 1))
    assert found.residual_error.error == pytest.approx(math.sqrt(2 * rest), rel=0.01)
    exact = math.sqrt(2 * (level + rest)) / rows
    assert found.own_errors[0].error == pytest.approx(exact, rel=0.01)
    shown = found.to_json()["own"]["errors"][0]
    assert shown["error"] == pytest.approx(exact / (2 * math.sqrt(between)), rel=0.01)
    assert shown["low"] < found.own_deviations[0] < shown["high"]


@pytest.mark.parametrize("blur", [0.0, 0.05, 0.15, 0.2])
def test_intervals_hold_sampling_and_noise_as_often_as_they_say(blur):
    generator = np.random.default_rng(1)
    truth, tasks = np.array([0.6, 1.2]), 300
    root, rest = np.array([[0.8]]), 0.5
    variances = truth * [rest * 0.64, rest]
    information = EQUATIONS.copy()
    information[0, 1], information[1, 1] = EQUATIONS[1, 0], EQUATIONS[1, 0] / EQUATIONS[0, 1]
    factor = np.linalg.cholesky(2 * information / tasks)
    held = []
    for _ in range(1500):
        moments = EQUATIONS @ truth + factor @ generator.normal(size=2)
        told = np.concatenate([EQUATIONS.ravel(), moments])
        told += blur * generator.normal(size=len(told))
        found, spread = components(told, blur, tasks, root, rest, evenly=True)
        if np.isfinite(spread).all():  # otherwise nothing is claimed
            held.append(np.abs(found - variances) < 1.96 * np.sqrt(np.diag(spread)))
    share = np.mean(held, axis=0)
    assert ((share > 0.93) & (share < (0.97 if blur < 0.1 else 0.99))).all()


def test_where_noise_drowns_what_tasks_said_nothing_is_claimed():
    told = np.concatenate([EQUATIONS.ravel(), EQUATIONS @ np.ones(2)])
    found, spread = components(told, 0.5, 300, np.eye(1), 1.0, evenly=True)
    assert np.isnan(found).all() and np.isinf(spread).all()
    assert Deviation(math.nan, math.inf).to_json() == {"error": None, "low": None, "high": None}
    # An interval that reaches zero has no standard error of a deviation, which has none there.
    assert Deviation(0.1, 0.2).to_json()["error"] is None
    assert Deviation(-0.1, 0.2).to_json()["low"] == 0.0
