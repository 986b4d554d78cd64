"""Estimators in scikit-learn's shape."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import tacit
from tacit.engine.progress import silent
from tacit.privacy import Ledger, spent
from tacit.sklearn import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    PrivateMixedModel,
    PrivateMultiTaskClassifier,
    PrivateMultiTaskRegressor,
    UnbookedTuningWarning,
    private,
)
from tests.conftest import arrays

ALL = [
    PrivateMultiTaskRegressor("prior"),
    PrivateMultiTaskClassifier(),
    PrivateMixedModel(),
    MultiTaskRegressor(strength=0.1),
    MultiTaskClassifier("mean-regularised"),
]
LONG = [
    PrivateMultiTaskRegressor(),
    PrivateMultiTaskClassifier(tacit.PMTL(lr=0.5), rounds=20),
    MultiTaskRegressor(),
    *(PrivateMixedModel(kind=kind) for kind in ("regression", "count", "binary", "multiclass")),
    PrivateMultiTaskClassifier("mixed"),
]
NOT_FOR_US: dict[str, str] = {}
"""Checks that cannot hold: name -> reason."""
KINDS = [("regression", PrivateMultiTaskRegressor), ("binary", PrivateMultiTaskClassifier)]


@parametrize_with_checks(ALL, expected_failed_checks=lambda estimator: NOT_FOR_US)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(LONG, expected_failed_checks=lambda estimator: NOT_FOR_US)
def test_scikit_learn_checks_that_take_long(estimator, check):
    check(estimator)


@pytest.fixture(autouse=True)
def no_memory_of_earlier_fits(monkeypatch):
    monkeypatch.setattr(private, "_fitted", {})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The last step takes longer than a small fit, and has tests of its own."""
    monkeypatch.setattr(private._Private, "_last_step", lambda self, method: "none")


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def trained(x, y, tasks, kind, method, rounds, *, model="linear", **scaling):
    """The same by hand: tasks are in order of appearance there, so give them sorted."""
    federation = tacit.data.from_arrays(
        x, y, tasks, kind=kind, validation=0, test=0, scale="none", **scaling
    )
    return tacit.train(
        federation, method, model=model, privacy=tacit.Privacy(epsilon=1.0), rounds=rounds, seed=3,
        personalise="none", baselines=False, progress=silent,
    )  # fmt: skip


def by_task(x, y, tasks):
    order = np.argsort(tasks, kind="stable")
    return x[order], y[order], tasks[order]


# --- the same as tacit.train ---


@pytest.mark.parametrize(("kind", "estimator"), KINDS)
@pytest.mark.parametrize("method", [tacit.SharedPrior(), tacit.MPMTL(lr=0.1), tacit.PMTL(lr=0.05)])
def test_fit_is_train(kind, estimator, method):
    x, y, tasks = by_task(*arrays(12, 4, kind))
    scaling = {"target_scale": "task"} if kind == "regression" else {}
    made = estimator(method, rounds=4, random_state=3).fit(x, y, tasks=tasks)
    run = trained(x, y, tasks, kind, method, 4, **scaling)
    own = made.predict_proba(x, tasks)[:, 1] if kind == "binary" else made.predict(x, tasks)
    np.testing.assert_allclose(own, run.predict(x, tasks), rtol=1e-4, atol=1e-5)
    assert made.guarantee_.epsilon == run.guarantee.epsilon
    assert made.guarantee_.delta == run.guarantee.delta
    assert made.coef_.shape == (12, 4)
    assert made.intercept_.shape == (12,)
    raw = (x * made.coef_[np.unique(tasks, return_inverse=True)[1]]).sum(axis=1)
    raw += np.repeat(made.intercept_, np.unique(tasks, return_counts=True)[1])
    score = made.predict(x, tasks) if kind == "regression" else made.decision_function(x, tasks)
    np.testing.assert_allclose(raw, score, rtol=1e-9)


def test_several_classes_and_layers_are_train_too():
    x, y, tasks = by_task(*arrays(8, 4, "multiclass"))
    method = tacit.PMTL(lr=0.1)
    for model in ("linear", "mlp"):
        made = PrivateMultiTaskClassifier(method, rounds=3, model=model, random_state=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbookedTuningWarning)
            made.fit(x, np.array(["a", "b", "c"])[y], tasks=tasks)
        run = trained(x, y, tasks, "multiclass", method, 3, model=model)
        shuffled = np.random.default_rng(0).permutation(len(x))
        chances = made.predict_proba(x[shuffled], tasks[shuffled])
        np.testing.assert_allclose(chances, run.predict(x, tasks)[shuffled], rtol=1e-4, atol=1e-5)
        assert set(made.predict(x, tasks)) <= {"a", "b", "c"}
        assert hasattr(made, "coef_") == (model == "linear")
        if model == "linear":
            assert made.coef_.shape == (8, 3, 4)
            assert made.billboard_intercept_.shape == (3,)
        newcomer = run.simulation.model.module(
            *(v[0] for v in run.simulation.newcomer(torch.arange(1)))
        )
        public = newcomer(torch.from_numpy(x)).softmax(dim=1).detach().numpy()
        np.testing.assert_allclose(made.predict_proba(x), public, rtol=1e-4, atol=1e-5)


def test_a_regression_through_layers_speaks_the_units_of_the_target():
    x, y, tasks = by_task(*arrays(6, 3, "regression"))
    method = tacit.FedRep(lr=0.02)
    made = PrivateMultiTaskRegressor(method, rounds=3, model="mlp", random_state=3)
    made.fit(x, 50 + 10 * y, tasks=tasks)
    run = trained(x, 50 + 10 * y, tasks, "regression", method, 3, model="mlp", target_scale="task")
    np.testing.assert_allclose(made.predict(x, tasks), run.predict(x, tasks), rtol=1e-4)


# --- tasks ---


def test_neither_the_order_of_rows_nor_the_names_of_tasks_matter():
    x, y, tasks = arrays(12, 4, "regression")
    made = PrivateMultiTaskRegressor(random_state=0).fit(x, y, tasks=tasks)
    order = np.random.default_rng(1).permutation(len(x))
    other = PrivateMultiTaskRegressor(random_state=0).fit(x[order], y[order], tasks=tasks[order])
    np.testing.assert_array_equal(made.tasks_, other.tasks_)
    np.testing.assert_allclose(made.coef_, other.coef_, rtol=1e-4, atol=1e-5)
    numbers = 11 - np.unique(tasks, return_inverse=True)[1]  # the other way round
    renamed = PrivateMultiTaskRegressor(random_state=0).fit(x, y, tasks=numbers)
    np.testing.assert_array_equal(renamed.tasks_, np.arange(12))
    np.testing.assert_allclose(made.coef_, renamed.coef_[::-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        made.predict(x, tasks), renamed.predict(x, tasks=numbers), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
def test_tasks_are_labels_of_any_sort():
    x, y, tasks = arrays(6, 3, "binary")
    expected = PrivateMultiTaskClassifier(random_state=0).fit(x, y, tasks=tasks).coef_
    number = np.unique(tasks, return_inverse=True)[1]
    mixed = np.array([int(k) if k % 2 else f"site {k}" for k in number], dtype=object)
    for labels in (list(tasks), pd.Series(tasks), pd.Categorical(tasks), number, number + 0.5):
        made = PrivateMultiTaskClassifier(random_state=0).fit(x, y, tasks=labels)
        np.testing.assert_array_equal(made.coef_, expected)
        made.predict(x, labels)
    made = PrivateMultiTaskClassifier(random_state=0).fit(x, y, tasks=mixed)
    assert made.tasks_.tolist() == [1, 3, 5, "site 0", "site 2", "site 4"]
    np.testing.assert_allclose(made.coef_, expected[[1, 3, 5, 0, 2, 4]], rtol=1e-4, atol=1e-5)


def test_a_task_with_a_single_row_works():
    x, y, tasks = arrays(8, 4, "regression")
    x, y, tasks = np.append(x, x[:1], axis=0), np.append(y, 70.0), np.append(tasks, "tiny")
    made = PrivateMultiTaskRegressor(random_state=0).fit(x, y, tasks=tasks)
    assert made.predict(x[-1:], tasks[-1:]) == pytest.approx([70.0], abs=3)


def test_who_was_not_there_is_predicted_from_the_billboard():
    x, y, tasks = arrays(40, 3, "regression", rows=(20, 30))
    made = PrivateMultiTaskRegressor("prior", epsilon=5.0, target_scale=(0.0, 2.0), random_state=0)
    made.fit(x, y, tasks=tasks)
    expected = x @ made.billboard_coef_ + made.billboard_intercept_
    np.testing.assert_allclose(made.predict(x), expected, rtol=1e-6)
    labels = np.where(np.arange(len(x)) % 2, tasks, "somebody new")
    own = made.predict(x, tasks=tasks)
    np.testing.assert_allclose(
        made.predict(x, tasks=labels), np.where(np.arange(len(x)) % 2, own, expected), rtol=1e-6
    )
    assert r2_score(y, expected) > 0.5  # tasks have most in common
    assert made.score(x, y, tasks=tasks) > made.score(x, y)


def test_where_nothing_public_helps_a_newcomer_that_is_said():
    x, y, tasks = arrays(8, 3, "regression")
    made = PrivateMultiTaskRegressor("prior", random_state=0).fit(x, y, tasks=tasks)
    assert "scaling them over all tasks beforehand is not covered" in made.guarantee_.assumptions[0]
    with pytest.raises(tacit.TacitError, match="a task was not there at fit, and nothing public"):
        made.predict(x[:1], tasks=["new"])
    with pytest.raises(tacit.TacitError, match=r"no task is named, .* target_scale=\(mean"):
        made.predict(x)
    x, y, tasks = arrays(8, 3, "binary")
    for method in ("local", "mpmtl", tacit.SharedPrior(mean=0)):
        made = PrivateMultiTaskClassifier(method, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbookedTuningWarning)
            made.fit(x, y, tasks=tasks)
        assert made.score(x, y, tasks=tasks) > 0.7
        with pytest.raises(tacit.TacitError, match="nothing was published that would"):
            made.predict_proba(x[:1], tasks=["new"])


def test_without_tasks_one_task_trains_alone():
    x, y, _ = arrays(8, 3, "regression")
    made = PrivateMultiTaskRegressor().fit(x, y)
    assert made.guarantee_.private
    assert made.guarantee_.epsilon == 0
    assert "nothing was released" in str(made.guarantee_)
    assert made.guarantee_.protects == "nothing leaves a task"
    assert made.score(x, y) > 0.8
    with pytest.raises(tacit.TacitError, match="fit was called without tasks"):
        made.predict(x, tasks=np.zeros(len(x)))
    same = PrivateMultiTaskRegressor().fit(x, y, tasks=np.zeros(len(x)))
    np.testing.assert_array_equal(made.coef_, same.coef_)


# --- targets ---


def test_what_a_task_does_to_its_target_is_its_own_affair():
    x, y, tasks = arrays(8, 3, "regression")
    task = np.unique(tasks, return_inverse=True)[1]
    shift, scale = 100.0 * task, 1.0 + task
    made = PrivateMultiTaskRegressor("prior", random_state=0).fit(x, y, tasks=tasks)
    other = clone(made).fit(x, shift + scale * y, tasks=tasks)
    np.testing.assert_allclose(
        other.predict(x, tasks), shift + scale * made.predict(x, tasks), rtol=1e-3, atol=1e-2
    )


def test_no_intercept_is_none_at_all():
    x, y, tasks = arrays(8, 3, "regression")
    for scale in ("task", (0.0, 2.0)):
        made = PrivateMultiTaskRegressor(fit_intercept=False, target_scale=scale, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbookedTuningWarning)
            made.fit(x, y, tasks=tasks)
        assert not made.intercept_.any()
        np.testing.assert_array_equal(made.predict(0 * x, tasks), 0.0)
        assert made.score(x, y, tasks=tasks) > 0.8
    made = PrivateMultiTaskRegressor(fit_intercept=False, random_state=0)
    found = [clone(made).fit(x, unit * y, tasks=tasks).coef_ / unit for unit in (0.5, 1000.0)]
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


# --- what is promised ---


def test_the_guarantee_is_what_was_asked_for():
    x, y, tasks = arrays(8, 3, "binary")
    made = PrivateMultiTaskClassifier(epsilon=2.0, delta=1e-3).fit(x, y, tasks=tasks)
    assert made.guarantee_.private
    assert 1.9 < made.guarantee_.epsilon <= 2.0
    assert made.guarantee_.releases == 6
    assert str(made.guarantee_).startswith("ε=2.00 at δ=0.001, any one task added or removed")
    assert not hasattr(made, "spent_")
    seeded = PrivateMultiTaskClassifier(epsilon=2.0, delta=1e-3, random_state=0)
    assert not seeded.fit(x, y, tasks=tasks).guarantee_.private
    assert "reproducible, not private" in str(seeded.guarantee_)
    open_ = PrivateMultiTaskClassifier(epsilon=None).fit(x, y, tasks=tasks)
    assert str(open_.guarantee_).startswith("no privacy (ε=∞)")


@pytest.mark.slow
def test_noise_is_secret_without_a_seed_and_repeatable_with_one():
    x, y, tasks = arrays(8, 3, "regression")

    def billboard(state):
        return PrivateMultiTaskRegressor(random_state=state).fit(x, y, tasks=tasks).billboard_coef_

    np.testing.assert_array_equal(billboard(1), billboard(1))
    assert (billboard(1) != billboard(2)).all()
    assert (billboard(None) != billboard(None)).all()
    states = [np.random.RandomState(7) for _ in range(2)]
    np.testing.assert_array_equal(*(billboard(state) for state in states))


def test_fits_add_up_in_a_ledger(tmp_path):
    x, y, tasks = arrays(8, 3, "regression")
    path = tmp_path / "ledger.jsonl"
    made = PrivateMultiTaskRegressor(ledger=path)
    first = made.fit(x, y, tasks=tasks).spent_.epsilon
    assert first == pytest.approx(made.guarantee_.epsilon)
    second = clone(made).fit(x, y, tasks=tasks)
    assert second.guarantee_.epsilon == pytest.approx(first)
    assert first < second.spent_.epsilon < 2 * first
    booked = Ledger.at(path).releases()
    assert booked.total() == 12
    assert spent(booked, 1e-3, "add-remove").epsilon == second.spent_.epsilon
    made.set_params(method=tacit.SharedPrior(mean=1), rounds=2)
    with pytest.warns(UnbookedTuningWarning):
        made.fit(x, y, tasks=tasks)
    assert Ledger.at(path).releases().total() == 14
    with pytest.warns(UnbookedTuningWarning):
        made.set_params(ledger=None).fit(x, y, tasks=tasks)
    assert not hasattr(made, "spent_")


def test_a_fit_that_fails_books_nothing_and_leaves_nothing(tmp_path, monkeypatch):
    x, y, tasks = arrays(8, 3, "regression")
    made = PrivateMultiTaskRegressor("pmtl", ledger=tmp_path / "ledger", rounds=30)
    made.fit(x, y, tasks=tasks)
    before = (tmp_path / "ledger").read_text()

    def full(*given, **settings):
        raise OSError("no space left")

    monkeypatch.setattr("tacit.sklearn.private.train", full)
    with pytest.raises(OSError, match="no space left"):
        made.fit(x, y, tasks=tasks)
    assert (tmp_path / "ledger").read_text() == before
    with pytest.raises(sklearn.exceptions.NotFittedError):
        made.predict(x, tasks)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "magic"}, "method='magic': choose one of auto, pmtl"),
        ({"method": "related"}, "choose one of"),
        ({"method": tacit.RelatedPMTL()}, "choose one of"),
        ({"epsilon": 0}, "epsilon=0.0: a positive number is needed"),
        ({"epsilon": "1"}, "epsilon='1': a number or None"),
        ({"delta": 2.0}, "delta=2.0: a probability"),
        ({"epsilon": None, "delta": 0.1}, "at_most say nothing"),
        ({"epsilon": None, "neighbours": "replace"}, "at_most say nothing"),
        ({"neighbours": "next"}, "neighbours"),
        ({"rounds": 0}, "rounds=0: a whole number"),
        ({"rounds": 2.5}, "rounds=2.5"),
        ({"random_state": -1}, "random_state=-1"),
        ({"random_state": "x"}, "random_state='x'"),
        ({"model": "cnn"}, "model='cnn': choose one of linear, mlp"),
        (
            {"method": "prior", "model": "mlp"},
            "prior is for linear models of a target of kind",
        ),
        ({"fit_intercept": "no"}, "fit_intercept='no'"),
        ({"fit_intercept": False, "model": "mlp"}, "only: leave it out"),
        ({"fit_intercept": False, "target_scale": (3.0, 1.0)}, "around 0"),
        ({"target_scale": "none"}, "target_scale='none'"),
        ({"target_scale": (0.0, 0.0)}, "target_scale="),
        ({"ledger": "no/such/folder/file"}, "a folder that exists"),
        ({"ledger": "file", "epsilon": None}, "epsilon=None adds no noise"),
    ],
)
def test_settings_are_checked_before_rows_are(settings, says):
    x, y, tasks = arrays(8, 3, "regression")
    made = PrivateMultiTaskRegressor(**settings)
    with pytest.raises(tacit.TacitError, match=re.escape(says)):
        made.fit(x, y, tasks=tasks)


def test_rows_are_checked():
    x, y, tasks = arrays(8, 3, "regression")
    made = PrivateMultiTaskRegressor(random_state=0)
    with pytest.raises(tacit.TacitError, match="but tasks has 3: give one for each row"):
        made.fit(x, y, tasks=tasks[:3])
    with pytest.raises(tacit.TacitError, match="row 2 has no task"):
        made.fit(x, y, tasks=[tasks[0], None, *tasks[2:]])
    with pytest.raises(tacit.TacitError, match="too large for single precision"):
        made.fit(1e300 * x.astype(float), y, tasks=tasks)
    made.fit(x, y, tasks=tasks)
    with pytest.raises(tacit.TacitError, match="tasks are numbers, but were text at fit"):
        made.predict(x, tasks=np.zeros(len(x)))
    with pytest.raises(tacit.TacitError, match="give one for each row"):
        made.predict(x, tasks=tasks[:3])


@pytest.mark.parametrize(
    "made",
    [*map(PrivateMultiTaskClassifier, ("prior", "mpmtl")), MultiTaskClassifier()],
)
def test_linear_methods_refuse_several_classes(made):
    x, y, tasks = arrays(8, 3, "multiclass")
    with pytest.raises(tacit.TacitError, match=r'3 classes: use .*method="pmtl"'):
        made.fit(x, y, tasks=tasks)


# --- scikit-learn around it ---


def test_names_of_features_are_kept_and_checked():
    x, y, tasks = arrays(8, 3, "regression")
    frame = pd.DataFrame(x, columns=["age", "dose", "weight"])
    made = PrivateMultiTaskRegressor(random_state=0).fit(frame, y, tasks=pd.Series(tasks))
    assert made.feature_names_in_.tolist() == ["age", "dose", "weight"]
    plain = PrivateMultiTaskRegressor(random_state=0).fit(x, y, tasks=tasks)
    np.testing.assert_array_equal(made.coef_, plain.coef_)
    with pytest.raises(ValueError, match="must be in the same order"):
        made.predict(frame[["dose", "age", "weight"]], tasks)
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
        made.predict(frame[["age", "dose"]], tasks)


@pytest.mark.parametrize(
    "made", [*ALL[:2], *ALL[3:], PrivateMultiTaskClassifier("pmtl", model="mlp", rounds=2)]
)
def test_clones_and_copies(made):
    x, y, tasks = arrays(8, 3, "binary")
    made = clone(made).fit(x, y, tasks=tasks)
    copy = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copy.predict(x, tasks), made.predict(x, tasks))
    assert str(copy.guarantee_) == str(made.guarantee_)
    assert not clone(made).__sklearn_is_fitted__()
    assert clone(made).get_params() == made.get_params()


def test_a_pipeline_hands_tasks_on(routing):
    x, y, tasks = arrays(8, 3, "binary")
    private_ = PrivateMultiTaskClassifier(random_state=0)
    private_.set_fit_request(tasks=True).set_predict_request(tasks=True)
    pipe = make_pipeline(FunctionTransformer(lambda v: v / 2), private_)  # a public constant
    pipe.fit(x, y, tasks=tasks)
    direct = PrivateMultiTaskClassifier(random_state=0).fit(x / 2, y, tasks=tasks)
    np.testing.assert_array_equal(pipe.predict(x, tasks=tasks), direct.predict(x / 2, tasks))


@pytest.mark.slow
def test_cross_validation_hands_tasks_on_and_is_no_tuning(routing):
    x, y, tasks = arrays(8, 3, "binary", rows=(20, 30))
    made = PrivateMultiTaskClassifier(random_state=0)
    made.set_fit_request(tasks=True).set_score_request(tasks=True)
    order = np.random.default_rng(0).permutation(len(x))
    scores = cross_val_score(made, x[order], y[order], params={"tasks": tasks[order]}, cv=3)
    assert scores.min() > 0.75


@pytest.mark.slow
def test_a_grid_search_is_tuning_that_nobody_booked(routing, tmp_path):
    x, y, tasks = arrays(8, 3, "binary", rows=(12, 20))
    made = PrivateMultiTaskClassifier(ledger=tmp_path / "ledger")
    made.set_fit_request(tasks=True).set_score_request(tasks=True)
    grid = {"method": [tacit.SharedPrior(mean=share) for share in (0.2, 0.8)]}
    with pytest.warns(UnbookedTuningWarning, match="does not cover the choice") as told:
        search = GridSearchCV(made, grid, cv=2, error_score="raise").fit(x, y, tasks=tasks)
    assert len(told) == 2  # the second setting on each fold
    best = search.best_estimator_
    assert best.method in grid["method"]
    assert best.guarantee_.epsilon <= 1
    assert "if they were chosen by comparing runs" in best.guarantee_.tuning
    assert best.spent_.epsilon > best.guarantee_.epsilon  # five fits
    assert Ledger.at(tmp_path / "ledger").releases().total() == 5 * 3


@pytest.mark.slow
def test_other_settings_on_the_same_rows_warn_and_nothing_else_does():
    x, y, tasks = arrays(8, 3, "binary")
    PrivateMultiTaskClassifier().fit(x, y, tasks=tasks)
    PrivateMultiTaskClassifier().fit(x, y, tasks=tasks)
    PrivateMultiTaskClassifier(random_state=0).fit(x, y, tasks=tasks)
    PrivateMultiTaskClassifier(epsilon=2.0).fit(x + 1, y, tasks=tasks)
    PrivateMultiTaskClassifier(epsilon=None).fit(x, y, tasks=tasks)  # remembered, not warned of
    with pytest.warns(UnbookedTuningWarning):
        PrivateMultiTaskClassifier().fit(x, y, tasks=tasks)
    x, y, tasks = arrays(8, 3, "regression")
    PrivateMultiTaskRegressor().fit(x, y, tasks=tasks)
    with pytest.warns(UnbookedTuningWarning):
        PrivateMultiTaskRegressor(target_scale=(0.0, 2.0)).fit(x, y, tasks=tasks)
