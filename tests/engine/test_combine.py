"""The end of a run: whatever a task could do alone, beside the shared model."""

import dataclasses

import numpy as np
import pytest
import torch

import tacit
from tacit import PMTL
from tacit.data.federation import Rows
from tacit.engine.blend import Blend
from tacit.engine.combine import reach_of
from tacit.engine.personalise import personalise, take_away
from tacit.engine.progress import silent
from tacit.experiment.models import SavedModels
from tacit.local.boosted import DEPTH
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


def steady(tasks=60, rows=10):
    """Levels far apart, and little else that eight rows could tell."""
    random = np.random.default_rng(0)
    x, task = random.normal(size=(tasks * rows, 5)), np.repeat(np.arange(tasks), rows)
    y = 10 + random.normal(size=tasks)[task] + 0.2 * random.normal(size=len(task))
    return tacit.data.from_arrays(x, y, task)


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


def test_trees_follow_one_another_where_rows_are_many(tmp_path):
    """Whose rows reach a hundred only with those that score keeps the kind that was judged."""
    run = tacit.train(bent(rows=160), privacy=Privacy(epsilon=1), seed=0, out=tmp_path)
    many, few = run.delivered.blend, tacit.train(bent(rows=110), seed=0).delivered.blend
    assert many.on_shared.depth == DEPTH < few.on_shared.depth
    x, names = np.random.default_rng(1).normal(size=(16, 4)), [str(k) for k in range(8)] * 2
    assert np.array_equal(SavedModels.load(tmp_path).predict(x, names), run.predict(x, names))
    own = run.personal("3")(torch.from_numpy(x).float()).detach().flatten()
    assert np.allclose(own, run.predict(x, ["3"] * 16), atol=1e-4)


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
    assert lost(run.measured) < 1.02 * lost(run.baselines["local"])


def test_rows_that_score_are_not_seen():
    """Other targets in the test part: what is scored stays the same, what is delivered does not."""
    federation = bent()
    other = dataclasses.replace(federation.test, y=-federation.test.y)
    blends = []
    for one in (federation, dataclasses.replace(federation, test=other)):
        run = tacit.train(one, privacy=Privacy(epsilon=1), seed=0, personalise="none")
        done = personalise(run.simulation.tasks, "best", silent, alone=False)
        blends.append((done.ended.blend, take_away(run.simulation.tasks, done).blend))
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(s.to_tensors().values() for s, _ in blends), strict=True)
    )
    assert not torch.equal(blends[0][1].constant, blends[1][1].constant)


def trained(federation, method=None, **settings):
    method = method or PMTL(batch=16, local_steps=2)
    plain = {"rounds": 8, "seed": 0, "privacy": Privacy(epsilon=1)}
    return tacit.train(federation, method, **(plain | settings))


def test_gradient_methods_end_with_whatever_a_task_could_do_alone(tmp_path):
    run = trained(bent(), out=tmp_path)
    assert lost(run.measured) < 1.05 * lost(run.baselines["local"])
    assert lost(run.baselines["local"]) < 0.5 * lost(run.personalised.alone)  # trees, not the model
    x, names = np.random.default_rng(1).normal(size=(16, 4)), [str(k) for k in range(8)] * 2
    assert np.array_equal(SavedModels.load(tmp_path).predict(x, names), run.predict(x, names))


def test_what_a_gradient_method_is_scored_by_is_not_seen_and_then_learned_from():
    federation = bent(rows=40)
    other = dataclasses.replace(federation.test, y=-federation.test.y)
    every, found = torch.arange(8), []
    for one in (federation, dataclasses.replace(federation, test=other)):
        run = trained(one, baselines=False)
        found.append((run.personalised, run.delivered))
    (before, taken), (after, taken_too) = found
    assert before.candidates == after.candidates
    assert torch.equal(before.models(every)[0], after.models(every)[0])
    scored = zip(*(one.ended.blend.to_tensors().values() for one in (before, after)), strict=True)
    assert all(torch.equal(a, b) for a, b in scored)
    tuned = torch.tensor([one.stop > 0 for one in before.candidates])
    moved = (taken.models(every)[0] != taken_too.models(every)[0]).any(dim=1)
    assert tuned.any() and torch.equal(moved, tuned)
    assert not torch.equal(taken.blend.constant, taken_too.blend.constant)


def test_what_is_solved_exactly_is_not_judged_by_two_thirds_of_few_rows():
    """Of a network only, which has fewer folds. Here planes divide classes, and the billboard is
    noise: a linear model of all rows is best, and one of 40 looks much worse than one of 60."""
    random = np.random.default_rng(0)
    x, task = random.normal(size=(12 * 90, 20)), np.repeat(np.arange(12), 90)
    y = (x @ random.normal(size=(20, 4))).argmax(axis=1)
    federation = tacit.data.from_arrays(x, y, task, test=1 / 3, validation=0.1)
    run = trained(federation, PMTL(lr=0.1, local_steps=5), privacy=Privacy(epsilon=0.1), rounds=5)
    ended = run.personalised.ended
    alone = run.simulation.tasks.measure("test", blend=ended.alone)
    assert run.measured.overall["loss_per_task"] < 1.06 * alone.overall["loss_per_task"]


def test_a_shared_model_that_says_nothing_gets_no_weight():
    """Training alone diverges, and there is no billboard: what a task can solve is left."""
    run = trained(bent(validation=0.0), tacit.Local(lr=1e9), rounds=2, privacy=None)
    assert np.isfinite(run.measured.per_task["loss"]).all()
    assert lost(run.measured) < 1.2 * lost(run.baselines["local"])


def test_few_rows_are_enough_to_doubt_what_drowned_in_noise():
    """No common units at ε = .01, as everybody knows: the shared model is worth little."""
    run = tacit.train(steady(), privacy=Privacy(epsilon=0.01), seed=0)
    assert run.federation.without_unit
    assert run.blend.shares["shared"] < 0.9
    alone = run.personalised.ended.alone
    assert lost(run.measured) < 1.1 * lost(run.simulation.measure("test", blend=alone))


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
        done = personalise(tasks, "best", silent, alone=False)
        found.append((done.ended.alone, board))
    (before, _), (after, _) = found
    assert torch.allclose(before.linear[1:], after.linear[1:])
    assert torch.allclose(before.weights[1:], after.weights[1:])
    assert not torch.allclose(before.linear[0], after.linear[0])


def test_two_rows_lean_on_the_shared_model_and_draw_no_line():
    shares = tacit.train(bent(tasks=30, rows=3), privacy=None, seed=0).blend.shares
    assert shares["shared"] > 0.9 and shares["constant"] > 0.01
    assert shares["linear"] == shares["trees"] == shares["trees on shared"] == 0


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_a_task_with_few_rows_keeps_to_itself_where_nobody_found_a_unit_of_the_target(unit):
    random = np.random.default_rng(0)
    task = np.repeat(np.arange(30), 4)
    y = unit * (50 + 10 * random.normal(size=len(task)))
    federation = tacit.data.from_arrays(random.normal(size=(len(task), 3)), y, task)
    run = tacit.train(federation, privacy=Privacy(epsilon=0.5), seed=0)
    assert -1 in run.federation.without_unit and run.blend.shares["shared"] == 0
    ours, mean = (one.overall["loss_per_task"] for one in (run.measured, run.baselines["constant"]))
    assert ours <= 1.1 * mean


def test_predictions_stay_in_reach():
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


def test_a_handful_of_rows_doubts_what_is_absurd_for_its_task():
    """Lines of very different steepness, four rows each: nobody's line is the common one."""
    random = np.random.default_rng(1)
    x, task = random.normal(size=(300, 1)), np.repeat(np.arange(50), 6)
    steep = 10.0 ** random.uniform(0, 3, size=50)
    y = steep[task] * (x[:, 0] + 0.01 * random.normal(size=300))
    run = tacit.train(tacit.data.from_arrays(x, y, task, test=0.3), privacy=None, seed=0)
    plain = run.simulation.measure("test")
    assert lost(run.measured) < 0.5 * lost(plain)


def test_counts_stay_in_reach_too():
    random = np.random.default_rng(0)
    x, task = random.normal(size=(240, 2)), np.repeat(np.arange(20), 12)
    y = random.poisson(np.exp(1 + 0.5 * x[:, 0]))
    data = tacit.data.from_arrays(x, y, task, kind="count")
    run = tacit.train(data, privacy=None, seed=0, baselines=False)
    wild = run.predict(np.full((20, 2), 1e3), [str(k) for k in range(20)])
    assert (wild >= 0).all() and wild.max() < 10 * y.max()


def test_how_far_a_few_rows_reach():
    """One row tells nothing, equal ones little, and more rows reach less far beyond themselves."""
    y = torch.tensor([7.0, 4, 4, 0, 1, *[0, 1] * 20, *[0] * 40])
    rows = Rows(y.unsqueeze(1), y, torch.tensor([0, 1, 3, 5, 45, 85]))
    low, high = reach_of("regression", rows).T
    assert high[0] == torch.inf and high[1] == 53 and high[2] == 51 and 2 < high[3] < 2.2
    assert torch.allclose(low[1:], torch.tensor([-45, -50, 1 - high[3], -high[4]]).double())
    low, high = reach_of("count", rows).T
    assert (low[1:] == 0).all() and 0.05 < high[4] < 0.15
    assert reach_of("binary", rows).isinf().all()
