"""No person moves what is released by more than one clip, whatever its rows and the others' are.

Sums are compared as they are before the noise, at the same billboard, for data with and without one
person (and with another in its place): all that is done before, splits, scales, gaps and shuffles,
is done anew for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import tacit
from tacit.data.federation import Federation
from tacit.data.persons import owners_of
from tacit.engine.rounds import Sent
from tacit.engine.simulate import Simulation
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of, sampler_of
from tacit.methods import Board
from tacit.privacy import Poisson, Release, guarantee
from tacit.privacy.grid import LONGEST
from tacit.randomness import Randomness, scramble
from tacit.report.box import guarantee_box

COLUMNS = 3


class Masked(nn.Sequential):
    """A network whose masks a person must not share with others."""

    def __init__(self, outputs: int) -> None:
        super().__init__(
            nn.Linear(COLUMNS, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, outputs), nn.Flatten(0)
        )


def masked(federation: Federation) -> nn.Module:
    return Masked(federation.outputs)


METHODS = {
    "mixed": ("mixed", "linear"),
    "fedavg": (tacit.FedAvg(lr=0.5, local_steps=2, batch=2), masked),
    "gradients": (tacit.FedAvg(lr=0.5, local_steps=1, batch=None), "mlp"),
    "fedprox": (tacit.FedProx(lr=0.5, local_steps=2, batch=None), "linear"),
    "ditto": (tacit.Ditto(lr=0.5, local_steps=1, batch=None), "linear"),
    "pmtl": (tacit.PMTL(lr=0.5, local_steps=2, batch=None), "linear"),
    "additive": ("additive", "linear"),
    "clusters": (tacit.Clusters(lr=0.5, local_steps=2, batch=None), "linear"),
}
KINDS = [(name, kind) for name in METHODS for kind in ("binary", "regression")]
KINDS += [("mixed", "count"), ("mixed", "survival"), ("gradients", "survival")]
SUMMED = ("gradients", "ditto")
"""Persons of these send one gradient each, which is summed without being multiplied out."""


def table(seed: int, kind: str, wild: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = 60
    person = np.append([2, 1, 0, 0], rng.integers(0, 30, n - 4))  # the list of tasks is public
    x = rng.normal(size=(n, COLUMNS)) * [1.0, 50.0, 0.01] + [0.0, 900.0, 0.0]
    x[person == 0] *= wild
    y = x[:, 0] + rng.normal(size=n)
    if kind == "binary":
        y = (y > 0).astype(float)
    elif kind == "count":
        y = np.round(np.abs(y)) * np.where(person == 0, wild, 1.0)
    elif kind == "survival":
        y = np.column_stack([np.abs(y) * np.where(person == 0, wild, 1.0) + 0.1, y > 0])
    else:
        y = y * np.where(person == 0, wild, 1.0)
    return {"x": x, "y": y, "task": person % 2, "person": person}


def load(
    rows: dict[str, np.ndarray],
    kind: str,
    single: bool,
    *,
    public: bool = False,
    test: float = 0.0,
) -> Federation:
    known = {"scale": ([0.0, 900.0, 0.0], [1.0, 50.0, 0.01])} if public else {}
    known |= {"target_scale": (0.0, 2.0)} if public and kind == "regression" else {}
    known |= {"cuts": (0.5, 1.0, 2.0)} if kind == "survival" else {}
    return tacit.data.from_arrays(
        rows["x"],
        rows["y"],
        rows["task"],
        kind=kind,
        persons=True if single else rows["person"],
        validation=0.0,
        test=test,
        **known,
    )


def simulated(federation: Federation, name: str, unit: str, share: int = 1) -> Simulation:
    method, model = METHODS[name]
    privacy = tacit.Privacy(noise=1.0, unit=unit, persons=30, at_most=share)
    plan = choose(federation, Plan(method=method, model=model, privacy=privacy, seed=0)).plan
    randomness = Randomness.of(0)
    made = model_of(plan.model, federation, 1)
    sampler = sampler_of(plan, len(federation))
    found = simulation_of(plan, federation, made, sampler, randomness, torch.device("cpu"))
    assert isinstance(found, Simulation)
    return found


def board_at(simulation: Simulation, stage: str, seed: int) -> Board:
    """A billboard of this stage that a seed decides."""
    course = simulation.course
    noise = torch.Generator().manual_seed(seed)
    board = dict(course.start.tensors)
    for known in {"beta", "model", "models"} & board.keys():
        value = board[known]
        board[known] = value + torch.randn(value.shape, generator=noise, dtype=value.dtype)
    if "metric" in board:  # of a matrix that noise made
        shape = board["metric"].shape
        board["metric"] = 3 * torch.randn(shape, generator=noise, dtype=torch.float64)
    if "low" in board:
        known = torch.tensor([-3.0, 700.0, -0.03, -4.0], dtype=torch.float64)[: len(board["low"])]
        wide = torch.tensor([6.0, 400.0, 0.06, 8.0], dtype=torch.float64)[: len(board["low"])]
        board |= {"low": known, "high": known + wide}
        board |= {"centre": known + wide / 2, "spread": wide / 6}
    return Board(board, course.stages.index(stage))


def asked_at(simulation: Simulation, here: Board) -> Iterator[Sent]:
    """What persons send where this is the billboard."""
    asked = simulation.rounds.strategy.asked
    if not simulation.course.votes_at(here.round):
        asked.read(here)
    yield from asked.ask(here, torch.arange(2))


def sums(simulation: Simulation, stage: str, seed: int) -> torch.Tensor:
    """What is released in this stage before noise, in clips, at a billboard that a seed decides."""
    course, here = simulation.course, board_at(simulation, stage, seed)
    collection = course.channel.open(here.round, course.length, stage)
    for sent in asked_at(simulation, here):
        sent.add_to(collection)
    total = collection._Collection__sum  # type: ignore[attr-defined]
    return total.double() / course.channel.grid_at(here.round).steps  # type: ignore[union-attr]


def without(rows: dict[str, np.ndarray], gone: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value[~gone] for name, value in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True], ids=["person", "row"])
@pytest.mark.parametrize(("name", "kind"), KINDS)
@settings(deadline=None, max_examples=2, derandomize=True, phases=(Phase.generate,))
@given(st.integers(0, 10**6), st.sampled_from([1.0, 30.0, 1e6]))
def test_nobody_moves_a_sum_by_more_than_a_clip(
    name: str, kind: str, single: bool, seed: int, wild: float
) -> None:
    rows = table(seed, kind, wild)
    gone = np.arange(60) == int(np.argmax(rows["person"] == 0)) if single else rows["person"] == 0
    other = {key: value.copy() for key, value in rows.items()}
    other["x"][gone] = -other["x"][gone][:, ::-1] * 3
    unit = "row" if single else "person"
    made = [
        simulated(load(each, kind, single, public=name == "pmtl"), name, unit)
        for each in (rows, without(rows, gone), other)
    ]
    for stage in dict.fromkeys(made[0].course.stages):
        here, removed, replaced = (sums(each, stage, seed) for each in made)
        assert torch.linalg.vector_norm(here - removed) <= 1 + 1e-12, stage
        assert torch.linalg.vector_norm(here - replaced) <= 2 + 1e-12, stage


@pytest.mark.parametrize("single", [False, True], ids=["person", "row"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "fedavg")) for name in METHODS]
)
def test_no_bit_of_what_others_send_moves(name: str, single: bool) -> None:
    """Shuffles, masks, batches and chunks of a person are its own; here with 40 more of them."""
    rows = table(9, "binary", 30.0)
    crowd = np.arange(80)
    more = {"x": np.ones((80, COLUMNS)) * crowd[:, None], "y": crowd // 2 % 2.0}
    more |= {"task": crowd % 2, "person": 100 + crowd % 40}
    whole = {key: np.concatenate([rows[key], more[key]]) for key in rows}
    unit = "row" if single else "person"
    made = [
        simulated(load(each, "binary", single, public=name == "pmtl"), name, unit)
        for each in (whole, rows, without(rows, rows["person"] == 0), more)
    ]
    for stage in dict.fromkeys(made[0].course.stages):
        if name in SUMMED:  # nobody's vector is made: sums are, to the last bit
            whole_sum, sum_of_rows, _, sum_of_more = (sums(each, stage, 3) for each in made)
            assert torch.equal(whole_sum - sum_of_rows, sum_of_more), stage
            continue
        sent = [Counter(_bits(each, stage)) for each in made]
        assert sent[2] < sent[1] < sent[0], stage
        assert sent[0] == sent[1] + sent[3], stage


def _bits(simulation: Simulation, stage: str) -> list[tuple[int, bytes]]:
    found = []
    for sent in asked_at(simulation, board_at(simulation, stage, 3)):
        rows = sent.vectors[: sent.count].numpy()
        tasks = sent.tasks[: sent.count].tolist()
        found += [(task, row.tobytes()) for task, row in zip(tasks, rows, strict=True)]
    return found


def test_nobody_moves_a_sum_quickly() -> None:
    """The same, once for the default method, where it is cheap."""
    rows = table(11, "binary", 30.0)
    gone = rows["person"] == 0
    made = [
        simulated(load(each, "binary", False), "mixed", "person")
        for each in (rows, without(rows, gone))
    ]
    for stage in dict.fromkeys(made[0].course.stages):
        here, removed = (sums(each, stage, 1) for each in made)
        assert torch.linalg.vector_norm(here - removed) <= 1 + 1e-12, stage


@pytest.mark.parametrize(("name", "stage"), [("fedavg", ""), ("mixed", "scores")])
def test_a_loud_person_moves_a_sum_by_a_whole_clip(name: str, stage: str) -> None:
    """The bound is not loose: what is allowed is also reached."""
    rows = table(3, "regression", 1e6)
    gone = rows["person"] == 0
    full, removed = (
        sums(simulated(load(each, "regression", False), name, "person"), stage, 1)
        for each in (rows, without(rows, gone))
    )
    assert torch.linalg.vector_norm(full - removed) == pytest.approx(LONGEST, abs=1e-6)


def test_a_person_at_several_tasks_has_one_clip_for_all_of_them() -> None:
    rows = table(4, "regression", 1e6)
    rows["task"] = np.where(rows["person"] == 0, np.arange(60) % 2, rows["task"])
    gone = rows["person"] == 0
    assert len(set(rows["task"][gone].tolist())) == 2
    for share, most in ((1, 2.0), (2, 1.0)):
        full, removed = (
            sums(simulated(load(each, "regression", False), "fedavg", "person", share), "", 1)
            for each in (rows, without(rows, gone))
        )
        moved = float(torch.linalg.vector_norm(full - removed))
        assert moved <= most + 1e-12
        assert moved > 0.4 * most  # both tasks send it, if not in the same direction


def test_the_test_has_teeth() -> None:
    """Scaled by its own task, or dealt by number, a person would move what others send."""
    rows = table(5, "binary", 30.0)
    gone = rows["person"] == 0
    whole, fewer = (load(each, "binary", False) for each in (rows, without(rows, gone)))
    scaled = [
        replace(each, train=replace(each.train, x=(each.train.x - each.train.x.mean(0))))
        for each in (whole, fewer)
    ]
    scaled = [replace(each, unscaled=None) for each in scaled]
    full, removed = (sums(simulated(each, "fedprox", "person"), "", 2) for each in scaled)
    assert torch.linalg.vector_norm(full - removed) > 1


@pytest.mark.parametrize("single", [False, True])
def test_others_are_dealt_and_known_as_before(single: bool) -> None:
    rows = table(7, "binary", 1.0)
    rows["x"][10] = rows["x"][11] = rows["x"][12]  # equal rows
    rows["y"][10] = rows["y"][11] = rows["y"][12]
    rows["task"][10:13] = 0
    gone = np.arange(60) == 11 if single else rows["person"] == rows["person"][11]
    whole, fewer = (load(each, "binary", single, test=0.3) for each in (rows, without(rows, gone)))
    for part in ("train", "test"):
        before, after = whole.part(part), fewer.part(part)  # type: ignore[arg-type]
        assert before.persons is not None and after.persons is not None
        assert set(after.persons.tolist()) <= set(before.persons.tolist())
    lost = {one for part in ("train", "test") for one in whole.part(part).persons.tolist()}  # type: ignore[arg-type, union-attr]
    kept = {one for part in ("train", "test") for one in fewer.part(part).persons.tolist()}  # type: ignore[arg-type, union-attr]
    assert len(lost - kept) == 1


def test_a_run_books_persons_and_says_so(tmp_path: Path) -> None:
    federation = load(table(1, "binary", 1.0), "binary", True, test=0.3)
    privacy = tacit.Privacy(epsilon=2.0, unit="row", persons=60)
    run = tacit.train(federation, privacy=privacy, out=tmp_path / "run", baselines=False)
    assert run.guarantee.unit == "row" and run.guarantee.private
    assert "any one row added or removed" in str(run.guarantee)
    assert "everybody outside its task" in str(run.guarantee)
    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
    assert lines and all('"unit": "row"' in line for line in lines)
    assert run.guarantee.epsilon <= 2.0
    assert run.config["crowd"] == 60 and "tasks" not in run.config  # rows are no tasks
    box = guarantee_box(run.guarantee.to_json())
    assert "one row" in box and "one task" not in box  # the report says whom it hides, everywhere


def test_a_guess_that_is_far_too_small_makes_no_weak_promise() -> None:
    """δ follows from how many persons there are said to be; it must fit those that there are."""
    rows = {key: np.repeat(value, 25, axis=0) for key, value in table(1, "binary", 1.0).items()}
    rows["x"] = rows["x"] + np.random.default_rng(0).normal(size=rows["x"].shape)
    federation = load(rows, "binary", True)
    privacy = tacit.Privacy(epsilon=2.0, unit="row", persons=10)  # δ = .001, and 1500 rows
    with pytest.raises(tacit.TacitError, match="more rows than persons=10 says"):
        tacit.train(federation, privacy=privacy, seed=0)


@pytest.mark.parametrize(("at_most", "words"), [(1, "one task"), (3, "3 tasks")])
def test_a_promise_says_at_how_many_tasks_somebody_may_be(at_most: int, words: str) -> None:
    privacy = tacit.Privacy(noise=3.0, unit="person", persons=60, at_most=at_most)
    release = Release(Poisson(1.0, at_most), 3.0, unit="person")
    given = {"channel": "billboard", "privacy": privacy, "tasks": 4, "sampler": release.sampler}
    found = guarantee({release: 2}, clip=1.0, seeded=False, **given)  # type: ignore[arg-type]
    assert f"nobody is at more than {words}" in found.assumptions


def test_persons_are_drawn_at_the_rate_that_is_booked_and_each_by_itself() -> None:
    """What canaries do not see: whom a task draws is decided where its persons are asked."""
    federation = load(table(1, "binary", 1.0), "binary", False, public=True)
    simulation = simulated(federation, "fedprox", "person")
    channel, rounds = simulation.channel, 100
    channel.sampler = Poisson(0.3)
    asked, start = simulation.rounds.strategy.asked, simulation.course.start
    drawn = torch.zeros(rounds, 2)
    for round in range(rounds):
        for sent in asked.ask(Board(start.tensors, round), torch.arange(2)):
            drawn[round] += torch.bincount(sent.tasks[: sent.count], minlength=2)
    persons = len(federation.train.persons.unique())  # type: ignore[union-attr]
    spread = (0.3 * 0.7 * persons * rounds) ** 0.5
    assert abs(float(drawn.sum()) - 0.3 * persons * rounds) < 4 * spread
    # Of independent draws the sums vary as much as their parts together.
    expected = 0.3 * 0.7 * persons
    assert 0.6 * expected < float(drawn.sum(dim=1).var()) < 1.5 * expected
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 4 / rounds**0.5


def test_the_order_of_tasks_does_not_tell_who_came_first():
    """Released models of tasks, and all lists of them, changed places when one person left."""
    x, y = np.arange(40.0).reshape(40, 1), np.arange(40) % 2
    task, person = np.append(["b"], np.resize(["a", "b", "c"], 39)), np.arange(40)
    given = {"kind": "binary", "validation": 0.0, "test": 0.0}
    whole = tacit.data.from_arrays(x, y, task, persons=person, **given)
    left = tacit.data.from_arrays(x[1:], y[1:], task[1:], persons=person[1:], **given)
    assert list(whole.names) == list(left.names) == ["a", "b", "c"]
    assert whole.train.x[whole.train.offsets[1] :][0] == 0.0  # rows stay with their task


def test_nobody_can_make_rows_that_change_when_another_one_leaves():
    """Rows were hashed by a mixer that can be turned around: whoever knew a row, and could add
    some, added hundreds of the same key, and all were dealt anew to parts without it."""

    def mixed(column: np.ndarray) -> np.ndarray:
        bits = torch.from_numpy(column.view(np.int64))
        return scramble(scramble(torch.zeros(len(bits), dtype=torch.int64), bits)).numpy()

    known, tries = np.array([[1.5, 2.5]]), np.arange(1.0, 5000.0) / 7
    second = (mixed(tries) ^ mixed(known[:, 0]) ^ known[:, 1].view(np.int64)).view(np.float64)
    made = np.column_stack([tries, second])[(np.abs(second) < 1e30) & (np.abs(second) > 1e-30)]
    rows, nobody = np.concatenate([known, made]), np.zeros(len(made) + 1, dtype=np.int64)
    whole, left = (owners_of(True, some, np.ones(len(some))) for some in (rows, made))
    assert whole is not None and left is not None and len(made) > 300
    keys = whole.at(np.arange(len(rows)), nobody)
    assert np.array_equal(keys[1:], left.at(np.arange(len(made)), nobody[1:]))
    assert len(np.unique(keys)) == len(rows)


def test_a_person_is_the_same_however_its_number_was_written():
    """Two exports may write 17 and 17.0: two persons would be bounded twice."""
    names = ["17", "17.0", " 17 ", "017", 17, 17.0, np.int64(17)]
    other = ["1.5", "A17", "a17", "18", str(2**53 + 3), str(2**53 + 4), "inf", "nan-1"]
    rows = len(names) + len(other)
    found = owners_of([*names, *other], np.zeros((rows, 1)), np.zeros(rows))
    assert found is not None
    assert len(set(found.keys[: len(names)].tolist())) == 1
    assert len(set(found.keys.tolist())) == 1 + len(other)
    plain = owners_of(["17"] * 2, np.zeros((2, 1)), np.zeros(2))
    assert plain is not None and plain.keys[0] == found.keys[0]
