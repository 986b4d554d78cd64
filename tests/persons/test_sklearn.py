"""Estimators that hide persons, or rows, do what `tacit.train` does with them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from torch import nn

import tacit
from tacit.engine.progress import silent
from tacit.sklearn import (
    PrivateMixedModel,
    PrivateMultiTaskClassifier,
    PrivateMultiTaskRegressor,
    private,
)

PROMISE = {"epsilon": 4.0, "unit": "person", "n_persons": 80, "random_state": 0}


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Without a last step, which is each task's own affair, and without a word about tuning."""
    monkeypatch.setattr(private._Private, "_compare", lambda self, rows, privacy: None)
    monkeypatch.setattr(private._Private, "_last_step", lambda self, method: "none")


def rows(kind="binary"):
    """Two rows each, of 80 persons at two sites, in no order."""
    rng = np.random.default_rng(3)
    person = rng.permutation(np.repeat(np.arange(80), 2))
    x = rng.normal(size=(160, 3)) * [1.0, 40.0, 1.0] + [0.0, 300.0, 0.0]
    y = x[:, 0] + rng.normal(size=160)
    y = (y > 0).astype(int) if kind == "binary" else 10 + 3 * y
    return x, y, np.array(["south", "north"])[person % 2], person


def trained(x, y, site, person, kind, unit="person"):
    """The same by hand: tasks are in order of appearance there, so give them sorted."""
    order = np.argsort(site, kind="stable")
    owners = person[order] if unit == "person" else True
    parts = {"validation": 0, "test": 0, "persons": owners}
    federation = tacit.data.from_arrays(x[order], y[order], site[order], kind=kind, **parts)
    privacy = tacit.Privacy(epsilon=4.0, unit=unit, persons=80)
    given = {"personalise": "none", "baselines": False, "progress": silent}
    return tacit.train(federation, privacy=privacy, seed=0, **given)


@pytest.mark.parametrize(
    ("kind", "estimator", "unit"),
    [
        ("binary", PrivateMultiTaskClassifier, "person"),
        pytest.param("regression", PrivateMultiTaskRegressor, "row", marks=pytest.mark.slow),
    ],
)
def test_fit_is_train(kind, estimator, unit):
    x, y, site, person = rows(kind)
    owners = person if unit == "person" else None
    made = estimator(**PROMISE | {"unit": unit}).fit(x, y, tasks=site, persons=owners)
    run = trained(x, y, site, person, kind, unit)
    assert made.guarantee_.unit == unit
    assert made.guarantee_.epsilon == run.guarantee.epsilon
    assert f"any one {unit} added or removed" in str(made.guarantee_)
    own = made.predict_proba(x, site)[:, 1] if kind == "binary" else made.predict(x, site)
    np.testing.assert_allclose(own, run.predict(x, site), rtol=1e-3, atol=1e-4)
    assert np.isfinite(made.billboard_coef_).all()
    assert len(made.predict(x[:5])) == 5  # units that a run finds are public


def test_a_mixed_model_hides_persons():
    x, y, site, person = rows("regression")
    made = PrivateMixedModel(**PROMISE).fit(x, y, tasks=site, persons=person)
    assert made.guarantee_.unit == "person"
    assert made.score(x, y, tasks=site) > 0.3
    assert made.coef_.shape == (2, 3)


def test_layers_take_features_as_given_and_find_the_unit_of_the_target():
    x, y, site, person = rows("regression")
    x = (x - [0.0, 300.0, 0.0]) / [1.0, 40.0, 1.0]
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
    method = tacit.FedAvg(lr=0.3, local_steps=2, batch=None)
    made = PrivateMultiTaskRegressor(method, model=network, rounds=12, **PROMISE)
    made.fit(x, y, tasks=site, persons=person)
    assert abs(made.predict(x).mean() - y.mean()) < 3  # targets are around 10
    assert made.guarantee_.unit == "person"


def test_alone_nothing_leaves_whoever_the_rows_are():
    x, y, _, person = rows()
    made = PrivateMultiTaskClassifier(**PROMISE).fit(x, y, persons=person)
    assert made.guarantee_.channel == "nothing"
    assert made.score(x, y) > 0.6


def test_one_person_at_both_sites_must_be_paid_for():
    x, y, site, person = rows()
    person = np.where(person < 2, 0, person)
    made = PrivateMultiTaskClassifier(**PROMISE)
    with pytest.raises(tacit.TacitError, match="a person is at 2 tasks"):
        made.fit(x, y, tasks=site, persons=person)
    made.set_params(at_most=2).fit(x, y, tasks=site, persons=person)
    assert made.guarantee_.epsilon <= 4.0


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [
        ("binary", PrivateMultiTaskClassifier),
        ("regression", PrivateMultiTaskRegressor),
        ("regression", PrivateMixedModel),
    ],
)
def test_whole_tasks_are_hidden_beside_their_persons(kind, estimator):
    x, y, site, person = rows(kind)
    made = estimator(**PROMISE, tasks_epsilon=6.0).fit(x, y, tasks=site, persons=person)
    promise = made.guarantee_
    assert promise.epsilon <= 4.0 < 5.99 < promise.tasks_epsilon <= 6.0
    assert "and beside that" in str(promise) and "any one task added or removed" in str(promise)


def test_what_does_not_fit_together_is_refused(tmp_path):
    x, y, site, person = rows()

    def refuse(match, persons=person, **given):
        with pytest.raises(tacit.TacitError, match=match):
            PrivateMultiTaskClassifier(**given).fit(x, y, tasks=site, persons=persons)

    refuse("unit='task', but persons=")
    refuse("unit='row', but persons=", unit="row", n_persons=80)
    refuse("unit='person', but persons=", unit="person", n_persons=80, persons=None)
    refuse("needs n_persons", unit="person")
    refuse("n_persons='many'", unit="person", n_persons="many")
    refuse("n_persons and at_most are about persons", n_persons=80, persons=None)
    refuse("tasks_epsilon='4'", unit="person", n_persons=80, tasks_epsilon="4")
    refuse("tasks_epsilon.* is about persons", tasks_epsilon=4.0, persons=None)
    refuse("tasks_epsilon and at_most say nothing", epsilon=None, tasks_epsilon=4.0, persons=None)
    refuse("unit='patient': choose one of", unit="patient", n_persons=80, persons=None)
    refuse("asks for no privacy", epsilon=None, unit="person", n_persons=80)
    refuse("persons has 3", unit="person", n_persons=80, persons=person[:3])
    ledger = tmp_path / "ledger.jsonl"
    PrivateMultiTaskClassifier(**PROMISE, ledger=ledger).fit(x, y, tasks=site, persons=person)
    refuse("another unit than 'task'", ledger=ledger, persons=None)
    with pytest.raises(tacit.TacitError, match="no single one can be bounded"):
        PrivateMultiTaskClassifier("prior", **PROMISE).fit(x, y, tasks=site, persons=person)
    with pytest.raises(tacit.TacitError, match="target_scale around 0"):
        made = PrivateMultiTaskRegressor(tacit.FedAvg(), fit_intercept=False, **PROMISE)
        made.fit(x, y, tasks=site, persons=person)


def test_nothing_is_done_to_a_row_that_another_person_decides():
    """Scaling by a task's own rows would be: what a fit hands to a run is each person's own."""
    x, y, site, person = rows("regression")
    found = []
    for gone in (-1, 7):
        here, made = person != gone, PrivateMultiTaskRegressor(**PROMISE)
        owners = partial(made._owners, person[here])
        given = made._federation(made._rows(x[here], y[here], site[here], owners), "auto").train
        each = zip(given.persons.tolist(), given.x.tolist(), given.y.tolist(), strict=True)
        found.append({(who, *row, target) for who, row, target in each})
    assert found[1] < found[0]
    assert len(found[0]) - len(found[1]) == 2
