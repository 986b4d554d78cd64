"""How an attacker broke ε, before the channel: each finding as a test."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import tacit
from tacit import data
from tacit.methods import METHODS
from tacit.privacy import Everyone, Release
from tacit.privacy.bounds import Bounded, Place
from tacit.privacy.channel import Channel
from tacit.privacy.grid import Grid
from tacit.randomness import Randomness
from tacit.sklearn import PrivateMultiTaskRegressor
from tests.conftest import arrays
from tests.interference.harness import CHANGES, TARGET, Setting, simulation_of, table
from tests.interference.networks import made


def moved(one, other, setting: Setting) -> float:
    """By how many clips the first round's sum differs, before any noise."""
    sums = []
    for federation in (one, other):
        simulation = simulation_of(federation, setting, "")
        channel = Channel(
            Everyone(), len(federation), Randomness.of(0), clip=setting.method.clip,
            release=Release(Everyone(), 0.0),
        )  # fmt: skip
        collection, board = channel.open(0, 1), simulation.board
        everyone = torch.arange(len(federation))
        for chunk, _, sent in simulation.tasks.train(
            board, simulation.course.public(board), everyone
        ):
            collection.add(sent, chunk.filled, len(chunk.tasks))
        mean = collection.publishable(simulation.course.contribution_size).double()
        sums.append(mean * len(federation) / setting.method.clip)
    return float(torch.linalg.vector_norm(sums[0] - sums[1]))


@pytest.mark.parametrize("change", CHANGES)
def test_one_task_moves_the_sum_by_two_clips_at_most(change):
    """It moved by 3.9 to 9.2: a row more re-split every task that came after it."""
    before = table("regression", tasks=100)
    one, other = (
        data.from_arrays(*each, kind="regression") for each in (before, CHANGES[change](*before))
    )
    method = METHODS["pmtl"](clip=0.01)
    assert moved(one, other, Setting(method)) <= 2 + 1e-4
    assert moved(one, one, Setting(method)) == 0


def test_statistics_of_full_batches_are_a_tasks_own():
    """Another task going from five rows to many moved the sum by 16 clips."""
    module, shape = made("statistics")
    before = table("multiclass", tasks=40, shape=shape)
    pair = (
        data.from_arrays(*t, kind="multiclass") for t in (before, CHANGES["one row more"](*before))
    )
    setting = Setting(METHODS["fedavg"](clip=0.01, batch=None), module)
    assert moved(*pair, setting) <= 2 + 1e-4


@pytest.mark.parametrize("size", [5_000_000, 20_000_000])
def test_no_clipped_contribution_is_longer_than_the_clip(size):
    """In single precision it was 1.015 clips long with 5 million numbers, 1.06 with 20 million."""
    generator = torch.Generator().manual_seed(0)
    contribution = torch.randn(1, size, generator=generator) * 37
    bounded = Bounded.of(contribution, 0.7, None)
    grid = Grid.of(1, 1, 1.0)
    steps = bounded.summed(Place(), None, grid).double() / grid.steps
    assert 0.99 < float(torch.linalg.vector_norm(steps)) <= 1.0


def test_a_sum_over_thousands_moves_by_one_clip_when_a_task_is_added():
    """In single precision it moved by 1.49 clips."""
    rows = torch.randn(8112, 3000, generator=torch.Generator().manual_seed(1)) + 1
    grid = Grid.of(8112, 1, 1.0)
    bounded = Bounded.of(rows, 1.0, None)
    whole = bounded.summed(Place(), None, grid)
    without = bounded.first(8111).summed(Place(), None, grid)
    last = (whole - without).double() / grid.steps
    assert float(torch.linalg.vector_norm(last)) <= 1.0
    order = torch.randperm(8112, generator=torch.Generator().manual_seed(2))
    again = Bounded(bounded.kept[order], bounded.scale[order], bounded.bits[order])
    assert torch.equal(again.summed(Place(), None, grid), whole)


def test_masks_do_not_tell_who_was_drawn():
    """A task's dropout mask depended on its place in the chunk."""
    module, shape = made("dropout")
    federation = data.from_arrays(*table("multiclass", shape=shape), kind="multiclass")
    setting = Setting(METHODS["fedavg"](batch=6), module)
    everyone = torch.arange(len(federation))
    views = []
    for cohort in (everyone, everyone[everyone != federation.index(TARGET)], everyone.flip(0)):
        simulation = simulation_of(federation, setting, "")
        board, found = simulation.board, {}
        for chunk, _, sent in simulation.tasks.train(
            board, simulation.course.public(board), cohort
        ):
            found |= dict(zip(chunk.tasks.tolist(), sent, strict=False))
        views.append(found)
    for other in views[1:]:
        assert all(torch.equal(sent, views[0][task]) for task, sent in other.items())


def test_naive_promises_no_more_than_its_models_keep():
    """Statistics of BatchNorm and a task's scaling went along with its model, without noise."""
    module, shape = made("statistics")
    images = data.from_arrays(*table("multiclass", shape=shape), kind="multiclass")
    given = {"rounds": 2, "seed": 0, "baselines": False, "personalise": "none"}
    given["privacy"] = tacit.Privacy(noise=1.0)
    with pytest.raises(tacit.TacitError, match="BatchNorm would go along without noise"):
        tacit.train(images, tacit.NaiveDP(), model=module, **given)
    own = data.from_arrays(*table("binary"), kind="binary")
    run = tacit.train(own, tacit.NaiveDP(), model="linear", **given)
    assert "from all others together" in run.guarantee.protects
    constants = data.from_arrays(*table("binary"), kind="binary", scale=([0.0] * 5, [1.0] * 5))
    run = tacit.train(constants, tacit.NaiveDP(), model="linear", **given)
    assert "even from whoever is handed its own model" in run.guarantee.protects


@pytest.mark.parametrize("name", ["pmtl", "ditto", "fedavg", "mpmtl", "prior"])
def test_a_task_that_diverges_is_nobodys_trouble_but_its_own(name):
    """Rows of one task that are far too large made all tasks fail."""
    x, y, names = table("regression")
    x = x.copy()
    x[names == TARGET] *= 1e6
    federation = data.from_arrays(x, y, names, kind="regression", scale="none", target_scale="none")
    run = tacit.train(
        federation, METHODS[name](), rounds=3, seed=0, baselines=False, personalise="none",
        privacy=tacit.Privacy(noise=1.0),
    )  # fmt: skip
    w, _ = run.models(torch.arange(len(federation)))
    assert w.isfinite().all()
    assert set(run.diverged) <= {TARGET}
    number = federation.index(TARGET)
    x, y = (side.double().numpy() for side in federation.train.of(number))
    found = x @ w[number, :-1].double().numpy() + float(w[number, -1])
    assert math.isfinite(found.sum())
    if run.diverged:  # then it has the best model that it finds alone
        assert np.mean((found - y) ** 2) <= np.mean(y**2)


def test_a_network_that_diverges_is_trained_alone_by_steps_that_cannot():
    module, shape = made("mlp")
    x, y, names = table("multiclass", shape=shape)
    x = x.copy()
    x[names == TARGET] *= 1e20
    federation = data.from_arrays(x, y, names, kind="multiclass", scale="none")
    run = tacit.train(
        federation, tacit.PMTL(lr=1e19), model=module, rounds=2, seed=0, baselines=False,
        personalise="none", privacy=tacit.Privacy(noise=1.0),
    )  # fmt: skip
    assert TARGET in run.diverged
    assert run.models(torch.arange(len(federation)))[0].isfinite().all()
    assert run.metrics["diverged"] == run.diverged and "not covered" in run.metrics["label"]


@pytest.mark.parametrize("method", ["pmtl", "ditto", "mpmtl", "prior"])
def test_a_task_that_cannot_be_trained_fails_alone(method):
    """Its rows are ten thousand times too large: nobody else notices, and it is left alone."""
    x, y, tasks = arrays(12, 3, "regression")
    wild = x * np.where(tasks == "task-4", 1e4, 1.0)[:, None]
    made = PrivateMultiTaskRegressor(method, random_state=0, epsilon=8.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.fit(wild.astype(np.float32), y, tasks=tasks)
    assert set(made.diverged_) <= {"task-4"}
    assert bool(made.diverged_) == any(
        "diverged for 1 of 12 tasks" in str(w.message) for w in caught
    )
    own = tasks == "task-4"
    error = np.mean((made.predict(wild[own], tasks[own]) - y[own]) ** 2)
    assert error < 0.5 * np.var(y[own])
    rest = made.predict(x[~own], tasks[~own])
    assert np.mean((rest - y[~own]) ** 2) < 0.6 * np.var(y[~own])


@pytest.mark.parametrize(("method", "unit"), [("mixed", "person"), ("cluster-priors", "task")])
def test_rows_that_no_system_has_a_solution_for_end_nobody_elses_run(method, unit):
    """One task's wild rows stopped the run of all, with an error of linear algebra."""
    rng = np.random.default_rng(0)
    x, score = rng.normal(size=(120, 3)), rng.normal(size=120)
    y, persons = np.round(np.exp((x[:, 0] + score) / 2)), np.arange(120) // 2
    x[0], x[1], x[8], x[9] = 1e-310, 0.0, 1e12, -1e12
    who = {"persons": persons, "validation": 0.0, "test": 0.0} if unit == "person" else {}
    federation = data.from_arrays(x, y, persons % 4, kind="count", scale="none", **who)
    crowd = {"unit": unit, "persons": 60} if unit == "person" else {}
    private, plain = tacit.Privacy(noise=1.0, **crowd), {"personalise": "none", "baselines": False}
    run = tacit.train(federation, method, privacy=private, seed=0, **plain)
    assert bool(run.models(torch.arange(4))[0].isfinite().all())
