"""Outcomes over time from a table to a report: every way of training, predictions, pictures."""

from __future__ import annotations

import csv
import json
import math
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import survival
from tacit.data.survival import cells
from tacit.errors import TacitError
from tacit.methods import Mixed
from tests.test_cli import succeed

CUTS = (1.0, 2.0, 5.0)
PLAIN: Any = {"baselines": False, "personalise": "none"}


def table(tasks: int = 6, each: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    """The same slopes everywhere, another level in each task."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tasks * each, 3)).round(3)
    level = np.repeat(rng.normal(0, 0.4, tasks), each)
    died = rng.exponential(2 / np.exp(x @ [1.0, -0.6, 0.3] + level))
    lost = rng.uniform(0, 9, tasks * each)
    return {
        "site": np.repeat([f"site {k}" for k in range(tasks)], each),
        **{f"x{k}": x[:, k] for k in range(3)},
        "years": np.minimum(died, lost).round(3),
        "died": (died <= lost).astype(int),
    }


@pytest.fixture(scope="module")
def made():
    return tacit.data.from_table(table(), task="site", target="years", event="died", cuts=CUTS)


@pytest.fixture(scope="module")
def run(made):
    return tacit.train(made, seed=0, privacy=None)


def test_by_itself_it_is_a_mixed_model_and_learns_from_others(made, run):
    assert isinstance(run.simulation.method, Mixed)
    found = {name: scores.overall for name, scores in run.baselines.items()}
    assert found["constant"]["concordance"] == 0.5
    ours = run.measured.overall
    assert ours["concordance"] > found["local"]["concordance"] > 0.55
    assert ours["loss"] < found["local"]["loss"] < found["constant"]["loss"]
    assert ours["brier"] < found["constant"]["brier"]
    assert run.verdict.against is not None and "log loss" in run.verdict.sentences[0]


def test_coefficients_have_names_and_are_those_of_the_table(run):
    """In the units of the table: each step is one more level for an interval."""
    known = {each.name: each for each in run.summary().coefficients}
    assert list(known) == ["intercept", "x0", "x1", "x2", "from 1 to 2", "from 2 to 5"]
    for name, slope in zip(("x0", "x1", "x2"), (1.0, -0.6, 0.3), strict=True):
        assert abs(known[name].estimate - slope) < 4 * known[name].error < 1.2
    # Three years have more events than one: log 3, because hazards are those of intervals.
    assert abs(known["from 2 to 5"].estimate - math.log(3)) < 4 * known["from 2 to 5"].error
    own = run.effects("site 1")
    assert np.isfinite(own.errors).all() and (own.errors < own.deviations).all()


def test_predictions_are_a_risk_and_survival_at_the_cuts(made, run, tmp_path):
    rows = table(seed=1)
    values = run.predict(rows)
    risk, alive = values[:, 0], values[:, 1:]
    assert values.shape == (240, 4) and (np.diff(alive, axis=1) < 0).all()
    np.testing.assert_allclose(risk, -np.log(alive[:, -1]), rtol=1e-9)
    seen = survival.Ends.of(cells(rows["years"], rows["died"] > 0, CUTS))
    right, pairs = survival.concordant(risk, seen)
    assert right / pairs > 0.65
    run.save(tmp_path)
    again = tacit.SavedModels.load(tmp_path).predict(rows)
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("name", ["pmtl", "prior"])
def test_other_methods_learn_too(made, name):
    found = tacit.train(made, name, seed=0, privacy=None, rounds=5, **PLAIN)
    assert found.measured.overall["concordance"] > 0.65


def test_networks_have_hazards_of_their_own_shape(made):
    found = tacit.train(made, "pmtl", model="mlp", seed=0, privacy=None, rounds=2, **PLAIN)
    assert found.predict(table(seed=1)).shape == (240, 4)
    with pytest.raises(TacitError, match="linear models"):
        tacit.train(made, "mixed", model="mlp", privacy=None)
    with pytest.raises(TacitError, match="level of each interval"):
        tacit.train(made, "prior", model="linear-no-intercept", privacy=None)


def test_new_tasks_learn_from_rows_without_any_event(run):
    """Whether a newcomer's rows have events is its own matter."""
    rows = {name: column[:12] for name, column in table(seed=2).items()}
    rows |= {"site": np.repeat("a new site", 12), "died": np.zeros(12, int)}
    spared = run.predict(rows, join=rows)[:, 0]
    rows["died"] = np.ones(12, int)
    assert (run.predict(rows, join=rows)[:, 0] > spared).all()


def test_the_command_line_and_the_report(tmp_path):
    rows = table(tasks=3, each=20)
    path, out, csv_out = (tmp_path / name for name in ("rows.csv", "run", "new.csv"))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))
    words = ["--task", "site", "--target", "years", "--event", "died", "--cuts", "1,2.5,5"]
    more = ["--epsilon", "4", "--delta", "0.01", "--seed", "0", "--out", str(out)]
    succeed(["train", "--data", str(path), *words, *more])
    result = json.loads((out / "result.json").read_text())
    assert result["metrics"]["main"]["name"] == "concordance"
    curves = result["metrics"]["curves"]
    assert curves["cuts"] == [1.0, 2.5, 5.0] and list(curves["per_task"]) == sorted(
        set(rows["site"])
    )
    assert result["metrics"]["label"] == "not covered by the guarantee"
    page = (out / "report.html").read_text()
    _, _, after = page.partition("What became of the rows over time")
    assert "not covered by the guarantee" in after[:200] and "Kaplan" in after
    assert "computed from the private rows of single tasks" in after
    succeed(["predict", str(out), "--data", str(path), "--out", str(csv_out)])
    first = csv.DictReader(csv_out.read_text().splitlines()).fieldnames
    assert first == ["site", "risk", "survival at 1", "survival at 2.5", "survival at 5"]
    shown = succeed(["data", str(path), "--task", "site", "--target", "years", "--event", "died"])
    assert "survival" in shown


def test_a_formula_has_no_outcome_over_time():
    with pytest.raises(tacit.TacitError, match="a formula has one outcome"):
        tacit.mixed("days ~ x + (1 | site)", {}, kind="survival")
