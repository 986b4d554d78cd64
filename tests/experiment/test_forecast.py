"""A forecast follows from public facts, and runs on made-up tables gain what it says."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.expected import expected, off, releases
from tacit.experiment.forecast import EPSILONS, NOT_FORESEEN, point, simulated
from tacit.experiment.supposed import PREDICTABLE, WORLDS, Facts, directions, made_up
from tacit.privacy import Privacy
from tests.test_cli import fail, succeed, table  # noqa: F401

MANY = Facts(300, 20, 10, "regression")


def test_the_fixed_point_is_what_ridge_regression_does():
    """Against regressions that know the variances, on rows that were drawn."""
    rng, features, rows, rest = np.random.default_rng(0), 12, 25, 0.5
    lam, spread, errors = directions(features), 0.4 / features, []
    for _ in range(1000):
        x = np.c_[rng.standard_normal((rows, features)) * np.sqrt(lam), np.ones(rows)]
        w = np.append(math.sqrt(spread) * rng.standard_normal(features), rng.standard_normal())
        y = x @ w + math.sqrt(rest) * rng.standard_normal(rows)
        before = np.append(np.full(features, 1 / spread), 1.0)
        found = np.linalg.solve(x.T @ x + rest * np.diag(before), x.T @ y)
        errors.append(np.append(lam, 1.0) @ (found - w) ** 2)
    said = off(rows, lam, np.full(features, spread), 1.0, rest)
    assert said == pytest.approx(np.mean(errors), rel=0.04)


@pytest.mark.parametrize("facts", [Facts(40, 8, 2, "regression"), Facts(90, 8, 3, "binary")])
def test_the_noise_is_that_of_the_run(facts):
    """So the outline without rows is treated as a real federation is."""
    run = tacit.train(
        made_up(facts, WORLDS["half"], 0, test_rows=4),
        privacy=Privacy(epsilon=4.0),
        seed=0,
        progress=silent,
        personalise="none",
        baselines=False,
    )
    published = releases(facts, 4.0)
    least = min(each.noise for each in published.said)
    assert least * facts.tasks == pytest.approx(run.guarantee.noise_multiplier)
    assert published.rounds == run.guarantee.releases


def test_the_noise_of_cohorts_is_nearly_that_of_the_accountant():
    facts, weights = replace(MANY, kind="binary", numbers=0), (0.5, 1.0, 0.8, 0.8)
    sampler = tacit.privacy.sampler_for("poisson", 0.5, facts.tasks)
    exact = Privacy(epsilon=1.0).noise_multiplier(sampler, 4, facts.tasks, weights=weights)
    least = min(each.noise for each in releases(facts, 1.0, 4, 0.5).said)
    assert 0.88 * exact < least * 0.5 * facts.tasks < exact


def test_made_up_targets_vary_as_supposed():
    world = WORLDS["half"]
    made = made_up(Facts(400, 30, 6, "regression"), world, 0)
    scale = made.target_scale
    assert scale is not None
    task = np.repeat(np.arange(400), made.test.counts.numpy())
    y = made.test.y.numpy() * scale.scale.numpy()[task] + scale.shift.numpy()[task]
    assert y.var() == pytest.approx(1.0, abs=0.08)
    means = np.bincount(task, y) / np.bincount(task)
    assert means.var() == pytest.approx(0.15 + 0.85 / 40, abs=0.04)


def test_more_of_everything_is_never_less():
    gains = [point(MANY, epsilon).from_others for epsilon in EPSILONS]
    assert np.diff(gains).min() > -1e-3 and gains[0] < 0.001 and gains[-1] > 0.05
    tasks = [point(replace(MANY, tasks=n), 1.0).from_others for n in (30, 100, 300, 1000, 10**5)]
    assert np.diff(tasks).min() > -1e-3 and tasks[0] < 0.001 and tasks[-1] > 0.05
    worlds = [expected(MANY, world, releases(MANY, 2.0)).gain for world in WORLDS.values()]
    assert worlds == sorted(worlds)


def test_rows_of_ones_own_make_others_superfluous():
    some = [point(replace(MANY, rows=rows), 2.0).from_others for rows in (10, 100, 1000, 10_000)]
    assert some == sorted(some, reverse=True) and some[-1] < 0.001
    said = tacit.forecast(tasks=10, rows=20_000, features=5, epsilon=1.0)
    assert "a task learns nearly all by itself" in said.sentence


def test_errors_are_between_knowing_all_and_nothing():
    for kind, outputs, nothing in (("binary", 1, math.log(2)), ("multiclass", 4, math.log(4))):
        facts = Facts(200, 10, 6, kind, outputs)
        found = expected(facts, WORLDS["half"], releases(facts, 8.0))
        assert 0 < found.together < found.alone < nothing + 1e-9
    found = expected(MANY, WORLDS["half"], releases(MANY, None))
    assert 1 - PREDICTABLE < found.together < found.by_itself <= found.alone


def test_the_answer_names_what_would_help():
    said = tacit.forecast(tasks=50, rows=10, features=20, classes=2, epsilon=1.0)
    assert said.here.likely == NOT_FORESEEN and said.sentence.startswith("no help is foreseen")
    assert "says no too often" in str(said) and said.to_json()["caution"] == said.caution
    assert said.tasks_needed and said.epsilon_needed
    assert f"{said.tasks_needed} tasks" in said.sentence and "ε = " in said.sentence
    facts = Facts(50, 10, 20, "binary")
    assert point(replace(facts, tasks=2 * said.tasks_needed), 1.0).likely[-6:] == "likely"
    assert point(facts, said.epsilon_needed).likely in ("likely", "very likely")
    more = tacit.forecast(tasks=1000, rows=10, features=20, classes=2, epsilon=1.0)
    assert "likely to help: about" in more.sentence and "log loss" in more.sentence
    assert "half is common" in str(more) and "too often" not in str(more)
    assert {each.rounds for each in more.by_course} > {more.here.rounds}
    assert more.by_course[-1].cohort == 0.5


def test_columns_of_yes_and_no_need_no_unit():
    """Votes for units of 30 columns drown where those for none do not."""
    facts = Facts(316, 14, 31, "binary")
    assert point(facts, 1.0).likely == NOT_FORESEEN
    assert point(replace(facts, numbers=1), 1.0).likely == "very likely"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tasks": 1}, "tasks"),
        ({"classes": 1}, "classes"),
        ({"numbers": 11}, "among the 10 features"),
        ({"cohort": 2.0}, "cohort"),
        ({"rounds": 1}, "rounds"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_cannot_be_is_refused(wrong, words):
    given = {"tasks": 300, "rows": 20, "features": 10, "epsilon": 1.0}
    with pytest.raises(TacitError, match=words):
        tacit.forecast(**given | wrong)


def test_the_command_and_its_plot(tmp_path):
    words = ["forecast", "--tasks", "300", "--rows", "20", "--features", "10", "--epsilon", "1"]
    for name in ("plot.png", "plot.svg"):
        shown = succeed([*words, "--plot", str(tmp_path / name)])
        assert (tmp_path / name).stat().st_size > 5000
    assert "likely to help" in shown and "Supposed" in shown and "1200" in shown
    found = json.loads(succeed([*words, "--json"]))
    assert found["here"]["gain"] == pytest.approx(point(MANY, 1.0).gain)
    assert [each["epsilon"] for each in found["by_epsilon"]] == list(EPSILONS)
    assert "ends with .png" in fail([*words, "--plot", str(tmp_path / "plot.txt")])
    assert "--rows" in fail(["forecast", "--tasks", "30", "--features", "3"])


def test_a_table_says_only_what_is_public(table, tmp_path):  # noqa: F811
    words = ["--task", "hospital", "--target", "outcome", "--epsilon", "8"]
    assert "rows of tasks are private" in fail(["forecast", "--data", str(table), *words])
    words += ["--rows", "20", "--json"]
    found = json.loads(succeed(["forecast", "--data", str(table), *words]))
    assert found["here"]["tasks"] == 12 and found["kind"] == "binary"
    lines = table.read_text().splitlines()
    other = tmp_path / "twice.csv"
    other.write_text("\n".join([*lines, *lines[1:40]]))
    assert json.loads(succeed(["forecast", "--data", str(other), *words])) == found


def test_runs_on_made_up_tables_are_shown_beside():
    found = tacit.forecast(tasks=20, rows=8, features=2, epsilon=8.0, simulate=2)
    assert len(found.simulated) == 2 and "2 runs on made-up tables" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facts", "epsilon"),
    [
        (Facts(100, 8, 10, "regression"), 8.0),
        (Facts(300, 8, 10, "regression"), 2.0),
        (Facts(60, 6, 20, "regression"), 1.0),
        (Facts(100, 40, 10, "regression"), None),
        (Facts(200, 15, 10, "binary"), 8.0),
        (Facts(30, 20, 5, "regression"), 1.0),
    ],
)
def test_runs_gain_what_was_foreseen(facts, epsilon):
    said, got = point(facts, epsilon).gain, simulated(facts, epsilon, 2)
    assert np.mean(got) == pytest.approx(said, abs=0.1)


HOSPITALS = Facts(4, 150, 14, "binary", 1, 0, "row", 600)


@pytest.mark.parametrize("kind", [pytest.param("regression", marks=pytest.mark.slow), "binary"])
def test_the_noise_that_hides_persons_is_that_of_the_run(kind):
    facts = Facts(4, 80, 2, kind, 1, None, "person", 160)
    made = made_up(facts, WORLDS["half"], 0, test_rows=20)
    assert made.train.persons is not None
    assert len(made.train.persons.unique()) == pytest.approx(160 * 0.8, abs=16)
    given = {"personalise": "none", "baselines": False, "progress": silent}
    run = tacit.train(made, privacy=facts.privacy(4.0), seed=0, **given)
    published = releases(facts, 4.0)
    least = min(each.noise for each in published.said)
    assert least * 160 == pytest.approx(run.guarantee.noise_multiplier)
    assert published.rounds == run.guarantee.releases


def test_among_patients_hospitals_hide_and_among_themselves_they_do_not():
    """On the four of `heart` 62 % of what all rows bring was left at ε = 1, and 94 % at ε = 4."""
    exact = point(HOSPITALS, None).from_others
    hidden = [point(HOSPITALS, epsilon).from_others / exact for epsilon in (0.5, 1.0, 4.0)]
    assert 0.3 < hidden[0] < hidden[1] < hidden[2] < 1
    assert 0.5 < hidden[1] < 0.75 < 0.85 < hidden[2]
    tasks = replace(HOSPITALS, unit="task", persons=None)
    assert point(tasks, 1.0).from_others < 0.4 * hidden[1] * exact
    fewer = replace(HOSPITALS, unit="person", persons=150)  # with four rows each
    assert point(fewer, 1.0).from_others < hidden[1] * exact
    assert point(HOSPITALS.of_tasks(16), 1.0).from_others > exact * hidden[1]


def test_a_forecast_says_whom_it_hides(tmp_path):
    given = {"tasks": 4, "rows": 150, "features": 14, "classes": 2, "epsilon": 1.0}
    found = tacit.forecast(**given, unit="person", persons=300)
    assert "with every person hidden" in found.sentence
    assert (found.to_json()["unit"], found.to_json()["persons"]) == ("person", 300)
    assert tacit.forecast(**given, unit="row").persons == 600
    found.plot(tmp_path / "plot.svg")
    assert "every person hidden" in (tmp_path / "plot.svg").read_text()
    facts = "--tasks 4 --rows 150 --features 14 --epsilon 1"
    shown = succeed(f"forecast {facts} --unit person --persons 300")
    assert "with every person hidden" in shown
    for wrong, words in (
        ({"persons": 300}, "is about persons"),
        ({"unit": "person"}, "needs persons="),
        ({"unit": "patient", "persons": 9}, "unit='patient'"),
        ({"unit": "row", "classes": 30, "features": 100}, "cannot be foreseen"),
    ):
        with pytest.raises(TacitError, match=words):
            tacit.forecast(**given | wrong)
