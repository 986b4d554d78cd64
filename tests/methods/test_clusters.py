"""Groups that find each other: against plain loops, in their bounds, and on planted sets."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

import tacit
from tacit import (
    PMTL,
    ClusterPriors,
    Clusters,
    FedAvg,
    Privacy,
    RelatedPMTL,
    SharedPrior,
    TacitError,
)
from tacit.engine.progress import silent
from tacit.experiment.auto import STEADY
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods import grouping, grouping_start
from tacit.methods.base import Board
from tacit.methods.clusters import FINDING
from tacit.privacy.bounds import Bounded, Place
from tests.methods.test_personal_methods import models, run

FREE = {"lr": 0.1, "local_steps": 2, "batch": None}
COUNTED, TABLED = grouping.COUNT_SHARE, grouping.WORTH_SHARE
BOTH = [Clusters(groups=3, batch=None, clip=0.7), ClusterPriors(groups=3, clip=0.7)]


def planted(groups: int, seed: int = 0, tasks: int = 300, columns: int = 20, rows: int = 15):
    """Weights around so many centres; the target has variance one. Who is where comes second."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((groups, columns))
    centres *= np.sqrt(0.7) / np.linalg.norm(centres, axis=1, keepdims=True)
    where = rng.permutation(np.arange(tasks) % groups)
    weights = centres[where] + np.sqrt(0.1 / columns) * rng.standard_normal((tasks, columns))
    x = rng.standard_normal((tasks, 3 * rows, columns))
    y = np.einsum("knd,kd->kn", x, weights) + np.sqrt(0.2) * rng.standard_normal(x.shape[:2])
    federation = tacit.data.from_arrays(
        x.reshape(-1, columns),
        y.reshape(-1),
        np.repeat([f"{k:04d}" for k in range(tasks)], 3 * rows),
        validation=0,
        test=2 / 3,
        scale="none",
        target_scale="none",
    )
    return federation, where


def joined(finished) -> np.ndarray:
    """The group that each task is in: known in a simulation only."""
    every = torch.arange(len(finished.federation))
    return finished.simulation.tasks.states(every)["joined"].argmax(dim=1).numpy()


def right(finished, where: np.ndarray) -> float:
    """Share of tasks with the majority of their planted group, each of which has its own."""
    found = joined(finished)
    table = np.zeros((where.max() + 1, found.max() + 1))
    np.add.at(table, (where, found), 1)
    own = len(set(table.argmax(axis=1))) == len(table)
    return table.max(axis=1).sum() / len(where) if own else 0.0


def error(finished) -> float:
    return finished.metrics["overall"]["nmse_pooled"]


# --- oracles ---


@pytest.mark.parametrize("privacy", [None, Privacy(noise=2.0)], ids=["free", "noisy"])
@pytest.mark.parametrize("pull", [0.7, None])
def test_one_group_is_pmtl_or_fedavg_draw_by_draw(make_federation, privacy, pull):
    federation, same = make_federation(), {"batch": 6, "clip": 0.4}
    one = run(federation, Clusters(groups=1, pull=pull, **same), privacy=privacy, cohort=0.5)
    plain = FedAvg(**same) if pull is None else PMTL(pull=pull, **same)
    other = run(federation, plain, privacy=privacy, cohort=0.5)
    # The same sums, but not in the same shapes: processors round them differently.
    assert np.allclose(models(one), models(other), rtol=0, atol=1e-6)
    if privacy is not None:
        assert one.guarantee.epsilon == other.guarantee.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told(Clusters):
    """Whose members are told by their first column, from the first round on."""

    def stages(self, kind, rounds):
        return ("",) * rounds

    def compared(self, model, board, buffers, batches):
        first = batches.x[0, 0, 0] > 0
        joined = torch.stack([first, ~first]).to(board["share"])
        return joined, torch.tensor([[0.0, 1.0], [0.0, 0.0]])


def test_with_the_public_groups_it_is_related(make_federation):
    federation = make_federation()
    groups = [k % 3 == 0 for k in range(12)]
    x = federation.train.x.clone()
    x[:, 0] = torch.tensor(groups).repeat_interleave(federation.train.counts) * 2.0 - 1
    told = dataclasses.replace(federation, train=dataclasses.replace(federation.train, x=x))
    found = run(told, Told(groups=2, pull=0.7, **FREE), rounds=6)
    public = told.clustered([str(g) for g in groups])
    expected = run(public, RelatedPMTL(pull=0.7, clip=math.inf, **FREE), rounds=6)
    assert np.allclose(models(found), models(expected), atol=1e-5)
    assert found.simulation.board["share"].tolist() == pytest.approx([1 / 3, 2 / 3])


def gradient_steps(x, y, w, towards, pull) -> np.ndarray:
    for _ in range(FREE["local_steps"]):
        slope = 2 * x.T @ (x @ w - y) / len(y)
        w = w - FREE["lr"] * (slope + pull * (w - towards))
    return w


def plain_loop(federation, start: np.ndarray, directions: np.ndarray, rounds: int, pull: float):
    """Clusters once more, one task after another, without noise or clip and nothing of tacit's."""
    rows = [federation.train.of(k) for k in range(len(federation))]
    rows = [(np.column_stack([x.double(), np.ones(len(y))]), y.double().numpy()) for x, y in rows]
    alone = [gradient_steps(x, y, start, start, 0.0) - start for x, y in rows]
    told = np.array([w / np.linalg.norm(w) for w in alone])
    values, vectors = torch.linalg.eigh(torch.from_numpy(np.cov(told.T, bias=True)))
    values, vectors = values.numpy()[::-1][:1], vectors.numpy()[:, ::-1][:, :1]
    unit = np.sign(directions)
    points = told.mean(axis=0) + unit * np.sqrt(values) @ vectors.T
    votes = np.zeros(len(points))
    for x in told:
        votes[np.argmin(((x - points) ** 2).sum(axis=1))] += 1 / len(told)
    centres = [points[np.argmax(np.where(unit[:, 0] == s, votes, -1))] for s in (1, -1)]
    if votes[unit[:, 0] < 0].sum() > votes[unit[:, 0] > 0].sum():
        centres = centres[::-1]
    models, personal = np.stack([start, start]), [(-1, start)] * len(rows)
    for number in range(rounds - 2):
        updates: list[list[np.ndarray]] = [[], []]
        for k, (x, y) in enumerate(rows):
            losses = [((x @ w - y) ** 2).mean() for w in models]
            if number <= round(0.25 * (rounds - 3)):  # the first round and the early ones
                losses = [((told[k] - c) ** 2).sum() for c in centres]
            group = int(np.argmin(losses))
            begin = personal[k][1] if personal[k][0] == group else models[group]
            w = gradient_steps(x, y, begin, models[group], pull)
            personal[k] = (group, w)
            updates[group].append(w - models[group])
        models = models + np.stack([np.mean(each, axis=0) for each in updates])
    return models, np.stack([w for _, w in personal])


def test_vectorised_groups_equal_a_plain_loop():
    federation, _ = planted(2, tasks=40, columns=4)
    finished = run(federation, Clusters(groups=2, pull=0.7, **FREE), rounds=7)
    start = finished.simulation.model.start.double().numpy()
    directions = finished.simulation.course.start["directions"].double().numpy()
    found, own = plain_loop(federation, start, directions, 7, 0.7)
    board = finished.simulation.board
    assert (board["share"] > 0.1).all()
    assert np.allclose(board["models"].numpy(), found, atol=1e-5)
    assert np.allclose(models(finished), own, atol=1e-5)


# --- what a task can move ---


def wild_batches(generator: torch.Generator, size: float) -> Batches:
    x = size * torch.randn(1, 2, 9, 4, generator=generator)
    y = size * torch.randn(1, 2, 9, generator=generator)
    return Batches(x, y, torch.full((1, 2, 9), 1 / 9))


def boards(method, model: FlatModel, generator: torch.Generator) -> list[Board]:
    """The first billboard and one after noise, for every stage."""
    first = method.board(model)
    moved = {name: v + 0.5 * torch.randn(v.shape, generator=generator) for name, v in first.items()}
    positive = {
        name: moved[name].abs() + 0.01
        for name in ("share", "reach", "variance", "doubt", "unsure")
        if name in moved
    }
    return [
        Board(tensors, 3, 0.1, stage)
        for tensors in (first, moved | positive)
        for stage in (*FINDING, "early", "")
    ]


@pytest.mark.parametrize("method", BOTH, ids=lambda m: type(m).__name__)
def test_nobody_moves_more_than_a_clip_or_two_when_replaced(method):
    """By search over rows of any size and billboards of any round; before the channel clips."""
    generator = torch.Generator().manual_seed(0)
    model = FlatModel(torch.nn.Linear(4, 1), "regression")
    for board in boards(method, model, generator):
        state, sent = method.state(model, board), []
        for size in (1e-3, 1.0, 30.0, 1e3):
            for _ in range(3):
                batches = wild_batches(generator, size)
                step = torch.func.vmap(lambda b, s=state, t=board: method.client(model, t, s, b)[1])
                sent.append(step(batches)[0])
        sent = torch.stack([each for each in sent if each.isfinite().all()])
        bounded = Bounded.of(sent, method.clip, None).vectors(Place(), None)
        lengths = torch.linalg.vector_norm(bounded, dim=1)
        assert float(lengths.max()) <= 1.0
        assert float(torch.cdist(bounded, bounded).max()) <= 2.0
        # The task keeps to it by itself, so that the channel never shortens its count.
        assert float(torch.linalg.vector_norm(sent, dim=1).max()) <= method.clip * (1 + 1e-6)
        blocks = 3 * model.size
        if board.stage in ("first", "early", ""):
            counts = bounded[:, blocks : blocks + 3]
            assert ((counts > 0).sum(dim=1) == 1).all()
            table = bounded[:, blocks + 3 : blocks + 12]
            told = (table != 0).sum(dim=1)
            assert (told <= 1).all() and (board.stage or (told == 1).all())
            elsewhere = bounded[:, :blocks].reshape(-1, 3, model.size)[counts == 0]
            assert (elsewhere == 0).all()


def test_the_bounds_are_reached():
    one, other = torch.eye(3)[0], torch.eye(3)[2]
    far = 100 * torch.eye(5)[0]
    cell, cross = torch.outer(one, one), torch.outer(one, other)
    sent = grouping.contributed(far, one, cell, 1.0)
    assert float(sent.norm()) == pytest.approx(1)
    for there, table, length in (
        (one, cell, 2 * math.sqrt(1 - COUNTED - TABLED)),
        (one, cross, math.sqrt(4 * (1 - COUNTED - TABLED) + 2 * TABLED)),
        (other, torch.outer(other, other), math.sqrt(2)),
    ):
        moved = sent - grouping.contributed(-far, there, table, 1.0)
        assert float(moved.norm()) == pytest.approx(length)
        assert length <= 2
    x = torch.eye(5)[1]
    told = [grouping_start.moments_of(side, 0.3, 0.7) for side in (x, -x)]
    assert float(told[0].norm()) == pytest.approx(1)
    assert float((told[0] - told[1]).norm()) == pytest.approx(2 * math.sqrt(0.3))


def test_all_is_booked_with_the_budget_that_was_asked_for(make_federation):
    for method, rounds in ((Clusters(), 6), (ClusterPriors(), 6)):
        private = Privacy(epsilon=2.0, neighbours="replace")
        finished = run(make_federation(), method, privacy=private, rounds=rounds)
        entries = finished.simulation.channel.ledger.entries
        assert [entry.get("stage") for entry in entries][:3] == list(FINDING)
        assert all(entry.get("replaced", 2.0) == 2.0 for entry in entries)
        assert 1.9 < finished.guarantee.epsilon <= 2.0
        noises = [entry["noise_multiplier"] for entry in entries]
        moments, votes = grouping.START_SHARES
        assert noises[1] / noises[0] == pytest.approx(math.sqrt(moments / votes))
        assert noises[-1] > noises[0]


# --- planted groups ---


@pytest.mark.parametrize("groups", [3, 1])
def test_planted_groups_are_found_at_epsilon_two(groups):
    federation, where = planted(groups)
    private = {"privacy": Privacy(epsilon=2.0), "model": "linear-no-intercept"}
    found = run(federation, ClusterPriors(), rounds=None, **private)
    assert int((found.simulation.board["share"] > 0).sum()) == groups
    assert right(found, where) > 0.95
    if groups == 3:
        known = federation.clustered(where.tolist())
        told = run(known, RelatedPMTL(**STEADY), rounds=30, **private)
        assert error(found) < 1.1 * error(told)
    else:
        assert error(found) < 1.02 * error(run(federation, SharedPrior(), rounds=None, **private))


@pytest.mark.slow
def test_planted_groups_are_found_by_gradient_steps():
    federation, where = planted(3)
    steady = {name: value for name, value in STEADY.items() if name != "clip_quantile"}
    given = {"privacy": Privacy(epsilon=2.0), "model": "linear-no-intercept", "rounds": 30}
    found = run(federation, Clusters(**steady), **given)
    assert int((found.simulation.board["share"] > 0).sum()) == 3
    assert right(found, where) > 0.95
    told = run(federation.clustered(where.tolist()), RelatedPMTL(**STEADY), **given)
    assert error(found) < 1.1 * error(told)


def test_noise_alone_makes_no_groups():
    generator = torch.Generator().manual_seed(0)
    around = grouping_start.all_around(5)
    eye = torch.eye(20, dtype=torch.float64)
    for noise in (0.0, 0.01, 1.0):
        for _ in range(10):
            drawn = torch.randn(20, 20, generator=generator, dtype=torch.float64)
            spread = 0.03 * eye + noise * (drawn + drawn.T) / 2
            sigma = torch.tensor(noise).double()
            points, _, apart = grouping_start.points(around, eye[0], spread, sigma, auto=True)
            assert not apart
            assert (points == eye[0]).all()


def test_peaks_are_found_in_noisy_votes_and_others_are_not():
    around = grouping_start.all_around(2).double()
    angles = torch.tensor([0.3, 2.4, 4.5])
    at = torch.stack([angles.cos(), angles.sin()], dim=1).double()
    sure = torch.tensor(True)
    for noise in (0.0, 0.01):
        votes = torch.stack([grouping_start.nearest(p, around) for p in at]).mean(dim=0)
        chance = torch.Generator().manual_seed(1)
        votes = votes + noise * torch.randn(len(votes), generator=chance)
        blur = torch.tensor(noise).double()
        centres, share = grouping_start.placed(votes, blur, around, around @ around.T, sure, 6)
        assert int((share > 0).sum()) == 3
        assert float(torch.cdist(at, centres[share > 0]).min(dim=1).values.max()) < 0.6
    blur = torch.tensor(0.3).double()
    _, share = grouping_start.placed(votes, blur, around, around @ around.T, sure, 6)
    assert int((share > 0).sum()) == 1


@pytest.mark.parametrize(
    ("stage", "clear", "group"), [("early", 1, 1), ("early", 0, 0), ("", 1, 0)]
)
def test_early_on_where_a_task_stands_counts_and_not_models_that_are_noise(stage, clear, group):
    """Unless votes told nobody apart: then its rows say which model is best, as they do later."""
    method, model = Clusters(groups=2, **FREE), FlatModel(torch.nn.Linear(3, 1), "regression")
    x = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))
    batches = Batches(x, x[..., 0], torch.full((1, 12), 1 / 12))
    board = method.board(model) | {"clear": torch.tensor(float(clear))}
    best = torch.tensor([1.0, 0.0, 0.0, 0.0])
    board["models"] = torch.stack([best, -best])
    board["centres"] = torch.stack([-best, best])  # noise has moved the models away from theirs
    told = Board(board, 3, 0.1, stage)
    state, _ = method.client(model, told, method.state(model, told), batches)
    assert int(state["joined"].argmax()) == group


def test_peaks_wherever_there_is_room_tell_nobody_apart():
    around = grouping_start.all_around(5).double()
    votes = torch.ones(len(around)).double() / len(around)
    for groups, clear in (("auto", 0), (6, 1)):
        method, model = (
            Clusters(groups=groups, clip=1.0),
            FlatModel(torch.nn.Linear(5, 1), "binary"),
        )
        board = method.board(model) | {"cosines": around @ around.T, "apart": torch.tensor(1.0)}
        found = method.counted(Board(board, 1, 0.0, "votes"), votes)
        assert int((found["share"] > 0).sum()) == 6 and float(found["clear"]) == clear
        found = method.counted(Board(board, 1, 0.0, "votes"), torch.eye(len(around))[0].double())
        assert float(found["clear"]) == 1


def test_a_deserted_group_is_given_up():
    share, doubt, noise = torch.tensor([0.4, 0.35, 0.25]), torch.tensor(0.001), torch.tensor(0.001)
    counts = torch.tensor([0.5, 0.5, 0.0])
    for _ in range(3):
        moved, share, doubt = grouping.steps(torch.ones(3, 2), counts, share, doubt, noise)
    assert share.tolist() == pytest.approx([0.5, 0.5, 0.0], abs=0.02)
    assert (moved[2] == 0).all()


def test_what_was_sent_is_read_again():
    """Above the diagonal for two groups, below it against them."""
    joined, better, worse = torch.eye(3)[1], torch.zeros(3, 3), torch.zeros(3, 3)
    better[1, 2] = worse[2, 0] = 1.0
    for clip in (0.7, math.inf):
        sent = grouping.contributed(torch.tensor([0.3, 0.4]), joined, better + worse, clip, 0.9)
        blocks, counts, worth = grouping.split(sent, 3, clip, 0.9)
        assert torch.allclose(blocks[1], torch.tensor([0.3, 0.4]))
        assert (blocks[[0, 2]] == 0).all()
        assert torch.allclose(counts, joined)
        assert torch.allclose(worth, torch.stack([better + better.T, worse + worse.T]))


@pytest.mark.parametrize(
    ("better", "noise", "merge"), [(0.7, 0.0, 0), (0.55, 0.0, 1), (0.2, 0.0, 1), (0.2, 0.2, 0)]
)
def test_groups_that_tasks_are_not_better_off_with_are_merged(better, noise, merge):
    """The first and the last of three, and no others; unless noise hides what tasks say."""
    models = torch.tensor([[1.0, 1.0], [3.0, 0.0], [0.0, 3.0]])
    shares = torch.tensor([0.4, 0.4, 0.2])
    apart = torch.tensor([[0.0, 0.2, 0.4 * better], [0.2, 0.0, 0.2], [0.4 * better, 0.2, 0.0]])
    against = torch.zeros(3, 3)
    against[0, 2] = against[2, 0] = 0.4 * (1 - better)
    known = (models, shares, torch.stack([apart, against]), torch.tensor(noise) ** 2)
    after, share, worth = grouping.merged(*known)
    if merge:
        assert share.tolist() == pytest.approx([0.6, 0.4, 0.0])
        assert after[0].tolist() == pytest.approx([0.8, 1.4])  # 4 parts of 5: it had less noise
        assert torch.equal(after[1], models[1])
        # What was said of either beside the second is said of both.
        assert float(worth[0, 0, 1]) == float(worth[0, 1, 0]) == pytest.approx(0.4)
        assert float(worth[1, 0, 1]) == 0.0
    else:
        assert share.tolist() == pytest.approx(shares.tolist())
        assert torch.equal(after, models)


def test_a_task_judges_two_groups_by_rows_that_did_not_choose_them():
    """Even rows say which is best; odd ones, whether that is better than both as one."""
    method, model = Clusters(groups=3, **FREE), FlatModel(torch.nn.Linear(3, 1), "regression")
    board = Board(method.board(model), 3, 0.1, "")
    x = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))
    sign = 1.0 - 2 * (torch.arange(12) % 2)
    best, half, far = torch.eye(4)[0], 0.5 * torch.eye(4)[0], 9 * torch.eye(4)[1]
    board.tensors["models"] = torch.stack([best, far, -half])
    board.tensors["share"] = torch.tensor([0.4, 0.2, 0.4])
    every = torch.full((1, 12), 1 / 12)
    above, below = torch.zeros(3, 3), torch.zeros(3, 3)
    above[0, 2] = below[2, 0] = 1.0
    for y, weight, expected in (
        (x[..., 0], every, above),  # the first model, and as one they are 0.25 of it
        (sign * x[..., 0], every, below),  # odd rows say the opposite
        (-x[..., 0], every, above),
        (x[..., 0], every * (torch.arange(12) % 2 == 0), torch.zeros(3, 3)),  # nothing to judge by
    ):
        _, worth = method.compared(model, board, torch.zeros(0), Batches(x, y, weight))
        assert torch.equal(worth, expected)
    # With one group left, there is nothing to compare.
    board.tensors["share"] = torch.tensor([1.0, 0.0, 0.0])
    joined, worth = method.compared(model, board, torch.zeros(0), Batches(x, -x[..., 0], every))
    assert joined.tolist() == [1, 0, 0] and not worth.any()


@pytest.mark.parametrize("pull", [None, 1.0])
def test_where_persons_are_hidden_each_joins_by_its_own_rows(pull):
    """Six silos of sixty persons with ten rows each; every second silo is of the other kind."""
    random, silo = np.random.default_rng(0), np.repeat(np.arange(6), 600)
    ways = np.array([[1.0, 1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0]])[silo % 2]
    x = random.normal(size=(len(silo), 4))
    y = (x * ways).sum(axis=1) + 0.5 * random.normal(size=len(silo))
    given = {"scale": "none", "target_scale": (0.0, 1.5), "validation": 0.0, "test": 0.3}
    federation = tacit.data.from_arrays(x, y, silo, persons=np.arange(len(silo)) // 10, **given)
    privacy = Privacy(epsilon=4.0, unit="person", persons=360)
    settings = {"privacy": privacy, "rounds": 20, "seed": 1, "personalise": "none"}
    found = {
        made: tacit.train(federation, made, baselines=False, progress=silent, **settings)
        for made in (
            Clusters(lr=0.1, local_steps=3, batch=None, pull=pull),
            tacit.FedAvg(lr=0.1, local_steps=3, batch=None),
        )
    }
    ours, one = (float(run.measured.overall["nmse_pooled"] or 0) for run in found.values())
    run = next(iter(found.values()))
    assert int((run.simulation.board["share"] > 0).sum()) == 2
    assert ours < 0.5 * one and "any one person" in str(run.guarantee)


def of_persons(method):
    """What a task solves from all of its persons' rows bounds no single person."""
    x, names = np.random.default_rng(0).standard_normal((120, 2)), np.repeat(np.arange(6), 20)
    constants = {"scale": ((0.0, 0.0), (1.0, 1.0)), "target_scale": (0.0, 1.0)}
    federation = tacit.data.from_arrays(
        x, x[:, 0], names, persons=True, validation=0, test=0, **constants
    )
    privacy = Privacy(epsilon=2.0, unit="person", persons=120)
    return run(federation, method, privacy=privacy, model="linear-no-intercept")


def test_what_cannot_be_is_refused(make_federation):
    for made, words in (
        (lambda: Clusters(groups=0), "at least 1, or 'auto'"),
        (lambda: Clusters(groups="many"), "at least 1, or 'auto'"),
        (lambda: Clusters(pull=-1.0), "zero or more, or None"),
        (lambda: Clusters(clip_quantile=0.5), "counts are told in clips"),
        (lambda: of_persons(ClusterPriors()), "contributes what tasks made of all their persons"),
        (lambda: ClusterPriors(mean=1.0), "above 0 and below 1"),
        (lambda: run(make_federation(), Clusters(), rounds=2), "needs 3 rounds to find groups"),
        (
            lambda: run(make_federation(), Clusters(), publishing=tacit.Publishing(lr=2.0)),
            "also says where groups are",
        ),
    ):
        with pytest.raises(TacitError, match=words):
            made()
