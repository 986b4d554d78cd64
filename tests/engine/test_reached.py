"""Rounds whose tasks see and send what their words reach of a long model end like all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tacit
from tacit.data.federation import Federation, Rows
from tacit.deploy.conduct import conduct
from tacit.deploy.terms import terms_of
from tacit.engine import course
from tacit.experiment import prepare
from tacit.local import chunks, reached
from tacit.local.flat import FlatModel
from tacit.local.reached import Reached
from tacit.methods.publishing import Publishing
from tacit.models.linear import zeros
from tacit.models.words import BagOfWords
from tacit.privacy import Privacy
from tacit.privacy.reach import Reach, turned
from tests.deploy.direct import Direct, personal, silos_of
from tests.interference.harness import TARGET, Setting, noticed
from tests.privacy.test_channel import channel

WORDS, TAGS, TASKS, POSTS, LENGTH = 200, 5, 10, 8, 6
STEPS = {"lr": 0.4, "local_steps": 3, "batch": 4, "clip": 0.3}


def posts(*, persons: bool = False, changed: int | None = None, more: int = 0) -> Federation:
    """Posts of a few words, some of which nobody knows; one task may have other and more posts."""
    rng = torch.Generator().manual_seed(0)
    xs, ys, ends = [], [], [0]
    for task in range(TASKS):
        x = torch.randint(0, WORDS + 3, (POSTS, LENGTH), generator=rng).float()
        y = torch.randint(0, 2, (POSTS, TAGS), generator=rng).float()
        x[0] = 0  # without words
        y[1, 1] = torch.nan
        if task == changed:
            x, y = torch.cat([x, x[: more + 1]]).flip(1), torch.cat([y, y[: more + 1]])
            x = torch.where(x > WORDS / 2, x - 1, x)
        xs, ys, ends = [*xs, x], [*ys, y], [*ends, ends[-1] + len(x)]
    x, y = torch.cat(xs), torch.cat(ys)
    task = torch.arange(TASKS).repeat_interleave(torch.tensor(ends).diff())
    who = 100 * task + torch.arange(len(x)) % 4 if persons else None
    rows = Rows(x, y, torch.tensor(ends), who)
    nobody = None if who is None else who[:0]
    none = Rows(x[:0], y[:0], torch.zeros(TASKS + 1, dtype=torch.int64), nobody)
    names = tuple(f"task-{number}" for number in range(TASKS))
    features = tuple(f"word {number}" for number in range(WORDS))
    return Federation(names, "multilabel", TAGS, rows, none, none, features)


def deep(federation: Federation) -> nn.Module:
    """More than one layer behind the words, and one that draws."""
    return nn.Sequential(
        BagOfWords(WORDS), nn.Linear(WORDS, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, TAGS)
    )


@pytest.fixture(autouse=True)
def long(monkeypatch):
    """As if the models here were so long that no two fit into a chunk."""
    monkeypatch.setattr(reached, "LONG", 1)
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 1)


@pytest.fixture
def short(monkeypatch) -> list[int]:
    """The lengths of all short vectors that tasks made."""
    made, call = [], course.Near.__call__

    def watched(self, own):
        after = call(self, own)
        made.append(after[1].shape[1])
        return after

    monkeypatch.setattr(course.Near, "__call__", watched)
    return made


def whole(monkeypatch) -> None:
    monkeypatch.setattr(Reached, "of", classmethod(lambda cls, model: None))


def trained(method, folder=None, *, model="bag", store="memory", **settings) -> list[torch.Tensor]:
    """The billboard and what all tasks predict with after three rounds."""
    privacy = settings.get("privacy")
    run = tacit.train(
        posts(persons=privacy is not None and privacy.unit != "task"),
        method,
        model=model,
        rounds=3,
        baselines=False,
        personalise="none",
        seed=3,
        store=store,
        out=folder,
        **({"privacy": Privacy(noise=0.05), "cohort": 0.7} | settings),
    )
    board = run.simulation.board.tensors.values()
    return [*board, run.simulation.personal(torch.arange(TASKS))[0]]


PERSONS = {"privacy": Privacy(noise=0.05, unit="person", persons=40), "cohort": 1.0}
BOTH = {"privacy": Privacy(noise=0.05, unit="person", persons=40, tasks_epsilon=1e4), "cohort": 1.0}
AVERAGED = Publishing(rule="momentum", average=1.0)
WAYS = {
    "fedavg": (tacit.FedAvg(**STEPS), {}),
    "fedprox": (tacit.FedProx(**STEPS, pull=0.5), {}),
    "steep gradients, other steps": (tacit.FedAvg(**STEPS, steepest=0.05, halve_every=1), {}),
    "a clip that follows": (tacit.FedAvg(**STEPS, clip_quantile=0.5), {}),
    "all rows": (tacit.FedAvg(**STEPS | {"batch": None}), {}),
    "layers behind": (tacit.FedAvg(**STEPS), {"model": deep}),
    "no privacy": (tacit.FedAvg(**STEPS), {"privacy": None}),
    "memory of the server": (tacit.FedAvg(**STEPS), {"publishing": AVERAGED}),
    "persons": (tacit.FedProx(**STEPS), PERSONS),
    "persons and tasks": (tacit.FedAvg(**STEPS), BOTH),
    "servers": (tacit.FedAvg(**STEPS), {"curator": tacit.Secure()}),
}


@pytest.mark.parametrize("way", WAYS)
def test_rounds_end_where_whole_vectors_end(way, short, monkeypatch):
    method, settings = WAYS[way]
    found = trained(method, **settings)
    assert short and max(short) < WORDS * TAGS / 2
    whole(monkeypatch)
    many = len(short)
    expected = trained(method, **settings)
    assert len(short) == many
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert float(expected[0].abs().max()) > 1e-2


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_so_they_do_with_states_on_disk_and_on_several_threads(store, short, tmp_path, monkeypatch):
    before = torch.get_num_threads()
    one = trained(tacit.FedAvg(**STEPS))
    torch.set_num_threads(3)
    try:
        many = trained(tacit.FedAvg(**STEPS), tmp_path / "run", store=store)
    finally:
        torch.set_num_threads(before)
    for ours, theirs in zip(one, many, strict=True):
        assert torch.equal(ours, theirs)


def test_silos_send_what_the_simulation_sums(short, tmp_path):
    """A silo sends a whole vector: nobody else may see which words are in its posts."""
    settings = {"model": "bag", "rounds": 2, "seed": 3, "privacy": Privacy(noise=1.5)}
    method = tacit.FedProx(**STEPS)
    federation = posts()
    plan = prepare.Plan(method=method, **settings, cohort=1.0)
    terms = terms_of(federation, plan)
    run = tacit.train(federation, method, personalise="none", baselines=False, **settings)
    made = len(short)
    silos, lengths = silos_of(federation, terms, tmp_path), []

    def answered(task, request, reply):
        lengths.extend(value.numel() for value in reply.tensors.values())
        return reply

    conduct(terms, tmp_path / "coordinator", Direct(silos, answered=answered))
    assert made and len(short) > made
    assert {length for length in lengths if length > 1} == {(WORDS + 1) * TAGS}
    expected = run.simulation.board.tensors["model"]
    for silo in silos:
        assert torch.allclose(personal(silo), expected, atol=2e-5)


@pytest.mark.parametrize("model", ["bag", deep])
@pytest.mark.parametrize("more", [0, 5])
def test_no_task_can_tell_what_words_another_has(model, more, short):
    one, other = posts(), posts(changed=int(TARGET.split("-")[1]), more=more)
    setting = Setting(tacit.FedAvg(**STEPS), model, last_step=False)
    assert noticed(one, other, setting) == []
    assert len(set(short)) > 3


def test_only_who_said_so_sends_short_vectors(short):
    class Heavier(tacit.FedAvg):
        """Sends what is zero nowhere, and says nothing of it."""

        def client(self, model, board, state, batches):
            state, sent = super().client(model, board, state, batches)
            return state, sent + 1e-3 * board["model"].abs() + 1e-3

    for method in (Heavier(**STEPS), tacit.PMTL(**STEPS), tacit.Ditto(**STEPS)):
        trained(method)
    assert not short


def hooked() -> nn.Module:
    network = nn.Sequential(BagOfWords(WORDS), zeros(WORDS, TAGS))
    network[1].register_forward_hook(lambda module, args, out: out + args[0].sum())
    return network


def tied() -> nn.Module:
    one, other = nn.Linear(WORDS, WORDS), nn.Linear(WORDS, WORDS)
    other.weight = one.weight
    return nn.Sequential(BagOfWords(WORDS), one, other)


def frozen() -> nn.Module:
    network = nn.Sequential(BagOfWords(WORDS), nn.Linear(WORDS, WORDS), nn.Linear(WORDS, WORDS))
    network[1].weight.requires_grad_(False)
    return network


class Squared(nn.Linear):
    """All of its weights are in every output."""

    def forward(self, input):
        return super().forward(input) + self.weight.square().sum()


def squared() -> nn.Module:
    return nn.Sequential(BagOfWords(WORDS), Squared(WORDS, TAGS))


@pytest.mark.parametrize("make", [hooked, tied, frozen, squared])
def test_networks_whose_words_are_not_apart_stay_whole(make):
    assert Reached.of(FlatModel(make(), "multilabel")) is None
    plain = nn.Sequential(BagOfWords(WORDS), zeros(WORDS, TAGS))
    assert Reached.of(FlatModel(plain, "multilabel")) is not None


def test_the_sum_of_short_vectors_is_that_of_whole_ones():
    rng = torch.Generator().manual_seed(1)
    made = []
    for columns in ([0, 3, 4], [2], [4, 6]):
        reach = Reach(3, 7, torch.tensor(columns))
        made.append((reach, torch.randn(1, 3 * len(columns) + 2, generator=rng)))
    for clip in (0.5, 10.0):
        found, expected = (channel(4, noise=1.0, clip=clip).open(0, 1) for _ in range(2))
        for reach, vector in made:
            long = reach.whole(vector)
            assert long.shape == (1, 23) and float(long.norm()) == pytest.approx(
                float(vector.norm())
            )
            assert torch.equal(reach.short(turned(long[0], 3, 7)), vector[0])
            found.add(vector, torch.tensor([0]), 1, reach)
            expected.add(long, torch.tensor([0]), 1)
        more = torch.randn(1, 23, generator=rng)  # who has many words sends a whole vector
        found.add(more, torch.tensor([1]), 1)
        expected.add(more, torch.tensor([1]), 1)
        assert torch.equal(found.publishable(23), expected.publishable(23))


@pytest.mark.parametrize("columns", [[1, 1], [2, 1], [-1, 2], [5, 7], []])
def test_no_place_is_named_twice(columns):
    """Else a vector within the clip would move the sum by more than a clip."""
    with pytest.raises(ValueError, match="columns"):
        Reach(3, 7, torch.tensor(columns, dtype=torch.int64))
