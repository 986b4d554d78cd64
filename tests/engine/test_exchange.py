"""Rounds of the exchange: who is there, who is lost, what is refused, and what a stop changes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import MOCHA, Attendance, FedAMP, FedAvg, FedFomo, FedMTL, Local, Privacy, TacitError
from tacit.engine import course, rounds
from tacit.engine.exchange import Exchange
from tacit.methods.fedmtl import VARIANTS
from tacit.randomness import Randomness
from tests.exchange.federations import headed

SGD = {"lr": 0.05, "local_steps": 2, "batch": 6}
METHODS = [
    FedMTL(**SGD, threshold=0.2, last_threshold=0.6),
    FedAMP(**SGD),
    FedFomo(**SGD, peers=2),
    MOCHA(**SGD),
]
NAMES = [type(method).__name__ for method in METHODS]
EVERYONE = FedMTL(**SGD, **VARIANTS["G"])
every_method = pytest.mark.parametrize("method", METHODS, ids=NAMES)


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


def quick(federation, method, **given):
    plain = {"rounds": 3, "seed": 0, "baselines": False, "personalise": "none"}
    return tacit.train(federation, method, **(plain | given))


def personal(run) -> torch.Tensor:
    return run.simulation.personal(torch.arange(len(run.federation)))[0]


def without_last(federation):
    """The same federation before its last task came."""
    parts = {}
    for name in ("train", "validation", "test"):
        rows = federation.part(name)
        end = int(rows.offsets[-2])
        parts[name] = dataclasses.replace(
            rows, x=rows.x[:end], y=rows.y[:end], offsets=rows.offsets[:-1]
        )
    return dataclasses.replace(federation, names=federation.names[:-1], **parts)


def weighted(federation, models: torch.Tensor, who: list[int]) -> torch.Tensor:
    """The mean of some clients' models by their numbers of rows."""
    sizes = federation.train.counts[who].float()
    return (models[who] * sizes.unsqueeze(1)).sum(dim=0) / sizes.sum()


# --- who takes part ---


def test_only_the_cohort_trains_and_only_the_cohort_is_mixed(make_federation):
    federation = make_federation(tasks=12)
    run = quick(federation, EVERYONE, rounds=1, cohort=0.5)
    drawn = run.simulation.channel.cohort(0).tolist()
    assert 3 <= len(drawn) < 12
    trained = personal(quick(federation, Local(**SGD), rounds=1))
    mean = weighted(federation, trained, drawn)
    for k, model in enumerate(personal(run)):
        wanted = mean if k in drawn else run.simulation.model.start
        assert torch.allclose(model, wanted, atol=1e-6)
    record = run.simulation.exchange.record
    assert record.answered.tolist() == [float(k in drawn) for k in range(12)]


@every_method
def test_part_of_the_tasks_in_each_round_leaves_finite_models(make_federation, method):
    run = quick(make_federation(tasks=9), method, rounds=6, cohort=0.5)
    found, record = personal(run), run.simulation.exchange.record
    assert found.isfinite().all() and run.simulation.channel.dropped == 0
    drawn = [run.simulation.channel.cohort(r).tolist() for r in range(6)]
    assert record.answered.tolist() == [sum(k in c for c in drawn) for k in range(9)]
    if not isinstance(method, FedFomo):  # whose clients may find that nothing was better
        moved = (found != run.simulation.model.start).any(dim=1).tolist()
        assert moved == [any(k in cohort for cohort in drawn) for k in range(9)]


@every_method
def test_a_client_that_joins_later_holds_the_start_and_nobody_hears_of_it(make_federation, method):
    federation = make_federation(tasks=6)
    later = Attendance(joins={"task-5": 2})
    run = quick(federation, method, rounds=2, attendance=later)
    before = quick(without_last(federation), method, rounds=2)
    assert torch.equal(personal(run)[5], run.simulation.model.start)
    assert torch.allclose(personal(run)[:5], personal(before), atol=1e-6)
    assert run.simulation.exchange.record.answered.tolist() == [2.0] * 5 + [0.0]


def test_a_client_that_joined_takes_part(make_federation):
    federation = make_federation(tasks=4)
    run = quick(federation, EVERYONE, rounds=3, attendance=Attendance(joins={"task-1": 2}))
    found = personal(run)
    assert torch.allclose(found, found[0].expand_as(found), atol=1e-6)  # all have the one mean
    assert run.simulation.exchange.record.answered.tolist() == [3, 1, 3, 3]
    never = quick(federation, EVERYONE, rounds=3, attendance=Attendance(joins={"task-1": 9}))
    assert torch.equal(personal(never)[1], never.simulation.model.start)
    assert not torch.allclose(personal(never)[0], found[0], atol=1e-4)


@pytest.mark.parametrize(
    "method",
    [EVERYONE, FedAMP(**SGD, pull=0.0), FedFomo(**SGD), MOCHA(**SGD, pull=0.0)],
    ids=NAMES,
)
def test_where_everybody_is_lost_everybody_trains_alone(make_federation, method):
    federation = make_federation(tasks=5)
    run = quick(federation, method, attendance=Attendance(lost=1.0))
    alone = quick(federation, Local(**SGD))
    assert torch.allclose(personal(run), personal(alone), atol=1e-6)
    assert (run.simulation.exchange.record.answered == 0).all()
    assert (run.simulation.exchange.record.weights == 0).all()


def test_a_lost_client_keeps_what_it_trained_and_is_in_nobodys_answer(make_federation):
    federation, attendance = make_federation(tasks=10), Attendance(lost=0.5)
    run = quick(federation, EVERYONE, rounds=1, attendance=attendance)
    stays = attendance.stays(torch.arange(10), 0, Randomness.of(0)).tolist()
    assert 2 < sum(stays) < 9
    trained = personal(quick(federation, Local(**SGD), rounds=1))
    mean = weighted(federation, trained, [k for k in range(10) if stays[k]])
    for k, model in enumerate(personal(run)):
        assert torch.allclose(model, mean if stays[k] else trained[k], atol=1e-6)


def test_losses_have_the_chance_that_was_asked_for_and_change_with_the_round():
    tasks, randomness = torch.arange(4000), Randomness.of(3)
    for chance in (0.1, 0.5, 0.9):
        seen = [Attendance(lost=chance).stays(tasks, r, randomness) for r in range(2)]
        for stays in seen:
            assert float(stays.double().mean()) == pytest.approx(1 - chance, abs=0.03)
        assert not torch.equal(*seen)
    assert Attendance().stays(tasks, 0, randomness).all()
    assert not Attendance(lost=1.0).stays(tasks, 0, randomness).any()


# --- uploads that are none ---


def with_a_broken_task(federation):
    """The last task's rows are so large that its first step leaves the numbers that there are."""
    rows = federation.train
    x = rows.x.clone()
    x[int(rows.offsets[-2]) :] = 1e30
    return dataclasses.replace(federation, train=dataclasses.replace(rows, x=x))


@every_method
def test_a_model_that_broke_down_is_not_accepted_and_counted(make_federation, method):
    federation = with_a_broken_task(make_federation(tasks=6))
    run = quick(federation, method)
    found = personal(run)
    assert run.simulation.channel.dropped == 3
    assert run.metrics["dropped_contributions"] == 3
    assert found[:5].isfinite().all()
    assert torch.allclose(found[:5], personal(quick(without_last(federation), method)), atol=1e-6)
    assert run.simulation.exchange.record.answered.tolist() == [3.0] * 5 + [0.0]


@every_method
def test_a_model_that_runs_away_leaves_the_others_as_they_were(make_federation, method):
    """Still finite when it is uploaded, but its square is not: as on the billboard, it is left."""
    federation = make_federation(tasks=6)
    rows = federation.train
    x = rows.x.clone()
    x[int(rows.offsets[-2]) :] *= 1e9
    federation = dataclasses.replace(federation, train=dataclasses.replace(rows, x=x))
    run = quick(federation, method, rounds=1)
    found = personal(run)
    assert found[5].isfinite().all() and found[5].abs().max() > 1e20
    assert run.simulation.channel.dropped == 1
    alone = quick(without_last(federation), method, rounds=1)
    assert torch.allclose(found[:5], personal(alone), atol=1e-6)


# --- how it is computed ---


@every_method
@pytest.mark.parametrize("batch", [6, None])
def test_the_size_of_a_chunk_changes_nothing(make_federation, monkeypatch, method, batch):
    """Also where clients are lost: places among uploads are not places in a chunk."""
    federation = make_federation(tasks=9)
    method = dataclasses.replace(method, batch=batch)

    def finished():
        return quick(federation, method, cohort=0.8, attendance=Attendance(lost=0.3))

    together = finished()
    monkeypatch.setattr("tacit.local.chunks.CPU_CHUNK_BYTES", 1)  # one task at a time
    apart = finished()
    assert apart.simulation.tasks.slots(6, ragged=False) == 1
    assert torch.allclose(personal(apart), personal(together), atol=1e-5)
    weights = [run.simulation.exchange.record.weights for run in (apart, together)]
    assert torch.allclose(*weights, atol=1e-5)


def test_tracing_changes_nothing(monkeypatch):
    federation, method = headed(), FedMTL(lr=0.1, local_steps=1, batch=6, min_peers=1)
    plain = personal(quick(federation, method, rounds=2))
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 64)
    assert torch.allclose(personal(quick(federation, method, rounds=2)), plain, atol=1e-6)


def test_the_curator_is_told_the_round_the_sizes_and_the_heads(monkeypatch):
    federation, seen, whole = headed(), [], FedMTL.answer

    def watched(self, uploads, memory):
        seen.append(uploads)
        return whole(self, uploads, memory)

    monkeypatch.setattr(FedMTL, "answer", watched)
    run = quick(federation, METHODS[0], rounds=4, model="mlp", cohort=0.7)
    seen = seen[1:]  # the rehearsal
    assert [u.progress for u in seen] == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])
    for round, uploads in enumerate(seen):
        assert uploads.tasks.tolist() == run.simulation.channel.cohort(round).tolist()
        assert torch.equal(uploads.sizes, federation.train.counts[uploads.tasks])
        assert torch.equal(uploads.holds, federation.heads.holds[uploads.tasks])
        widths = [part.stop - part.start for part in uploads.parts]
        assert widths == [5 * 32 + 32, 2 * 33, 33, 33, 0]
        assert uploads.vectors.shape == (len(uploads), sum(widths))


@every_method
def test_heads_that_a_task_does_not_hold_stay_as_everybody_began(method):
    federation = headed()
    run = quick(federation, method, model="mlp")
    model, found = run.simulation.model, personal(run)
    for k in range(len(federation)):
        for head, part in enumerate(model.parts[1:]):
            if not federation.heads.holds[k, head]:
                assert torch.equal(found[k, part], model.start[part])


# --- what a run remembers ---


def test_the_record_says_who_was_given_away(make_federation):
    federation = make_federation(tasks=5)
    fomo = quick(federation, FedFomo(**SGD, peers=2)).simulation.exchange.record
    assert fomo.revealed.sum(dim=1).tolist() == [6.0] * 5 and (fomo.revealed.diagonal() == 0).all()
    careful = quick(federation, EVERYONE).simulation.exchange.record
    assert (careful.revealed == 0).all() and (careful.kept == 0).all()
    sizes = federation.train.counts.float()
    assert torch.allclose(careful.weights, (sizes / sizes.sum()).expand(5, 5))
    alone = quick(federation, FedMTL(**SGD, shared="own", heads="own")).simulation.exchange.record
    assert alone.kept.tolist() == [3.0] * 5 and torch.equal(alone.weights, torch.eye(5))
    assert (alone.similarity.diagonal() == 1).all()
    pair = quick(make_federation(tasks=2), FedMTL(**SGD, **VARIANTS["G"], min_peers=1))
    assert pair.simulation.exchange.record.revealed.tolist() == [[0, 3], [3, 0]]
    guarded = quick(make_federation(tasks=2), EVERYONE)
    assert guarded.simulation.exchange.record.kept.tolist() == [3, 3]
    assert torch.allclose(
        personal(guarded), personal(quick(make_federation(tasks=2), Local(**SGD))), atol=1e-6
    )


class Stop(Exception):
    """Somebody pulled the plug."""


@every_method
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_run_that_was_stopped_ends_where_it_would_have(
    make_federation, tmp_path, monkeypatch, method, store
):
    federation = make_federation(tasks=7)
    settings = {
        "rounds": 5, "cohort": 0.8, "attendance": Attendance(joins={"task-2": 2}, lost=0.2),
        "store": store,
    }  # fmt: skip
    whole = quick(federation, method, out=tmp_path / "whole", **settings)
    step = Exchange.round

    def stops(self, board, draw):
        if board.round == 3:
            raise Stop
        return step(self, board, draw)

    monkeypatch.setattr(rounds, "SAVE_EVERY_SECONDS", -1.0)
    monkeypatch.setattr(Exchange, "round", stops)
    folder = tmp_path / "stopped"
    with pytest.raises(Stop):
        quick(federation, method, out=folder, **settings)
    monkeypatch.setattr(Exchange, "round", step)
    again = quick(federation, method, out=folder, resume=True, **settings)
    assert torch.equal(personal(again), personal(whole))
    one, other = again.simulation.exchange, whole.simulation.exchange
    assert one.memory.keys() == other.memory.keys()
    assert all(torch.equal(one.memory[name], other.memory[name]) for name in one.memory)
    for name, value in vars(one.record).items():
        assert torch.equal(value.nan_to_num(-7), vars(other.record)[name].nan_to_num(-7)), name
    assert (
        again.curve == whole.curve
        and again.metrics["dropped_contributions"] == whole.metrics["dropped_contributions"]
    )
    first, second = (
        json.loads((path / "result.json").read_text()) for path in (folder, tmp_path / "whole")
    )
    assert first.pop("timing") and second.pop("timing") and first == second
    if isinstance(method, FedFomo):
        assert one.memory["liking"].any()
    with pytest.raises(TacitError, match="was started with other attendance"):
        quick(federation, method, out=folder, resume=True, **(settings | {"attendance": None}))


# --- what is promised, and what is refused ---


@every_method
@pytest.mark.parametrize("seed", [0, None])
def test_the_guarantee_promises_nothing_between_clients(make_federation, method, seed):
    run = quick(make_federation(tasks=4), method, rounds=1, seed=seed)
    words = "protects nothing between clients; the curator sees all models"
    assert run.guarantee.protects == words
    assert run.guarantee.channel == "exchange" and not run.guarantee.private
    assert run.guarantee.epsilon == float("inf")
    assert words in str(run.guarantee) and "the curator must be trusted" in run.guarantee.trusts
    assert words in json.dumps(run.guarantee.to_json())
    assert len(run.simulation.channel.ledger) == 0


@every_method
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"privacy": Privacy(epsilon=1.0)}, "without noise, so no ε can be promised"),
        ({"privacy": Privacy(noise=1.0)}, "without noise, so no ε can be promised"),
        ({"publishing": tacit.Publishing()}, "publishing= moves the billboard"),
        ({"attendance": Attendance(joins={"nobody": 1})}, "there is no task 'nobody'"),
    ],
)
def test_what_belongs_to_another_channel_is_refused(make_federation, method, settings, words):
    with pytest.raises(TacitError, match=words):
        quick(make_federation(tasks=4), method, **settings)


@pytest.mark.parametrize("method", [FedAvg(), tacit.PMTL(), Local()])
def test_attendance_is_refused_where_there_is_no_exchange(make_federation, method):
    with pytest.raises(TacitError, match="attendance= is simulated on the exchange"):
        quick(make_federation(tasks=4), method, attendance=Attendance())


def test_attendance_that_cannot_be_is_refused_by_name():
    for chance in (-0.1, 1.1):
        with pytest.raises(TacitError, match="a chance from 0 to 1"):
            Attendance(lost=chance)
    with pytest.raises(TacitError, match="task 'a' joins in a round before the first"):
        Attendance(joins={"a": -1})


def test_clients_that_judge_need_rows_to_judge_by(make_federation):
    federation = make_federation(tasks=4, validation=0.0)
    with pytest.raises(TacitError, match="'task-0' has none: keep some of every task"):
        quick(federation, FedFomo(**SGD))
    quick(federation, FedMTL(**SGD), rounds=1)


@every_method
def test_a_model_with_another_number_of_heads_is_refused(method):
    federation = headed()
    for module in (nn.Linear(5, 4), nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))):
        with pytest.raises(TacitError, match="3 different heads, but the model has 1"):
            quick(federation, method, model=module)
    two = tacit.models.MultiHead(nn.Identity(), {"a": nn.Linear(5, 2), "b": nn.Linear(5, 2)})
    with pytest.raises(TacitError, match="3 different heads, but the model has 2"):
        quick(federation, method, model=two)


# --- the last step ---


def opposites(tasks: int = 8):
    """Half of the tasks want the opposite of the other half: one model for all is useless."""
    generator = np.random.default_rng(0)
    names = np.repeat([f"task-{k}" for k in range(tasks)], 40)
    x = generator.normal(size=(len(names), 4)).astype(np.float32)
    sign = np.repeat(np.where(np.arange(tasks) % 2, 1.0, -1.0), 40)
    y = (sign * x.sum(axis=1) + 0.3 * generator.normal(size=len(x)) > 0).astype(np.float32)
    return tacit.data.from_arrays(x, y, names, kind="binary", scale="none")


def test_no_task_ends_much_worse_than_alone():
    federation = opposites()
    run = quick(federation, EVERYONE, rounds=8, personalise="best", baselines=True)
    given = run.simulation.measure("test").per_task["accuracy"]
    alone = run.baselines["local"].per_task["accuracy"]
    ended = run.measured.per_task["accuracy"]
    assert given.mean() < alone.mean() - 0.1  # what the exchange left them is bad
    assert (ended >= alone - 0.13).all() and ended.mean() >= alone.mean() - 0.02
    assert len(run.personalised.chosen) == len(federation)
    assert run.personalised.chosen.count("trained alone") >= 6
    # Where the exchange is worth something, tasks may keep what it left them.
    like = quick(federation, FedMTL(**SGD, threshold=0.5), rounds=8, personalise="best")
    assert (like.measured.per_task["accuracy"] >= alone - 0.13).all()
