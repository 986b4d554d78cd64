"""Groups of tasks once they are found: heads, newcomers, what is told, and the last step."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit import PMTL, Clusters, Privacy
from tacit.engine.bench import Bench
from tacit.local.recipes import RECIPES, Candidate, Recipe
from tacit.privacy import NOT_COVERED
from tests.exchange.federations import headed
from tests.methods.test_clusters import FREE, planted
from tests.methods.test_personal_methods import run
from tests.test_cli import succeed


def test_heads_that_a_task_does_not_hold_are_not_moved_by_it():
    federation = headed()
    plain = {"rounds": 4, "seed": 0, "baselines": False, "personalise": "none", "model": "mlp"}
    same = {"lr": 0.2, "local_steps": 2, "batch": None, "pull": 0.5}
    one = tacit.train(federation, Clusters(groups=1, **same), **plain)
    other = tacit.train(federation, PMTL(**same), **plain)
    assert torch.equal(one.simulation.board["models"][0], other.simulation.board["mean"])
    two = tacit.train(federation, Clusters(groups=2, **same), privacy=Privacy(noise=1.0), **plain)
    course, board = two.simulation.course, two.simulation.board
    assert board["models"].isfinite().all()
    size = course.model.size
    held = course.model.spread(torch.ones(()), course.holds[0])
    sent = course.by_parameter("", torch.ones(course.sizes[""]), held)
    assert torch.equal(sent[: 2 * size], held.repeat(2))
    assert (sent[2 * size :] == 1).all()
    votes = torch.ones(course.sizes["votes"])
    assert torch.equal(course.by_parameter("votes", votes, held), votes)


@pytest.mark.parametrize("method", ["clusters", "cluster-priors"])
def test_a_new_task_joins_by_its_own_rows(method, tmp_path):
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 0.0, 0.5], [-1.0, 0.5, 0.0]])
    names, x = np.repeat(np.arange(60), 12), rng.standard_normal((720, 3))
    y = (x * centres[names % 2]).sum(axis=1) + 0.2 * rng.standard_normal(720)
    columns = {f"x{k}": x[:, k] for k in range(3)}
    constants = {f"x{k}": (0.0, 1.0) for k in range(3)}
    table = columns | {"y": y, "site": [f"s{k}" for k in names]}
    federation = tacit.data.from_table(
        table, task="site", target="y", scale=constants, target_scale=(0.0, 1.0)
    )
    given = {"seed": 0, "baselines": False, "personalise": "none", "rounds": 8}
    finished = tacit.train(federation, method, out=tmp_path / "run", **given)
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert told["groups_label"] == NOT_COVERED
    assert sorted(told["groups"]) == ["losses", "members", "share"]  # and not who is where
    assert sum(told["groups"]["members"]) == 60
    own, others = told["groups"]["losses"][0]
    assert own < 0.5 * others
    assert "Groups that tasks found" in (tmp_path / "run" / "report.html").read_text()
    new = rng.standard_normal((8, 3))
    asked = {f"x{k}": new[:, k] for k in range(3)} | {"site": ["new"] * 8}
    known = asked | {"y": new @ centres[1]}
    public = finished.predict(asked)
    own = finished.predict(asked, join=known)
    truth = new @ centres[1]
    assert np.abs(own - truth).mean() < 0.35 * np.abs(public - truth).mean()
    made = finished.model_for("new", new, truth)
    assert np.allclose(made(torch.tensor(new)).detach().numpy(), own, rtol=1e-4, atol=1e-6)
    for name, rows in (("asked", asked), ("known", known)):
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["--data", str(tmp_path / "asked.csv"), "--join", str(tmp_path / "known.csv")]
    succeed(["predict", str(tmp_path / "run"), *words, "--out", str(tmp_path / "found.csv")])
    found = pd.read_csv(tmp_path / "found.csv")["predicted y"]
    assert np.allclose(found, own, rtol=1e-4, atol=1e-6)


def test_the_last_step_begins_at_the_model_of_a_group():
    """And not at the mean over groups, which is nobody's: each fold's own rows say at which."""
    federation, _ = planted(2, tasks=40, columns=4)
    given = {"model": "linear-no-intercept", "rounds": 8}
    finished = run(federation, Clusters(groups=2, pull=None, **FREE), **given)
    bench, seen = Bench(finished.simulation.tasks, RECIPES["best"], None), 0
    candidate, groups = Candidate(Recipe("billboard"), 0), finished.simulation.board["models"]
    for span in bench.spans(torch.arange(40)):
        begun = bench.refit(span, {candidate})[candidate][0]
        for task, w in zip(span.tasks.tolist(), begun, strict=False):  # spans are filled up
            x, y = federation.train.of(task)
            best = ((groups @ x.T - y) ** 2).mean(dim=1).argmin()
            assert torch.equal(w, groups[best])
            seen += 1
    assert seen == 40
