"""Coefficients of groups beside each other: what they are, in which units, and what covers them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import tacit
from tacit import ClusterPriors, Clusters, Privacy
from tacit.experiment.groups import models_of_groups
from tacit.inference.summary import COVERED, LEAKED, OPEN, SEEDED
from tacit.report.html import page
from tests.methods.test_personal_methods import run

CENTRES = np.array([[1.0, 0.0, 0.5], [-1.0, 0.5, 0.0]])


def planted(scale: object = ((1.0, 0.0, 0.0), (1.25, 1.0, 0.5)), columns: int = 3):
    """Two groups, whose first coefficients differ in sign, around a column that is not at zero."""
    rng = np.random.default_rng(0)
    names, x = np.repeat(np.arange(60), 12), rng.standard_normal((720, columns))
    y = 3.0 + 10 * (x[:, :3] * CENTRES[names % 2]).sum(axis=1) + rng.standard_normal(720)
    x[:, 0] += 1.0
    target = (3.0, 10.0) if not isinstance(scale, str) else scale
    given = {"scale": scale, "target_scale": target, "validation": 0, "test": 0.2}
    return tacit.data.from_arrays(x, y, names, **given)


def told_by(finished) -> dict:
    told = models_of_groups(finished.simulation, finished.guarantee)
    assert told is not None
    return told


@pytest.mark.parametrize("model", ["linear", "linear-no-intercept"])
@pytest.mark.parametrize("method", [ClusterPriors(), Clusters(groups=2, lr=0.03, clip=5.0)])
def test_coefficients_are_those_that_were_planted_in_units_of_the_table(method, model):
    finished = run(planted(), method, rounds=40, model=model)
    told = told_by(finished)
    assert told["units"] == "units of the table"
    assert told["names"][0] == "intercept" and len(told["names"]) == 4
    assert sum(told["share"]) == pytest.approx(1) and len(told["share"]) == 2
    found = np.array(told["coefficients"])
    found = found[np.argsort(-found[:, 1])]
    assert (np.sign(found[:, 1]) == [1, -1]).all()
    assert np.allclose(found[:, 1:], 10 * CENTRES, atol=0.8)
    assert np.allclose(found[:, 0], 3 - 10 * CENTRES[:, 0], atol=0.8)


@pytest.mark.parametrize(
    ("epsilon", "seed", "scale", "label"),
    [
        (None, None, "task", OPEN),
        (8.0, 0, "task", SEEDED),
        (8.0, None, "task", COVERED),
        (8.0, None, "pooled", LEAKED),
    ],
)
def test_they_are_covered_as_far_as_the_run_is(epsilon, seed, scale, label, tmp_path):
    privacy = None if epsilon is None else Privacy(epsilon=epsilon)
    given = {"privacy": privacy, "seed": seed, "out": tmp_path / "run"}
    finished = run(planted(scale), ClusterPriors(), rounds=None, **given)
    told = told_by(finished)
    assert told["label"] == label
    own = told["units"] == "each task's own units"
    assert own == (scale == "task")
    # Nobody's own mean or spread is in it: numbers are as the billboard has them.
    board = finished.simulation.board
    models = board["models"][board["share"] > 0].double().numpy()
    if own:
        assert np.array_equal(np.roll(models, 1, axis=1), told["coefficients"])
    text = page(json.loads((tmp_path / "run" / "result.json").read_text()))
    block = text.split("<h2>The models of groups</h2>")[1].split("<h2>")[0]
    shown = "covered" if label == COVERED else "uncovered"
    assert f'<p class="{shown}"><b>{label[:1].upper()}{label[1:]}' in block
    assert told["units"] in block.replace("&#x27;", "'")
    assert block.count("<tr>") == 1 + 4


def test_units_of_tasks_own_stay_theirs_even_if_they_are_alike():
    """Whether constants are public is no question of what they are."""
    x = np.arange(20.0)
    twins = np.tile(x, 2)[:, None], np.tile(x, 2), np.repeat([0, 1], 20)
    federation = tacit.data.from_arrays(*twins, kind="regression", validation=0, test=0)
    finished = run(federation, ClusterPriors(groups=1))
    told = told_by(finished)
    assert told["units"] == "each task's own units"
    assert len(told["coefficients"]) == 1


@pytest.mark.parametrize("columns", [3, 31])
def test_what_is_not_drawn_is_said_in_one_sentence(columns):
    federation, model = planted("none", columns), "mlp" if columns == 3 else "linear"
    finished = run(federation, Clusters(groups=2), rounds=4, model=model)
    told = finished.to_json()
    assert told["group_models"] is None
    text = page(json.loads(json.dumps(told)))
    assert "models are not drawn: only linear ones with one output" in text
    assert "<h2>The models of groups</h2>" not in text
    assert "group_models" not in run(federation, tacit.PMTL(), rounds=4).to_json()


def test_a_group_is_there_by_its_published_share():
    """And not by its members, whom no release counts: here one that nobody joined is told."""
    finished = run(planted(), ClusterPriors(groups=3), rounds=8)
    assert len(told_by(finished)["share"]) == 2  # of three that there is room for
    board = finished.simulation.tasks.shown
    board["share"].copy_(torch.tensor([0.4, 0.3, 0.3]))
    assert told_by(finished)["share"] == pytest.approx([0.4, 0.3, 0.3])
    result = finished.to_json()
    assert sorted(result["groups"]["members"])[0] == 0
    assert "group 3 · 30%" in page(json.loads(json.dumps(result)))
