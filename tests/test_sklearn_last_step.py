"""Estimators end as `tacit.train` does: with whatever a task makes of its own rows."""

import pickle

import numpy as np
import pytest
import torch

import tacit
from tacit.engine.progress import silent
from tacit.sklearn import PrivateMultiTaskClassifier, PrivateMultiTaskRegressor
from tests.conftest import arrays


@pytest.mark.parametrize(
    ("kind", "method", "model"),
    [
        ("regression", tacit.SharedPrior(), "linear"),
        ("binary", tacit.PMTL(batch=8, local_steps=2), "linear"),
        pytest.param("multiclass", tacit.FedAvg(batch=8), "mlp", marks=pytest.mark.slow),
    ],
)
def test_predictions_are_those_of_train(kind, method, model):
    x, y, tasks = arrays(8, 3, kind, rows=(30, 60))
    regression, settings = kind == "regression", {"rounds": 2, "model": model}
    estimator = PrivateMultiTaskRegressor if regression else PrivateMultiTaskClassifier
    made = estimator(method, random_state=3, **settings).fit(x, y, tasks=tasks)
    scaling = {"target_scale": "task"} if regression else {}
    rows = {"kind": kind, "validation": 0, "test": 0, "scale": "none"} | scaling
    settings |= {"privacy": tacit.Privacy(epsilon=1.0), "seed": 3, "baselines": False}
    federation = tacit.data.from_arrays(x, y, tasks, **rows)
    run = tacit.train(federation, method, progress=silent, **settings)
    assert run.blend is not None and run.blend.shares["shared"] < 0.9
    found = made.predict(x, tasks) if regression else made.predict_proba(x, tasks)
    found = found[:, 1] if kind == "binary" else found
    np.testing.assert_allclose(found, run.predict(x, tasks), rtol=1e-4, atol=1e-4)
    assert made.guarantee_.epsilon == run.guarantee.epsilon
    if model == "linear":  # the shared part, in the target's units
        out = run.simulation.outputs("train", torch.arange(8), run.models)
        scale, place = run.federation.target_scale, np.unique(tasks, return_inverse=True)[1]
        if scale is not None:
            out = scale.shift[place] + scale.scale[place] * out
        raw = (x * made.coef_[place]).sum(axis=1) + made.intercept_[place]
        np.testing.assert_allclose(raw, out, rtol=1e-3, atol=1e-4)


def test_trees_of_own_rows_in_units_that_a_fit_found():
    random = np.random.default_rng(0)
    x, tasks = random.normal(size=(800, 3)), np.repeat(np.arange(8), 100)
    y = 300 + 50 * np.sin(3 * x[:, 0]) + 20 * random.normal(size=8)[tasks]
    raw = 1000 + 100 * x
    new = 1000 + 100 * random.normal(size=(80, 3))
    truth = 300 + 50 * np.sin(3 * (new[:, 0] - 1000) / 100)
    made = PrivateMultiTaskRegressor(epsilon=None, random_state=0).fit(raw, y, tasks=tasks)
    which = np.repeat(np.arange(8), 10)
    own = made.predict(new, which)
    linear = np.einsum("np,np->n", made.coef_[which], new) + made.intercept_[which]
    level = np.array([y[tasks == k].mean() - 300 for k in range(8)])[which]
    assert np.mean((own - truth - level) ** 2) < 0.5 * np.mean((linear - truth - level) ** 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(made)).predict(new, which), own)
    np.testing.assert_allclose(  # who was not there has the shared model alone
        made.predict(new, which + 100), new @ made.billboard_coef_ + made.billboard_intercept_
    )


def test_a_task_with_a_single_row():
    x, y, tasks = arrays(3, 2, "regression")
    x, y, tasks = np.append(x, x[:1], axis=0), np.append(y, 70.0), np.append(tasks, "tiny")
    made = PrivateMultiTaskRegressor(random_state=0).fit(x, y, tasks=tasks)
    assert made.predict(x[-1:], tasks[-1:]) == pytest.approx([70.0], abs=3)


def test_a_line_through_the_origin_stays_one():
    x, y, tasks = arrays(3, 2, "regression", rows=(30, 40))
    made = PrivateMultiTaskRegressor("prior", fit_intercept=False, random_state=0)
    made.fit(x, y, tasks=tasks)
    np.testing.assert_array_equal(made.predict(np.zeros((1, 2)), tasks[:1]), [0.0])
