"""The end of a run: whatever a task could do alone, beside the shared model."""

import dataclasses

import numpy as np
import pytest
import torch

import tacit
from tacit.engine.blend import Blend
from tacit.engine.combine import combine, deliver
from tacit.engine.progress import silent
from tacit.experiment.models import SavedModels
from tacit.privacy import Privacy


def bent(tasks=8, rows=100, seed=0, **options):
    """Tasks that a straight line says little about."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(tasks * rows, 4))
    task = np.repeat(np.arange(tasks), rows)
    y = 20 + 3 * np.sin(2 * x[:, 0]) + 2 * (x[:, 1] > 0) + random.normal(size=tasks)[task]
    return tacit.data.from_arrays(x, y + 0.2 * random.normal(size=len(y)), task, **options)


def collinear(tasks=42, rows=60, seed=0):
    """Patients in raw units: columns that nearly repeat each other, of any size."""
    random = np.random.default_rng(seed)
    base = random.normal(size=(tasks * rows, 4))
    x = base @ random.normal(size=(4, 16)) + 0.01 * random.normal(size=(tasks * rows, 16))
    x = x * 10.0 ** random.uniform(-3, 3, size=16) + 10.0 ** random.uniform(0, 3, size=16)
    task = np.repeat(np.arange(tasks), rows)
    beta = random.normal(size=4) + 0.3 * random.normal(size=(tasks, 4))
    y = 30 + 5 * random.normal(size=tasks)[task] + 4 * (base * beta[task]).sum(axis=1)
    return tacit.data.from_arrays(x, y + 0.5 * random.normal(size=len(y)), task)


def lost(metrics) -> float:
    return metrics.overall["loss"]


def test_trees_are_used_where_they_are_better(tmp_path):
    run = tacit.train(bent(), privacy=Privacy(epsilon=1), seed=0, out=tmp_path)
    plain = tacit.train(
        bent(), privacy=Privacy(epsilon=1), seed=0, personalise="none", baselines=False
    )
    assert lost(run.measured) < 0.5 * lost(plain.measured)
    assert lost(run.measured) < 1.05 * lost(run.baselines["local"])
    assert run.blend.shares["trees"] + run.blend.shares["trees on shared"] > 0.5
    x = np.random.default_rng(1).normal(size=(16, 4))
    names = [str(k) for k in range(8)] * 2
    saved = SavedModels.load(tmp_path)
    assert np.array_equal(saved.predict(x, names), run.predict(x, names))


@pytest.mark.parametrize("name", ["weights", "range", "constant", "linear", "holders", "place"])
def test_files_whose_parts_do_not_fit(name):
    run = tacit.train(bent(tasks=2), privacy=None, seed=0, baselines=False)
    tensors = run.blend.to_tensors()
    assert Blend.from_tensors("regression", tensors, 4).kind == "regression"
    broken = tensors | {name: tensors[name].unsqueeze(0)}
    with pytest.raises((ValueError, IndexError)):
        Blend.from_tensors("regression", broken, 4)


@pytest.mark.parametrize("epsilon", [0.5, 8.0, None])
def test_never_much_worse_than_an_exact_solution_alone(epsilon):
    privacy = None if epsilon is None else Privacy(epsilon=epsilon)
    run = tacit.train(collinear(), privacy=privacy, seed=0)
    assert lost(run.measured) < 1.05 * lost(run.baselines["local"])


def test_rows_that_score_are_not_seen():
    """Other targets in the test part: what is scored stays the same, what is delivered does not."""
    federation = bent()
    other = dataclasses.replace(federation.test, y=-federation.test.y)
    blends = []
    for one in (federation, dataclasses.replace(federation, test=other)):
        run = tacit.train(one, privacy=Privacy(epsilon=1), seed=0, personalise="none")
        ended = combine(run.simulation.tasks, silent)
        blends.append((ended.blend, deliver(run.simulation.tasks, ended).blend))
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(s.to_tensors().values() for s, _ in blends), strict=True)
    )
    assert not torch.equal(blends[0][1].constant, blends[1][1].constant)


def test_nothing_of_other_tasks_is_in_a_tasks_own():
    federation = bent()
    y = federation.train.y.clone()
    first = int(federation.train.offsets[1])
    y[:first] = -3 * y[:first]
    other = dataclasses.replace(federation, train=dataclasses.replace(federation.train, y=y))
    found = []
    for one in (federation, other):
        run = tacit.train(one, "mixed", privacy=None, seed=0, personalise="none", baselines=False)
        tasks = run.simulation.tasks
        board = found[0][1] if found else tasks.board
        tasks.board = board  # what is public moved, and that is meant to matter
        found.append((combine(tasks, silent).alone, board))
    (before, _), (after, _) = found
    assert torch.allclose(before.linear[1:], after.linear[1:])
    assert torch.allclose(before.weights[1:], after.weights[1:])
    assert not torch.allclose(before.linear[0], after.linear[0])


def test_few_rows_keep_the_shared_model_and_predictions_stay_in_reach():
    run = tacit.train(bent(rows=12), privacy=Privacy(epsilon=1), seed=0)
    assert run.blend.shares["shared"] == 1.0
    run = tacit.train(bent(), privacy=Privacy(epsilon=1), seed=0, baselines=False)
    wild = np.full((8, 4), 1e9)
    found = run.predict(wild, [str(k) for k in range(8)])
    assert np.abs(found - 20).max() < 40


def test_delivered_models_learned_from_every_row():
    federation = bent(rows=20)
    run = tacit.train(federation, privacy=None, seed=0, baselines=False)
    everything = run.federation.train.joined(run.federation.test)
    settled = run.simulation.tasks.settled_models(everything, torch.arange(8))
    assert torch.equal(run.models(torch.arange(8))[0], settled[0])
    assert not torch.equal(
        run.models(torch.arange(8))[0], run.simulation.personal(torch.arange(8))[0]
    )
