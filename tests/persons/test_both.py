"""Both units at once: the same release hides persons at one ε and whole tasks at another."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.data.federation import Federation
from tacit.deploy.conduct import conduct
from tacit.deploy.guard import Refused, check_noise
from tacit.deploy.terms import Terms
from tacit.deploy.trust import what_leaves
from tacit.engine.simulate import Simulation
from tacit.errors import TacitError
from tacit.experiment.plan import Plan
from tacit.privacy import Everyone, Ledger, Poisson, Privacy, Release, spent
from tacit.privacy.accounting import of_tasks
from tacit.privacy.channel import Budget, BudgetSpent, Channel
from tacit.privacy.grid import LONGEST, Grid
from tacit.privacy.guesses import told_apart
from tacit.privacy.subtotal import subtotal
from tacit.randomness import Randomness
from tacit.report.box import guarantee_box
from tests.deploy.direct import Direct, personal, silos_of
from tests.deploy.test_persons import SERVERS, agreed, federation_of
from tests.persons.test_audit import patients
from tests.persons.test_bounds import METHODS, asked_at, board_at, load, simulated, table, without

BOTH = Privacy(noise=1.5, unit="person", persons=60, tasks_epsilon=4.0)
QUIET = {"personalise": "none", "baselines": False}


def channel(task_clip: float | None, noise: float = 4.0, **more) -> Channel:
    release = Release(Everyone(), noise, unit="person", task_clip=task_clip)
    return Channel(Everyone(), 40, Randomness.of(0), clip=0.7, release=release, **more)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 30]),
    st.sampled_from([0.3, 2.0, 9.0]),
    st.sampled_from([5, 30]),
    st.sampled_from(["random", "alike", "tiny"]),
)
def test_shortened_sums_are_no_further_apart(seed, size, clips, fraction, how):
    """Not by more than `off`, which a person's clip is smaller by; and none is longer than κ."""
    rng, grid = np.random.default_rng(seed), Grid(64, fraction)
    rest = rng.normal(size=size) * {"random": 1.0, "alike": 40.0, "tiny": 0.02}[how]
    own = rng.normal(size=size) if how != "alike" else rest * rng.choice([-1.0, 1.0])
    own *= LONGEST / np.linalg.norm(own)
    sums = [np.trunc(each * grid.steps).astype(np.int64) for each in (rest, rest + own, rest - own)]
    moved = [np.linalg.norm(sums[k] - sums[0]) / grid.steps for k in (1, 2)]
    short = [grid.shortened(each, clips) for each in sums]
    off = grid.off(size, clips)
    for k, before in zip((1, 2), moved, strict=True):
        assert np.linalg.norm(short[k] - short[0]) / grid.steps <= before + off
        assert np.linalg.norm(short[k]) <= clips * grid.steps


def test_rounding_would_be_a_leak_if_nothing_were_taken_off():
    """On a coarse grid, shortened sums can be further apart than the sums were."""
    grid, rng, most = Grid(64, 4), np.random.default_rng(0), 0.0
    for _ in range(400):
        one = rng.integers(-40, 40, 6)
        other = one + rng.integers(-1, 2, 6)
        before = np.linalg.norm(one - other)
        after = np.linalg.norm(grid.shortened(one, 2.0) - grid.shortened(other, 2.0))
        most = max(most, (after - before) / grid.steps)
    assert 0 < most <= grid.off(6, 2.0)


def both_of(federation: Federation, name: str, unit: str, share: int = 1) -> Simulation:
    known = Privacy

    def asked(**given):
        return known(**given, tasks_epsilon=40.0)

    with mock.patch.object(tacit, "Privacy", asked):
        return simulated(federation, name, unit, share)


def tasks_sums(simulation: Simulation, stage: str, seed: int) -> dict[int, np.ndarray]:
    """What every task adds to the release of this stage, in clips."""
    course, here = simulation.course, board_at(simulation, stage, seed)
    grid = course.channel.grid_at(here.round)
    assert grid is not None
    collection = course.channel.open(here.round, course.length, stage)
    for sent in asked_at(simulation, here):
        sent.add_to(collection)
    vectors = collection._Collection__vectors  # type: ignore[attr-defined]
    assert collection._Collection__sum is None  # type: ignore[attr-defined]
    return {k: course.channel.held(v, grid) / grid.steps for k, v in vectors.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "mixed")) for name in METHODS]
)
@pytest.mark.parametrize("single", [False, True], ids=["person", "row"])
def test_neither_a_person_nor_a_task_moves_a_release_by_more_than_its_bound(name, single):
    """Persons by one clip, tasks by κ: for data with and without one, and with other rows."""
    rows, unit = table(3, "binary", 1e6), "row" if single else "person"
    gone = np.arange(60) == int(np.argmax(rows["person"] == 0)) if single else rows["person"] == 0
    other = {key: value.copy() for key, value in rows.items()}
    other["x"][gone] = -other["x"][gone][:, ::-1] * 3
    made = [
        both_of(load(each, "binary", single, public=name == "pmtl"), name, unit)
        for each in (rows, without(rows, gone), other)
    ]
    clips, reached = made[0].channel.task_clip, 0.0
    assert clips is not None
    for stage in dict.fromkeys(made[0].course.stages):
        here, fewer, replaced = (tasks_sums(each, stage, 3) for each in made)
        length = [float(np.linalg.norm(each)) for each in here.values()]
        assert max(length) <= clips
        reached = max(reached, *length)
        for most, beside in ((1, fewer), (2, replaced)):
            moved = [here[k] - beside[k] for k in here]
            assert np.linalg.norm(np.sum(moved, axis=0)) <= most
    assert reached > 0.99 * clips  # the bound on tasks is at work, and is reached


def test_one_person_at_the_limit_moves_a_sum_by_a_whole_clip():
    """The bound for persons is not loose: alone, with a task's sum that is hardly shortened."""
    one = channel(8.0)
    found = []
    for persons in (3, 4):
        collection = one.open(0, 1)
        collection.add(torch.full((persons, 1), 100.0), torch.zeros(persons, dtype=torch.int64))
        (vector,) = collection._Collection__vectors.values()  # type: ignore[attr-defined]
        grid = one.grid_at(0)
        assert grid is not None
        found.append(one.held(vector, grid)[0] / grid.steps)
    assert found[1] - found[0] == pytest.approx(LONGEST, abs=1e-6) and found[1] - found[0] <= 1


@pytest.mark.parametrize("share", [1, 3])
def test_a_person_at_several_tasks_has_one_clip_for_all_of_them(share):
    """Also on a coarse grid, where rounding what is shortened would take it further."""
    one, size, grid = channel(1.5, share=share), 40, Grid(32, 10)
    assert one.parts(size, grid) > share  # what rounding may add is taken off
    rng, moved, nowhere = np.random.default_rng(1), 0.0, torch.zeros(0, dtype=torch.int64)
    for _ in range(share):
        others = rng.normal(size=(9, size))
        own = others.sum(axis=0, keepdims=True) * 100  # loud, and where the others go
        own += rng.normal(size=size) * 300
        sums = [
            subtotal(one, "a", 0, size, grid, [(torch.from_numpy(each), nowhere, len(each))])
            for each in (others * 0.05, np.concatenate([others * 0.05, own]))
        ]
        moved += float(np.linalg.norm((sums[1] - sums[0]).numpy())) / grid.steps
    assert 0.3 < moved <= 1


def test_numbers_too_coarse_to_bound_are_refused():
    with pytest.raises(TacitError, match="too coarse to bound"):
        channel(2.0).parts(10**6, Grid(32, 10))


def test_what_was_not_bounded_for_tasks_promises_them_nothing(tmp_path):
    release = Release(Poisson(0.5), 2.0, unit="person")
    bounded = dataclasses.replace(release, task_clip=1.5)
    assert spent(of_tasks(Counter({bounded: 2, release: 1})), 1e-3, "add-remove").epsilon == np.inf
    ledger = Ledger.at(tmp_path / "ledger.jsonl")
    ledger.book(0, bounded, repeatable=False)
    ledger.book(1, release, repeatable=False)
    again = Ledger.at(tmp_path / "ledger.jsonl").releases()
    assert again == Counter({bounded: 1, release: 1})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"unit": "task", "persons": None}, "is about persons"),
        ({"tasks_epsilon": -1.0}, "a positive number"),
        ({"noise": 0.0}, "without noise no task is hidden"),
        ({"noise_by": "task"}, "adds no noise, and everybody sees that"),
    ],
)
def test_what_cannot_be_promised_is_refused(wrong, words):
    with pytest.raises(TacitError, match=words):
        dataclasses.replace(BOTH, **wrong)
    assert dataclasses.replace(BOTH, noise_by="task", neighbours="replace").tasks_epsilon == 4.0


def test_settings_that_do_not_go_with_it_are_refused():
    federation = federation_of()
    with pytest.raises(TacitError, match="clip_quantile counts persons"):
        method = tacit.FedAvg(clip_quantile=0.5)
        tacit.train(federation, method, privacy=BOTH, rounds=2, seed=0)
    with pytest.raises(TacitError, match="Clusters counts persons, and a task's sum"):
        tacit.train(federation, tacit.Clusters(groups=2), privacy=BOTH, seed=0)
    with pytest.raises(TacitError, match="not shortened for whole tasks"):
        tacit.tune(federation, tacit.FedAvg(), search={"lr": [0.1, 0.2]}, privacy=BOTH)
    terms = agreed(federation, tacit.FedAvg(), privacy=BOTH, rounds=2, curator=SERVERS)
    with pytest.raises(TacitError, match="leave retries out"):
        dataclasses.replace(terms, retries=1)


def test_a_run_says_both_and_never_mixes_them(tmp_path: Path):
    privacy = dataclasses.replace(BOTH, noise=None, epsilon=2.0)
    settings = {"privacy": privacy, "rounds": 3, "out": tmp_path / "run", **QUIET}
    run = tacit.train(federation_of(), tacit.FedAvg(lr=0.1), **settings)
    found, said = run.guarantee, str(run.guarantee)
    assert 1.99 < found.epsilon <= 2.0 and 3.99 < (found.tasks_epsilon or 0) <= 4.0
    assert found.private
    first, second = said.split("; and beside that ")
    assert "any one person added or removed" in first and "ε=2.00" in first
    assert "any one task added or removed" in second and "ε=4.00" in second
    assert "person" not in second and "protects each task from all others together" in second
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["guarantee"]
    assert kept["unit"] == "person" and kept["epsilon"] <= 2.0 < 3.99 < kept["tasks_epsilon"] <= 4.0
    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == 3 and all('"task_clip"' in line for line in lines)
    box = guarantee_box(kept)
    assert "how much may be learned about one person" in box
    assert "how much may be learned about one whole task" in box
    assert "ε = 2.00" in box and "ε = 4.00" in box
    assert str(tacit.load(tmp_path / "run").guarantee) == said


def test_a_budget_of_tasks_ends_a_run_too():
    """Persons' ε is not asked for here; the fourth release would pass that of tasks."""
    privacy = dataclasses.replace(BOTH, noise=6.0)
    clips = privacy.task_clip(6.0, 3, 4, None)
    one = channel(clips, noise=6.0)
    one.budget = Budget.of(privacy, privacy.delta_for(4))
    one.randomness = Randomness.of(None)
    for round in range(3):
        one.open(round, 4).publishable(2)
    with pytest.raises(BudgetSpent, match="ε=4 of tasks"):
        one.open(3, 4)


def test_an_attack_on_a_whole_task_proves_no_more_than_was_promised():
    """Thirty persons of one task who all go to the limit, or are not there; and without the bound
    on tasks that is found out."""
    delta, rounds, runs = 1e-3, 2, 1500
    asked = Privacy(epsilon=1.0, delta=delta, unit="person", persons=200, tasks_epsilon=4.0)
    noise = asked.noise_multiplier(Everyone(), rounds, 4)
    one = channel(asked.task_clip(noise, rounds, 4, None), noise=noise)

    def attacked() -> float:
        coins = np.random.default_rng(0).random(runs) < 0.5
        scores = np.zeros(runs)
        for run in range(runs):
            made = dataclasses.replace(one, randomness=Randomness.of(run), ledger=Ledger())
            for round in range(rounds):
                collection = made.open(round, rounds)
                collection.add(torch.full((10, 1), -50.0), torch.ones(10, dtype=torch.int64))
                if coins[run]:
                    collection.add(torch.full((30, 1), 50.0), torch.zeros(30, dtype=torch.int64))
                scores[run] += float(collection.publishable(1))
        return told_apart(scores, coins, delta)

    assert 1.5 < attacked() <= 4.0
    with mock.patch.object(Grid, "shortened", lambda self, total, clips: total):
        assert attacked() > 4.0


@pytest.mark.parametrize("noise_by", ["curator", "task"])
@pytest.mark.parametrize("method", ["mixed", "fedavg", "pmtl"])
def test_silos_end_like_the_simulation(method, noise_by, tmp_path):
    federation = federation_of()
    by_task = {"neighbours": "replace"} if noise_by == "task" else {}
    privacy = dataclasses.replace(BOTH, noise_by=noise_by, **by_task)
    plain = {"local_steps": 1, "batch": None, "lr": 0.1}
    made = {"fedavg": tacit.FedAvg(**plain), "pmtl": tacit.PMTL(**plain)}.get(method, method)
    given = {"privacy": privacy, "seed": 3, "rounds": 3}
    run = tacit.train(federation, made, **QUIET, **given)
    terms = agreed(federation, made, **given)
    silos = silos_of(federation, terms, tmp_path)
    done = conduct(terms, tmp_path / "coordinator", Direct(silos))
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, run.models(torch.arange(3))[0], atol=2e-5)
    if method != "pmtl":  # there the simulation says that models are published, too
        assert str(done.guarantee) == str(run.guarantee)
    assert done.guarantee.tasks_epsilon == run.guarantee.tasks_epsilon
    work = silos[0].latest()
    assert work is not None and work.channel.task_clip == run.simulation.channel.task_clip
    leaves = what_leaves(terms)
    assert any("ε=4 allows (same δ), whether this silo" in line for line in leaves)


@pytest.mark.parametrize("method", ["mixed", "fedavg"])
def test_shares_end_like_one_machine(method):
    """Hardly any noise, and tasks' sums that are shortened all the same."""
    privacy = dataclasses.replace(BOTH, noise=1e-5, tasks_epsilon=1e12)
    made = tacit.FedAvg(lr=1.0, clip=0.3) if method == "fedavg" else method
    given: dict[str, Any] = {"privacy": privacy, "rounds": 3, "seed": 3} | QUIET

    def two(asked: Privacy, *_) -> float | None:
        return None if asked.tasks_epsilon is None else 2.0

    others: list[dict[str, Any]] = [{}, {"curator": SERVERS}, {"privacy": _persons_alone(privacy)}]
    with mock.patch.object(Privacy, "task_clip", two):
        plain, shared, free = (
            tacit.train(federation_of(), made, **given | more) for more in others
        )
    models = [run.models(torch.arange(3))[0] for run in (plain, shared, free)]
    assert torch.allclose(models[0], models[1], atol=2e-3)
    assert not torch.allclose(models[0], models[2], atol=2e-2)


def _persons_alone(privacy: Privacy) -> Privacy:
    return dataclasses.replace(privacy, tasks_epsilon=None, unit="person")


def test_a_silo_refuses_noise_that_does_not_hide_it():
    """It computes by itself how far its sum is shortened, and looks at what is booked as well."""
    terms: Terms = agreed(federation_of(), tacit.FedAvg(), privacy=BOTH, rounds=3)
    clips = BOTH.task_clip(1.5, 3, 3, None)
    fair = Release(Everyone(), 1.5, unit="person", task_clip=clips)
    check_noise(terms, BOTH, [fair] * 3)
    for unfair in ([fair] * 4, [dataclasses.replace(fair, task_clip=None)] * 3):
        with pytest.raises(Refused, match="gives whole silos"):
            check_noise(terms, BOTH, unfair)


def test_an_audit_attacks_the_promise_to_persons_and_says_so():
    """In sums that are shortened canaries weigh less, and one person moves nobody else."""
    privacy = Privacy(epsilon=4.0, delta=1e-3, unit="person", persons=60, tasks_epsilon=40.0)
    given: dict[str, Any] = {"privacy": privacy, "method": tacit.FedAvg(clip=0.3), "seed": 0}
    found = tacit.audit(patients(), rounds=1, many_runs=300, **given)
    assert 0.5 < found.epsilon_lower <= found.promised.epsilon <= 4.0
    assert any("whole tasks beside that is not attacked" in each for each in found.assumed)
    moved = tacit.audit(patients(), neighbour=patients(gone=[7]), rounds=1, many_runs=20, **given)
    assert moved.tries["others_changed"] == 0 and 0 < moved.tries["sum_moved"] <= 1
    assert not tacit.audit(patients(), one_run=True, canaries=60, rounds=2, **given).refuted


def test_runs_and_agreements_of_before_are_what_they_were():
    """Nothing new stands in them where it says nothing: they resume, and their digests hold."""
    without = dataclasses.replace(BOTH, tasks_epsilon=None)
    terms = agreed(federation_of(), tacit.FedAvg(), privacy=without, rounds=2)
    assert terms.privacy is not None and "tasks_epsilon" not in terms.privacy
    assert "tasks_epsilon" not in Plan(privacy=without).to_json()["privacy"]
    assert Plan(privacy=BOTH).to_json()["privacy"]["tasks_epsilon"] == 4.0
