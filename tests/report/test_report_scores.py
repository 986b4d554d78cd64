"""Who gains and who loses, for scores that run either way and scores that are missing."""

from __future__ import annotations

import math

import pytest

from tacit.report.scores import about_scores, against_alone, task_score


def result(main, per_task, higher, alone, mine, kind="binary"):
    def block(values):
        each = {name: {"rows": 10 + k, per_task: v} for k, (name, v) in enumerate(values.items())}
        return {"overall": {main: 0.5}, "per_task": each}

    return {
        "federation": {"kind": kind},
        "metrics": {
            "main": {"name": main, "per_task": per_task, "higher_is_better": higher},
            **block(mine),
            "baselines": {"local": block(alone)},
        },
    }


ALONE = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8}
MINE = {"a": 0.6, "b": 0.5, "c": 0.7, "d": 0.5}


def test_losers_when_higher_is_better():
    tasks = against_alone(result("accuracy", "accuracy", True, ALONE, MINE))
    assert tasks is not None
    assert [tasks.names[k] for k in tasks.losers(15)] == ["d", "b"]
    assert (tasks.gaining, tasks.losing) == (1, 2)
    assert tasks.gain.tolist() == pytest.approx([0.1, -0.1, 0.0, -0.3])


def test_losers_when_lower_is_better():
    tasks = against_alone(result("nmse_pooled", "mse", False, ALONE, MINE, "regression"))
    assert tasks is not None
    assert [tasks.names[k] for k in tasks.losers(15)] == ["a"]
    assert (tasks.gaining, tasks.losing) == (2, 1)


def test_rounding_is_neither_gain_nor_loss():
    tasks = against_alone(result("accuracy", "accuracy", True, {"a": 0.3}, {"a": 0.1 + 0.2}))
    assert tasks is not None
    assert (tasks.gaining, tasks.losing) == (0, 0)


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_broken_model_loses_first_and_undefined_scores_are_left_out(missing):
    alone = {"a": 0.5, "broke": 0.6, "undefined": None, "helped": missing}
    mine = {"a": 0.4, "broke": missing, "undefined": None, "helped": 0.7}
    tasks = against_alone(result("accuracy", "accuracy", True, alone, mine))
    assert tasks is not None
    assert [tasks.names[k] for k in tasks.losers(15)] == ["broke", "a"]
    assert (tasks.gaining, tasks.losing, tasks.left_out) == (1, 2, 1)
    assert tasks.finite.tolist() == [True, False, False]


def test_losers_are_limited_and_ordered():
    alone = {f"t{k}": 0.9 for k in range(40)}
    mine = {f"t{k}": 0.9 - 0.01 * k for k in range(40)}
    tasks = against_alone(result("accuracy", "accuracy", True, alone, mine))
    assert tasks is not None
    assert [tasks.names[k] for k in tasks.losers(3)] == ["t39", "t38", "t37"]


def test_without_the_baseline_nothing_is_compared():
    given = result("accuracy", "accuracy", True, ALONE, MINE)
    for missing in ({}, None, {"local": {}}, {"global": given["metrics"]["baselines"]["local"]}):
        given["metrics"]["baselines"] = missing
        assert against_alone(given) is None
    del given["metrics"]["baselines"]
    assert against_alone(given) is None


def test_the_task_score_without_its_name_in_the_result():
    given = result("nmse_pooled", "loss", False, ALONE, MINE, "regression")
    del given["metrics"]["main"]["per_task"]
    kind = task_score(given)
    assert (kind.name, kind.words, kind.higher) == ("loss", "mean squared error", False)


def test_per_cents_and_minus_signs():
    kind = task_score(result("accuracy", "accuracy", True, ALONE, MINE))
    assert kind.text(0.8734) == "87.3 %"
    assert kind.text(-0.0123, 1, sign=True) == "\N{MINUS SIGN}1.2"
    assert kind.text(None) == "\N{EN DASH}"


def test_two_ways_to_count_tasks_are_told_apart():
    made = result("accuracy", "accuracy", True, ALONE, MINE)
    assert not any("counted" in said for said in about_scores(made))
    made["verdict"] = {"relative": [0.1, 0.0, 0.2]}
    assert "Tasks are counted by accuracy here." in " ".join(about_scores(made))
    made = result("nmse_pooled", "mse", False, ALONE, MINE, "regression")
    assert about_scores(made | {"verdict": {"relative": [0.1, 0.0, 0.2]}}) == []
