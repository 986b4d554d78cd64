"""Work side by side is the same work, in the same order."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

import tacit
from tacit.local.threads import side_by_side


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
