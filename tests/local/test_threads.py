"""Work side by side is the same work, in the same order."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.local import dropout
from tacit.local.dropout import own_chance
from tacit.local.flat import FlatModel
from tacit.local.threads import WORTH_SHARING, meanwhile, side_by_side


def test_results_come_in_their_order_and_few_wait():
    begun, lock = [], threading.Lock()

    def work(number: int) -> tuple[int, int]:
        with lock:
            begun.append(number)
        time.sleep(0.002 * (number % 3))
        return number, torch.get_num_threads()

    before, seen = torch.get_num_threads(), []
    for number, threads in side_by_side(work, range(12), 2):
        assert threads == 1 and torch.get_num_threads() == 1  # nobody is in the others' way
        assert len(begun) <= number + 1 + 3  # whoever does not read holds the others up
        seen.append(number)
    assert seen == list(range(12))
    assert torch.get_num_threads() == before


def test_what_goes_wrong_is_raised_where_results_are_read():
    def work(number: int) -> float:
        return 1 / (3 - number)

    with pytest.raises(ZeroDivisionError):
        list(side_by_side(work, range(6), 2))


class Slow(nn.Module):
    """Gives other threads the time to put their parameters in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005)
        return self.layer(x)


def test_threads_do_not_see_each_others_parameters():
    model, rng = FlatModel(Slow(), "regression"), torch.Generator().manual_seed(0)
    given = torch.randn(12, 2, model.size, generator=rng)
    x = torch.randn(2, 5, 3, generator=rng)
    y, weight = torch.zeros(2, 5), torch.ones(2, 5)

    def work(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nothing = model.buffers.expand(2, -1)
        slope = torch.func.vmap(model.gradient)(w, nothing, x, y, weight)[0]
        return torch.func.vmap(model.predict)(w, nothing, x), slope

    alone, before = list(map(work, given)), [p.clone() for p in model.predicting.parameters()]
    for ours, beside in zip(alone, side_by_side(work, given, 3), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, beside, strict=True))
    for module in (model.predicting, model.training):
        after = list(module.parameters())
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert model.frozen is None


def test_how_many_cores_there_are_changes_no_bit_of_a_run(monkeypatch):
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(90), rng.integers(4, 40, size=90))
    x = rng.normal(size=(len(site), 3))
    y = x[:, 0] + rng.normal(size=90)[site] + rng.normal(size=len(site))
    federation = tacit.data.from_arrays(x, y, site, kind="regression", min_rows=3)
    monkeypatch.setattr("tacit.local.chunks.CPU_CHUNK_BYTES", 1 << 16)  # several chunks
    monkeypatch.setattr("tacit.engine.tasks.CHUNK_COSTS", {"cpu": 0})
    given = {"privacy": tacit.Privacy(epsilon=2.0), "seed": 0, "personalise": "none"}
    before, found = torch.get_num_threads(), []
    for cores in (1, 3):
        torch.set_num_threads(cores)
        try:
            run = tacit.train(federation, "mixed", baselines=False, **given)
        finally:
            torch.set_num_threads(before)
        assert run.simulation.tasks.abreast == cores
        everyone = torch.arange(len(federation))
        found.append((run.simulation.board["beta"], run.simulation.personal(everyone)[0]))
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


def test_threads_do_not_draw_with_each_others_keys():
    """Masks are a task's own, also where the code of two tasks runs side by side."""
    both, ones = threading.Barrier(2), torch.ones(1, 64)

    def masked(number: int, wait=lambda: None) -> torch.Tensor:
        with own_chance(torch.tensor(number)):
            wait()
            found = dropout._plain(ones, 0.5, False)
            wait()
            return found

    alone = [masked(number) for number in range(2)]
    together = list(side_by_side(lambda number: masked(number, both.wait), range(2), 2))
    assert not torch.equal(*alone)
    for found, expected in zip(together, alone, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("rows", "apart"), [(10, True), (WORTH_SHARING, False)])
def test_work_about_few_rows_goes_on_meanwhile(rows, apart):
    before, here, began = torch.get_num_threads(), threading.get_ident(), threading.Event()

    def work() -> int:
        began.set()
        torch.set_num_threads(1)
        return threading.get_ident()

    with meanwhile(work, torch.zeros(rows)) as done:
        assert began.wait(5 if apart else 0) == apart  # many rows wait for who asks
        assert (done() != here) == apart
    assert torch.get_num_threads() == (before if apart else 1)
    torch.set_num_threads(before)


def test_what_goes_wrong_meanwhile_is_raised_where_it_is_asked_for():
    with (
        pytest.raises(ZeroDivisionError),
        meanwhile(lambda: 1 // 0, torch.zeros(1)) as done,
    ):
        done()
