"""The last step: what a task ends with is its own affair, and not worse than training alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import PMTL, FedAvg, Local, Privacy, SavedModels, TacitError
from tacit.engine.bench import FOLDS, Bench
from tacit.engine.evaluate import outputs
from tacit.engine.personalise import personalise
from tacit.engine.progress import silent
from tacit.local.recipes import ALONE, RECIPES, Candidate
from tacit.local.stack import folds

MODES = [mode for mode in RECIPES if mode != "none"]


def run(federation, method=None, **settings):
    plain = {"rounds": 16, "seed": 0, "baselines": False}
    method = method or FedAvg(batch=6, local_steps=2)
    return tacit.train(federation, method, **(plain | settings))


def kept(finished) -> torch.Tensor:
    return finished.models(torch.arange(len(finished.federation)))[0]


def test_noise_that_ruins_the_billboard_leaves_every_task_as_good_as_alone(make_federation):
    federation = make_federation(tasks=30, kind="binary", seed=1)
    ruined = {"privacy": Privacy(noise=1000.0), "baselines": True}
    for method in (PMTL(batch=6), FedAvg(batch=6)):
        finished = run(federation, method, **ruined)
        alone = finished.baselines["local"].overall["accuracy_per_task"]
        assert finished.measured.overall["accuracy_per_task"] >= alone - 0.02
        assert finished.measured.overall["loss_per_task"] < 0.5  # nobody kept a ruined model
        as_given = finished.simulation.measure("test").overall["accuracy_per_task"]
        assert as_given < alone - 0.1
        assert finished.personalised.chosen.count("trained alone") > 20


def test_a_good_billboard_is_used(make_federation):
    """Tasks with few rows around one common truth: alone is poor, the billboard is right."""
    federation = make_federation(tasks=40, features=6, kind="binary", seed=2)
    finished = run(federation, rounds=60, baselines=True)
    alone = finished.baselines["local"].overall["accuracy_per_task"]
    assert finished.measured.overall["accuracy_per_task"] > alone + 0.02
    assert finished.personalised.chosen.count("trained alone") < 20


def test_a_handful_of_rows_does_not_give_a_good_billboard_away():
    """Eight rows and four classes: what all tasks know is worth more than what a task can tell."""
    random, tasks = np.random.default_rng(5), 40
    x, names = random.normal(size=(tasks * 20, 4)), np.repeat(np.arange(tasks), 20)
    score = 1.5 * x @ random.normal(size=(4, 4)) + random.gumbel(size=(len(x), 4))
    federation = tacit.data.from_arrays(
        x,
        score.argmax(axis=1),
        names,
        kind="multiclass",
        scale="none",
        test=12 / 20,
        validation=1 / 20,
    )
    settings = {"rounds": 30, "publishing": tacit.Publishing(lr=2.0)}
    simulation = run(federation, personalise="none", **settings).simulation
    done = personalise(simulation.tasks, "best", silent, alone=False)
    blend = done.ended.blend if done.ended else None
    given = simulation.measure("test").overall
    ours = simulation.measure("test", personal=done.models, blend=blend).overall
    assert given["accuracy_per_task"] > 0.7
    assert ours["loss_per_task"] < 1.04 * given["loss_per_task"]
    assert ours["accuracy_per_task"] > given["accuracy_per_task"] - 0.01


def test_a_task_keeps_the_average_of_what_it_tried_by_its_own_weights(make_federation):
    federation = make_federation(kind="binary")
    simulation = run(federation, personalise="none").simulation
    done = personalise(simulation.tasks, "best", silent, alone=False)
    several = [k for k, one in enumerate(done.mixtures) if len(one) > 1]
    assert len(several) > 3
    bench = Bench(simulation.tasks, [r for r in RECIPES["best"] if r.start == "billboard"])
    task = torch.tensor(several[:1])
    (span,), mixture = bench.spans(task), done.mixtures[several[0]]
    assert abs(sum(mixture.values()) - 1) < 1e-12 and list(mixture) == sorted(
        mixture, key=lambda one: -mixture[one]
    )
    made = bench.refit(span, set(mixture))
    mean = sum(weight * made[one][0][:1] for one, weight in mixture.items())
    assert torch.allclose(done.models(task)[0], mean, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_task_ends_with_the_same_model_whoever_else_is_there(make_federation, mode):
    """Only through the billboard: with that fixed, other tasks' rows change nothing."""
    federation = make_federation(kind="binary")
    simulation = run(federation, personalise="none").simulation
    before = personalise(simulation.tasks, mode, silent, alone=False)
    first = int(federation.train.offsets[1])
    x = federation.train.x.clone()
    x[first:] += 3.0  # everyone's rows but the first task's
    other = tacit.data.federation.Rows(x, federation.train.y, federation.train.offsets)
    import dataclasses

    simulation.tasks.federation = dataclasses.replace(federation, train=other)
    after = personalise(simulation.tasks, mode, silent, alone=False)
    assert torch.equal(before.models(torch.tensor([0]))[0], after.models(torch.tensor([0]))[0])
    assert not torch.equal(before.models(torch.tensor([5]))[0], after.models(torch.tensor([5]))[0])


@pytest.mark.slow
def test_chunks_change_nothing(make_federation):
    simulation = run(make_federation(kind="binary"), PMTL(batch=6), personalise="none").simulation
    whole = personalise(simulation.tasks, "best", silent, alone=True)
    simulation.tasks._at_most = 1
    pieces = personalise(simulation.tasks, "best", silent, alone=True)
    every = torch.arange(12)
    assert whole.chosen == pieces.chosen
    assert torch.allclose(whole.models(every)[0], pieces.models(every)[0], atol=1e-5)
    assert whole.alone is not None and pieces.alone is not None
    assert np.allclose(whole.alone.per_task["loss"], pieces.alone.per_task["loss"], atol=1e-5)


def test_vanilla_fine_tuning_is_sgd_from_the_own_model_on_all_own_rows(make_federation):
    """Against a plain loop: the chosen stop, then training and validation rows together."""
    federation = make_federation(tasks=6, kind="regression")
    method = FedAvg(batch=None, lr=0.02, local_steps=2)
    finished = run(federation, method, personalise="vanilla", rounds=8)
    start = finished.simulation.board["model"]
    both = federation.train.joined(federation.validation)
    stops = [0, 5, 10, 20, 40, 80]
    for k in range(6):
        paths = {}
        for name, rows in (("train", federation.train), ("both", both)):
            x, y = rows.of(k)
            w, found = start.clone(), {0: start.clone()}
            for step in range(1, 81):
                error = x @ w[:-1] + w[-1] - y
                slope = torch.cat([2 * x.T @ error / len(y), 2 * error.mean()[None]])
                w = w - 0.02 * slope
                found[step] = w
            paths[name] = found
        x, y = federation.validation.of(k)
        losses = [
            float(((x @ w[:-1] + w[-1] - y) ** 2).mean())
            for w in (paths["train"][stop] for stop in stops)
        ]
        best, waited = 0, 0
        for number in range(1, 6):  # two looks without a lower loss end the search
            better = losses[number] < losses[best]
            best, waited = (number, 0) if better else (best, waited + 1)
            if waited == 2:
                break
        assert torch.allclose(kept(finished)[k], paths["both"][stops[best]], atol=1e-5)


def test_joined_keeps_each_tasks_rows_together(make_federation):
    federation = make_federation()
    both = federation.train.joined(federation.validation)
    for k in range(12):
        parts = [federation.train.of(k), federation.validation.of(k)]
        for side in (0, 1):
            assert torch.equal(both.of(k)[side], torch.cat([part[side] for part in parts]))


def test_what_was_chosen_is_reported_and_saved(make_federation, tmp_path):
    federation = make_federation(kind="binary")
    finished = run(federation, privacy=Privacy(noise=5.0), out=tmp_path / "run", baselines=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    said = result["metrics"]["personal_models"]
    assert said["mode"] == "best"
    assert list(said["per_task"].values()) == finished.personalised.chosen
    assert sum(said["counts"].values()) == 12
    x, names = federation.test.x.numpy(), np.repeat(federation.names, federation.test.counts)
    saved = SavedModels.load(tmp_path / "run").predict(x, names)
    assert np.allclose(saved, finished.predict(x, names))
    assert finished.guarantee.releases == 16  # personalising released nothing


def test_models_on_disk_are_the_models_in_memory(make_federation, tmp_path):
    federation = make_federation(kind="binary")
    memory = run(federation, rounds=4)
    disk = run(federation, rounds=4, store="disk", out=tmp_path / "run")
    assert torch.equal(kept(memory), kept(disk))


@pytest.mark.parametrize(
    "name",
    [
        "fedrep",
        "local",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("related", "naive")),
    ],
)
def test_every_kind_of_method_and_network_personalises(make_federation, name):
    federation = make_federation(kind="multiclass", seed=3).clustered(["a", "b"] * 6)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    if name == "naive":  # it refuses statistics of rows
        net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3))
    method = tacit.methods.METHODS[name](batch=6, local_steps=2)
    finished = run(federation, method, model=net, rounds=3)
    assert kept(finished).isfinite().all()
    assert len(finished.personalised.chosen) == 12


def test_alone_by_itself_is_what_local_training_reaches(make_federation):
    federation = make_federation(kind="binary")
    finished = run(federation, Local(batch=6), personalise="none", baselines=True)
    assert np.allclose(
        finished.baselines["local"].per_task["loss"], finished.measured.per_task["loss"], atol=0.5
    )


def test_rows_are_judged_by_models_that_have_not_seen_them(make_federation):
    """Labels at random: training alone must look as bad as it is, not as good as its memory."""
    federation = make_federation(tasks=8, features=40, kind="binary", seed=5)
    simulation = run(federation, Local(lr=1.0, batch=None), personalise="none").simulation
    bench = Bench(simulation.tasks, [ALONE])
    unseen, seen = [], []
    for span in bench.spans(torch.arange(8)):
        tried = bench.cross_validated(span, [ALONE])
        candidates, losses, rows = tried.candidates, tried.losses, tried.rows
        at = candidates.index(Candidate(ALONE, bench.stops(ALONE)[0]))
        assert losses[at].isfinite().all() and len(rows.y) == losses.shape[1]
        made = bench.refit(span, {candidates[at]})
        unseen.append(losses[at])
        seen.append(bench._row_losses(made[candidates[at]], rows, said=False)[0])
    assert torch.cat(unseen).mean() > 2 * torch.cat(seen).mean()


def test_every_row_is_in_one_fold_and_folds_are_even(make_federation):
    rows = make_federation().train
    fold = folds(rows.offsets, torch.arange(12), FOLDS)
    for k in range(12):
        mine = fold[rows.offsets[k] : rows.offsets[k + 1]]
        sizes = torch.bincount(mine, minlength=FOLDS)
        assert sizes.sum() == len(mine) and sizes.max() - sizes.min() <= 1


def test_refusals(make_federation):
    federation = make_federation(validation=0.0)
    with pytest.raises(TacitError, match="validation rows"):
        run(federation, personalise="mean")
    with pytest.raises(TacitError, match="validation rows"):
        run(federation, tacit.FedAMP(batch=6))
    with pytest.raises(TacitError, match="choose one of"):
        run(federation, personalise="worst")
    assert run(federation, personalise="none", baselines=True).baselines["local"].overall["loss"]


def test_predictions_do_not_depend_on_how_many_models_are_looked_at_together(make_federation):
    federation = make_federation()
    simulation = run(federation, PMTL(batch=6), personalise="none").simulation
    every = torch.arange(12)
    whole = simulation.outputs("test", every)
    own, rows = simulation.personal, federation.test
    for limit in (1, 5, 1000):
        few = outputs(simulation.model, own, rows, every, lambda width, most=limit: most)
        assert torch.allclose(whole, few, atol=1e-6)
