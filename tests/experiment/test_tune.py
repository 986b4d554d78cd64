"""`tacit.tune`: paid first, chosen by a noisy score, and silent about everything that lost."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tacit
from tacit import PMTL, Local, Privacy, TacitError
from tacit.cli import app
from tacit.experiment import tune as module
from tacit.experiment.tune import _Space, noisy_score, task_scores
from tacit.privacy import Everyone, Release
from tacit.randomness import Randomness

SEARCH = {"lr": [0.01, 0.1, 0.3], "clip": (0.1, 2.0)}
METHOD = PMTL(batch=4, local_steps=1)


def quick(federation, search=None, **settings):
    settings = {
        "rounds": 2, "seed": 0, "baselines": False, "personalise": "none", "method": METHOD,
        "expected_runs": 3, "privacy": Privacy(noise=5.0, delta=1e-3),
    } | settings  # fmt: skip
    return tacit.tune(federation, search=SEARCH if search is None else search, **settings)


def test_replace_can_be_tuned_with_cohorts_in_turn(make_federation, tmp_path):
    privacy = Privacy(epsilon=2.0, delta=1e-3, neighbours="replace", sampling="in-turn")
    run = quick(make_federation(), privacy=privacy, cohort=0.5, rounds=4, out=tmp_path / "run")
    assert 1.96 < run.guarantee.epsilon <= 2.0
    assert run.guarantee.accountant == "RDP" and "tasks in turn" in str(run.guarantee)


@pytest.fixture
def scripted(monkeypatch):
    """Four runs, whose noisy scores are as told; returns what was run."""
    ran = []

    def remember(plan, federation, **more):
        ran.append(plan)
        return original(plan, federation, **more)

    original = module.carry_out
    monkeypatch.setattr(module, "carry_out", remember)
    monkeypatch.setattr(module, "number_of_runs", lambda mean, randomness: 4)
    scores = iter([0.2, 0.7, 0.7, 0.1])
    monkeypatch.setattr(module, "noisy_score", lambda simulation, release: next(scores))
    return ran


def test_the_whole_costs_at_most_the_promise_and_says_so(make_federation, tmp_path):
    folder = tmp_path / "run"
    run = quick(
        make_federation(kind="binary"), privacy=Privacy(epsilon=2.0, delta=1e-3), cohort=0.5,
        out=folder, baselines=True,
    )  # fmt: skip
    result = json.loads((folder / "result.json").read_text())
    promise = result["guarantee"]
    assert 1.96 < promise["epsilon"] <= 2.0
    assert (promise["accountant"], promise["releases"]) == ("RDP", 3)
    assert "chosen by 3 booked runs on average" in promise["tuning"]
    assert "including the tuning" in promise["in_words"]
    page = (folder / "report.html").read_text()
    assert "Settings were chosen by 3 booked runs on average; ε covers that choice" in page
    about = result["config"]["tuning"]
    assert about["chosen"].keys() == SEARCH.keys()
    assert result["config"]["lr"] == about["chosen"]["lr"] in SEARCH["lr"]
    assert result["config"]["clip"] == promise["clip"] == about["chosen"]["clip"]
    assert result["config"]["privacy"]["epsilon"] == 2.0
    assert result["metrics"]["baselines"].keys() == {"constant", "local", "global"}
    assert {point["epsilon"] for point in result["curve"]} == {None}
    (line,) = (folder / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["mean"] == 3
    assert run.guarantee.noise_multiplier == run.simulation.channel.release.noise_multiplier


def test_a_plain_run_is_labelled_as_not_tuned(make_federation, tmp_path):
    tacit.train(
        make_federation(), METHOD, privacy=Privacy(noise=5.0), rounds=2, seed=0, baselines=False,
        personalise="none", out=tmp_path,
    )  # fmt: skip
    words = "if they were chosen by comparing runs on these data, that choice is not covered"
    assert words in json.loads((tmp_path / "result.json").read_text())["guarantee"]["tuning"]
    assert words in (tmp_path / "report.html").read_text()


def test_the_run_with_the_best_noisy_score_wins_and_nothing_else_is_left(
    make_federation, scripted, tmp_path
):
    folder = tmp_path / "run"
    run = quick(make_federation(), out=folder)
    assert len(scripted) == 4
    assert run.simulation.method == scripted[1].method  # the first of two equals
    assert run.config["tuning"]["score"] == 0.7
    assert len({plan.method.clip for plan in scripted}) == 4
    written = "".join(p.read_text() for p in folder.rglob("*.json*"))
    for plan in (scripted[0], scripted[2], scripted[3]):
        assert str(plan.method.clip) not in written
    assert run.timing["seconds"] < 60
    assert (scripted[0].out, scripted[0].store) == (None, "memory")


def test_all_runs_share_what_costs(make_federation, scripted):
    quick(make_federation(), cohort=0.5)
    methods = [dataclasses.replace(p.method, **dict.fromkeys(SEARCH, 1.0)) for p in scripted]
    shared = [p.but(method=m, seed=0) for p, m in zip(scripted, methods, strict=True)]
    assert len(set(shared)) == 1
    assert len({plan.seed for plan in scripted}) == 4


def test_it_is_paid_for_before_the_first_run(make_federation, tmp_path, monkeypatch):
    folder, federation = tmp_path / "run", make_federation()
    seen = []

    def crash(*args, **settings):
        seen.append((folder / "ledger.jsonl").read_text())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "carry_out", crash)
        with pytest.raises(KeyboardInterrupt):
            quick(federation, out=folder, seed=None)
    assert len(seen) == 1
    assert json.loads(seen[0])["kind"] == "tuning"
    with pytest.raises(TacitError, match="cut off and is spent: choose another folder"):
        quick(federation, out=folder, seed=None)
    with pytest.raises(TacitError, match="already holds a run"):
        tacit.train(federation, METHOD, privacy=Privacy(noise=5.0), out=folder)


def test_an_unseeded_tuning_keeps_one_ledger_and_no_other_folder(
    make_federation, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = quick(make_federation(), seed=None)
    assert run.guarantee.private
    (ledger,) = tmp_path.rglob("ledger.jsonl")
    assert len(ledger.read_text().splitlines()) == 1
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_seeds_reproduce(make_federation):
    federation = make_federation()
    one, two, other = (quick(federation, seed=seed) for seed in (5, 5, 6))
    assert one.config == two.config
    assert torch.equal(one.simulation.board["mean"], two.simulation.board["mean"])
    assert one.config["tuning"]["score"] != other.config["tuning"]["score"]


def finished(federation, **settings):
    return tacit.train(
        federation, METHOD, rounds=2, seed=0, baselines=False, personalise="none", **settings
    ).simulation


def test_the_score_is_bounded_whatever_a_task_says(make_federation, monkeypatch):
    simulation = finished(make_federation())
    exact = Release(Everyone(), 0.0)
    wild = np.array([1e9, -1e9, math.nan, math.inf, *[0.5] * 8])
    monkeypatch.setattr(module, "task_scores", lambda simulation: wild)
    assert noisy_score(simulation, exact) == pytest.approx(0.5, abs=1e-9)
    low, high = (np.full(12, 0.5) for _ in range(2))
    low[0], high[0] = -1e9, 1e9
    found = []
    for scores in (low, np.full(12, 0.5), high):
        monkeypatch.setattr(module, "task_scores", lambda simulation, scores=scores: scores)
        found.append(noisy_score(simulation, exact))
    assert np.diff(found) == pytest.approx([0.5 / 12, 0.5 / 12], rel=1e-4)
    assert np.diff(found).max() <= 0.5 / 12  # what adding or removing a task can do, and no more


def test_the_score_has_the_noise_that_is_booked(make_federation, monkeypatch):
    simulation = finished(make_federation())
    monkeypatch.setattr(simulation.channel, "randomness", Randomness.of(None))
    scores = task_scores(simulation)
    monkeypatch.setattr(module, "task_scores", lambda simulation: scores)
    noise = 7.0
    found = np.array([noisy_score(simulation, Release(Everyone(), noise)) for _ in range(4000)])
    assert found.std() == pytest.approx(noise * 0.5 / 12, rel=0.06)
    assert found.mean() == pytest.approx(scores.mean(), abs=0.03)


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_scores_are_each_tasks_own_and_between_zero_and_one(make_federation, kind):
    federation = make_federation(kind=kind)
    simulation = finished(federation)
    scores = task_scores(simulation)
    assert ((scores >= 0) & (scores <= 1)).all()
    out = simulation.outputs("validation", torch.tensor([3])).flatten().numpy()
    y = federation.validation.of(3)[1].numpy()
    if kind == "binary":
        assert scores[3] == pytest.approx(((out > 0) == (y > 0.5)).mean())
    else:
        relative = ((out - y) ** 2).mean() / federation.train.of(3)[1].numpy().var()
        assert scores[3] == pytest.approx(1 / (1 + relative), rel=1e-4)


def test_the_score_does_not_depend_on_the_units_of_the_target(make_federation):
    plain, scaled = (
        task_scores(finished(make_federation(target_scale=scale))) for scale in ("none", "task")
    )
    assert ((scaled > 0) & (scaled < 1)).all()
    assert abs(np.median(plain) - np.median(scaled)) < 0.3


def test_settings_are_drawn_as_promised():
    space = _Space.of(METHOD, {"lr": [1.0, 2.0], "clip": (0.1, 10.0), "local_steps": (1, 8)})
    drawn = [space.draw(Randomness.of(None), k) for k in range(2000)]
    assert np.mean([d["lr"] == 1.0 for d in drawn]) == pytest.approx(0.5, abs=0.06)
    logs = np.log10([d["clip"] for d in drawn])
    assert logs.min() >= -1
    assert logs.max() <= 1
    assert abs(logs.mean()) < 0.07
    assert {d["local_steps"] for d in drawn} == set(range(1, 9))
    assert space.words()["clip"] == "0.1 to 10, log-uniform"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"search": {}}, "search is empty"),
        ({"search": {"rounds": [10, 20]}}, "the same in all runs"),
        ({"search": {"lr": (0.1, 0.01)}}, "0 < low < high"),
        ({"search": {"lr": (0.1, 0.2, 0.3)}}, "0 < low < high"),
        ({"search": {"lr": 0.1}}, "a list of values or a pair"),
        ({"search": {"lr": []}}, "a list of values or a pair"),
        ({"search": {"lr": ["fast"]}}, "must be a number"),
        ({"search": {"lr": [0.1, -1.0]}}, "a positive number"),
        ({"method": Local()}, "one that publishes sums"),
        ({"privacy": None}, "pass privacy"),
        ({"expected_runs": 0}, "expected_runs=0"),
        ({"rounds": 0}, "rounds"),
        ({"model": torch.nn.Linear(7, 1)}, "does not run on inputs"),
        (
            {"privacy": Privacy(epsilon=1.0, neighbours="replace"), "cohort": 0.5},
            "only the RDP accountant.*sampling='in-turn'",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_paid_for(
    make_federation, tmp_path, settings, words
):
    with pytest.raises(TacitError, match=words):
        quick(make_federation(), out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_without_validation_rows_there_is_nothing_to_compare(make_federation):
    with pytest.raises(TacitError, match="validation rows"):
        quick(make_federation(validation=0.0))


def experiment(tmp_path, **changes) -> str:
    tables = {
        "data": 'from = "low-rank"\ntasks = 20\nfeatures = 4',
        "method": 'name = "pmtl"\nlocal_steps = 1',
        "privacy": "epsilon = 4.0",
        "run": f'rounds = 2\nseed = 1\nbaselines = false\nout = "{tmp_path / "run"}"',
        "publishing": 'rule = "momentum"\nlr = 0.5',
        "tune": "runs = 2\nlr = [0.01, 0.1]\nclip = {low = 0.1, high = 2.0}",
    } | changes
    path = tmp_path / "experiment.toml"
    path.write_text("".join(f"[{k}]\n{v}\n" for k, v in tables.items() if v is not None))
    return str(path)


def test_the_command_shows_what_was_chosen_and_the_guarantee(tmp_path):
    result = CliRunner().invoke(app, ["tune", experiment(tmp_path)])
    assert result.exit_code == 0, result.output + repr(result.exception)
    shown = " ".join(result.stdout.split())
    for words in ("one of 0.01, 0.1", "2 runs on average", "including the tuning", "noisy score"):
        assert words in shown
    assert (tmp_path / "run" / "report.html").exists()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["tune"]["runs"] == 2
    config = json.loads((tmp_path / "run" / "result.json").read_text())["config"]
    assert (config["publishing"]["rule"], config["publishing"]["lr"]) == ("momentum", 0.5)
    assert config["personalise"] == "best"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tune": None}, r"no \[tune\] table"),
        ({"privacy": None}, r"no \[privacy\] table"),
        ({"tune": "clip = {from = 1, to = 2}"}, "a range is written"),
        ({"tune": "clipp = [1.0, 2.0]"}, "no setting 'clipp'"),
        ({"run": "patience = 3"}, "not for tuning"),
    ],
)
def test_mistakes_in_the_file_get_one_sentence(tmp_path, changes, words):
    result = CliRunner().invoke(app, ["tune", experiment(tmp_path, **changes)])
    assert isinstance(result.exception, TacitError), result.output
    with pytest.raises(TacitError, match=words):
        raise result.exception
