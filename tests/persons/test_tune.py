"""Tuning where persons are hidden: their scores are bounded, and the promise covers the choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit.experiment import tune as module
from tacit.experiment.tune import noisy_score, person_scores
from tacit.methods import Board
from tacit.privacy import Everyone, Ledger, Release, spent
from tacit.randomness import digests
from tests.persons.test_bounds import load, simulated, table, without

SEARCH = {"lr": [0.05, 0.5], "clip": (0.1, 2.0)}


def tuned(federation, **more):
    privacy = {"epsilon": 4.0, "unit": "person", "persons": 40} | more.pop("privacy", {})
    return tacit.tune(
        federation,
        tacit.FedAvg(local_steps=1, batch=None),
        search=SEARCH,
        expected_runs=2,
        rounds=2,
        baselines=False,
        personalise="none",
        privacy=tacit.Privacy(**privacy),
        **{"seed": 0} | more,
    )


def patients(rows=None, kind="binary"):
    rows = table(4, kind, 1.0) if rows is None else rows
    known = {"scale": ([0.0, 900.0, 0.0], [1.0, 50.0, 0.01])}
    known |= {"target_scale": (0.0, 2.0)} if kind == "regression" else {}
    given = {"kind": kind, "persons": rows["person"], "validation": 0.4, "test": 0.2}
    return tacit.data.from_arrays(rows["x"], rows["y"], rows["task"], **given, **known)


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_a_persons_score_is_its_own(kind):
    """Whoever leaves changes no bit of what the others say, and the sum by half a clip at most."""
    rows = table(4, kind, 1e3)
    held = set(patients(rows, kind).validation.persons.tolist())
    judges = [who for who in range(30) if digests([str(who).encode()])[0] in held]
    learns = next(who for who in np.unique(rows["person"]) if who not in judges)
    found = []
    for gone in (-1, judges[0], learns):
        each = simulated(patients(without(rows, rows["person"] == gone), kind), "ditto", "person")
        start = each.course.start
        ahead = {name: value + 0.3 for name, value in start.tensors.items()}
        each.tasks.read(Board(ahead, start.round))
        scores = person_scores(each)
        assert ((scores >= 0) & (scores <= 1)).all()
        found.append((scores, noisy_score(each, Release(Everyone(), 0.0, unit="person"))))
    (everybody, mean), (fewer, other), (same, again) = found
    assert set(fewer) < set(everybody) and len(fewer) == len(everybody) - 1
    assert 0 < abs(mean - other) <= 0.5 / 30
    assert (same == everybody).all() and again == mean


def test_a_persons_score_does_not_look_at_its_task():
    """A personal model is made of all persons of a task: only the shared one may be scored."""
    simulation = simulated(patients(), "ditto", "person")
    before = person_scores(simulation)
    states = simulation.tasks.states(torch.arange(2))
    moved = {name: value + 1.0 for name, value in states.items()}
    simulation.tasks.store.put(torch.arange(2), moved)
    assert (person_scores(simulation) == before).all()


def test_the_promise_covers_the_choice_and_names_the_person(tmp_path):
    noise = {"epsilon": None, "noise": 3.0}
    run = tuned(patients(), out=tmp_path / "run", seed=None, privacy=noise)
    promise = run.guarantee
    assert promise.unit == "person" and promise.tuned and promise.private
    assert "any one person added or removed" in str(promise)
    ledger = Ledger.at(tmp_path / "run" / "ledger.jsonl")
    (booked,) = ledger.releases()
    assert booked.unit == "person"
    assert {release.unit for release, _ in booked.run} == {"person"}
    assert spent({booked: 1}, promise.delta, "add-remove").epsilon == promise.epsilon
    about = run.config["tuning"]
    assert "for each person" in about["score_means"]
    score = next(one for one, _ in booked.run if isinstance(one.sampler, Everyone))
    assert about["score_noise"] == pytest.approx(score.noise_multiplier * 0.5 / 40)


def test_it_costs_what_a_tuning_of_as_many_tasks_costs():
    """The same rounds, noise and runs: only the word differs."""
    persons = tuned(patients(), privacy={"epsilon": None, "noise": 3.0, "delta": 1e-3})
    one = module.tuning(Everyone(), 3.0, 2, 40, "add-remove", 2)[0]
    assert persons.guarantee.epsilon == spent({one: 1}, 1e-3, "add-remove").epsilon


def test_who_trusts_nobody_cannot_tune():
    with pytest.raises(tacit.TacitError, match="trusts nobody"):
        tuned(patients(), privacy={"noise_by": "task"})


def test_what_persons_become_is_searched():
    """`pmtl` has another form there, whose settings are meant."""
    with pytest.raises(tacit.TacitError, match="has no setting 'nothing'"):
        privacy = tacit.Privacy(epsilon=4.0, unit="person", persons=40)
        tacit.tune(patients(), tacit.PMTL(), search={"nothing": [1]}, privacy=privacy)
    federation = load(table(4, "binary", 1.0), "binary", False, test=0.3)
    with pytest.raises(tacit.TacitError, match="validation rows"):
        tuned(federation)
