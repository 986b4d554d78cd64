"""Rounds on bags of words: what touches only words that occur ends where plain steps end."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch

import tacit
from tacit.data.federation import Federation, Rows
from tacit.engine.store import Store, _packed
from tacit.local import sgd
from tacit.methods.base import Board

WORDS, TAGS, TASKS, POSTS, LENGTH = 300, 4, 12, 9, 6


def posts() -> Federation:
    """Posts of a few words, some of which nobody knows; a label is missing here and there."""
    rng = torch.Generator().manual_seed(0)
    many = TASKS * POSTS
    x = torch.randint(0, WORDS + 3, (many, LENGTH), generator=rng).float()
    y = torch.randint(0, 2, (many, TAGS), generator=rng).float()
    y[::7, 1] = torch.nan
    train = Rows(x, y, torch.arange(TASKS + 1) * POSTS)
    none = Rows(x[:0], y[:0], torch.zeros(TASKS + 1, dtype=torch.int64))
    names = tuple(f"user {number}" for number in range(TASKS))
    features = tuple(f"word {number}" for number in range(WORDS))
    return Federation(names, "multilabel", TAGS, train, none, none, features)


def trained(method, folder, store) -> tuple[torch.Tensor, torch.Tensor]:
    """The billboard and all personal models after three rounds."""
    run = tacit.train(
        posts(),
        method,
        model="bag",
        privacy=tacit.Privacy(noise=0.01),
        rounds=3,
        cohort=0.6,
        baselines=False,
        personalise="none",
        seed=3,
        store=store,
        out=folder if store == "disk" else None,
    )
    board = torch.cat([value for value in run.simulation.board.tensors.values()])
    return board, run.simulation.personal(torch.arange(TASKS))[0]


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize(
    "method",
    [
        tacit.PMTL(lr=0.4, local_steps=3, batch=4, clip=0.3, pull=0.5),
        tacit.PMTL(lr=0.4, local_steps=3, batch=4, clip=0.3, update="from-previous"),
        tacit.FedAvg(lr=0.4, local_steps=3, batch=4, clip=0.3),
    ],
    ids=["pmtl", "own progress", "fedavg"],
)
def test_rounds_end_where_plain_rounds_end(method, store, tmp_path, monkeypatch):
    calls, steps = [], sgd.bag_steps
    monkeypatch.setattr(sgd, "bag_steps", lambda *given: (calls.append(1), steps(*given))[1])
    found = trained(method, tmp_path / "found", store)
    assert calls
    monkeypatch.setattr(sgd, "applies", lambda *given: False)
    plain = trained(method, tmp_path / "plain", store)
    for ours, theirs in zip(found, plain, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert float((plain[1] - plain[1].mean()).abs().max()) > 1e-2


def test_states_wait_apart_and_count_once_settled():
    """Where they wait is used again in the next round, for more tasks and for fewer."""
    store, blank = Store(6, {"w": torch.zeros(3)}), {"w": torch.zeros(3)}
    expected = torch.zeros(6, 3)
    for number, parts in enumerate(([[0], [1, 2]], [[3, 4], [5]], [[2, 1, 0], [4]])):
        before = expected.clone()
        for tasks in parts:
            rows = torch.randn(len(tasks), 3, generator=torch.Generator().manual_seed(number))
            store.put(torch.tensor(tasks), {"w": rows})
            expected[tasks] = rows.clone()
            rows.fill_(torch.nan)  # what was handed over is kept, whatever becomes of it
        assert torch.equal(store.take(torch.arange(6), blank)["w"], before)
        store.settle(Board({}, number + 1), {}, save=False)
        assert torch.equal(store.take(torch.arange(6), blank)["w"], expected)


def test_a_journal_is_a_safetensors_file():
    """Made from where numbers lie, in blocks; whoever reads it finds whole tensors."""
    tensors = {
        "flags": [torch.tensor([True, False, True])],
        "round": [torch.tensor(7)],
        "exact": [torch.randn(3, dtype=torch.float64)],
        "rows": [torch.randn(2, 5), torch.randn(7, 8)[:3, 1:6]],
        "tasks": [torch.arange(2), torch.arange(3)],
        "none": [torch.zeros(0, 4)],
    }
    content = b"".join(_packed(tensors, {"notes": "ε"}))
    found = safetensors.torch.load(content)
    assert found.keys() == tensors.keys()
    for name, blocks in tensors.items():
        expected = torch.cat(blocks) if blocks[0].ndim else blocks[0]
        assert found[name].dtype == expected.dtype and torch.equal(found[name], expected)
