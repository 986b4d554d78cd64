"""Batches: every row once per epoch, nothing of another task, the same alone and together."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.federation import Rows
from tacit.local.batches import all_rows, draw
from tacit.local.chunks import slots_for, widths_of
from tacit.randomness import scramble


def rows_of(counts: list[int]) -> Rows:
    """Row values say whose they are: task * 1000 + place."""
    offsets = torch.tensor([0, *counts]).cumsum(0)
    values = torch.cat([1000.0 * k + torch.arange(n) for k, n in enumerate(counts)])
    return Rows(values.unsqueeze(1), values, offsets)


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    steps=st.integers(1, 6),
    batch=st.one_of(st.none(), st.integers(1, 12)),
    key=st.integers(0, 2**62),
)
def test_batches_are_honest(counts, steps, batch, key):
    rows, tasks = rows_of(counts), torch.arange(len(counts))
    keys, width = scramble(key, tasks), int(widths_of(rows.counts).max())
    whole = batch is None
    batches = (
        all_rows(rows, tasks, width, steps) if whole else draw(rows, tasks, steps, batch, keys)
    )
    assert batches.x.shape[:2] == (len(counts), steps)
    assert torch.allclose(batches.weight.sum(2), torch.ones(len(counts), steps))
    assert torch.equal(batches.x[..., 0], batches.y)
    assert (batches.y // 1000 == tasks.reshape(-1, 1, 1)).all()  # no row of another task
    for k, n in enumerate(counts):
        used = batches.weight[k] > 0
        if batch is None or n <= batch:
            for step in range(steps):  # all rows, each once
                seen = sorted((batches.y[k, step][used[step]] % 1000).tolist())
                assert seen == list(range(n))
        else:
            order = (batches.y[k] % 1000).reshape(-1).tolist()
            for start in range(0, len(order) - n + 1, n):  # a full pass has every row once
                assert sorted(order[start : start + n]) == list(range(n))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(0, 2**62))
def test_a_task_alone_draws_what_it_draws_among_others(counts, key):
    rows = rows_of(counts)
    keys = scramble(key, torch.arange(len(counts)))
    together = draw(rows, torch.arange(len(counts)), 3, 4, keys)
    for k in range(len(counts)):
        alone = draw(rows, torch.tensor([k]), 3, 4, keys[k : k + 1])
        assert torch.equal(alone.y[0], together.y[k])
        assert torch.equal(alone.weight[0], together.weight[k])


def test_rounds_shuffle_differently():
    rows = rows_of([50])
    one, other = (draw(rows, torch.tensor([0]), 1, 50 - 1, torch.tensor([key])).y for key in (1, 2))
    assert not torch.equal(one, other)


@given(st.integers(1, 10**6))
def test_widths_are_few_and_waste_little(number):
    width = int(widths_of(torch.tensor([number])))
    assert number <= width <= max(16, 2 * number)
    assert number < 64 or width <= 1.5 * number
    assert int(widths_of(torch.tensor([width]))) == width


def test_widths_are_filled_up_to_few_sizes():
    counts = torch.tensor([1, 15, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 192, 193, 256, 257])
    widths = [16, 16, 16, 32, 32, 64, 64, 96, 96, 128, 128, 192, 192, 256, 256, 384]
    assert widths_of(counts).tolist() == widths
    widths = [16, 16, 16, 24, 32, 48, 64, 96, 96, 128, 128, 192, 192, 256, 256, 384]
    assert widths_of(counts, traced=False).tolist() == widths


@given(
    st.floats(1, 1e4), st.floats(0.001, 1), st.integers(1, 5000), st.booleans(), st.integers(0, 500)
)
def test_chunks_are_whole_vectors_or_single_tasks(expected, rate, limit, ragged, overhead):
    of = max(1, math.ceil(expected / rate))
    slots = slots_for(expected, of, limit, ragged=ragged, overhead=overhead)
    assert slots == 1 or (slots % 16 == 0 and slots <= max(limit, 16) + 15)
    assert (slots == 1) == (expected <= 4 or limit < 4)
    assert slots <= expected + 3 * math.sqrt(expected) + 16


def test_chunks_waste_little():
    """Cohorts of 30 of 60 networks, of 500 of 2000 linear models, and everyone."""
    assert slots_for(30.0, 60, 64, overhead=5) == 32
    assert 512 <= slots_for(500.0, 2000, 10_000, overhead=43) <= 560
    assert slots_for(139.0, 139, 10_000, overhead=43) == 144
    assert slots_for(100_000.0, 100_000, 4000, overhead=40) * 25 >= 100_000


def test_few_tasks_are_computed_one_after_the_other():
    assert slots_for(4.0, 100, 100) == 1 == slots_for(50.0, 100, 3)
    assert slots_for(4.1, 100, 100) == 16 == slots_for(50.0, 100, 4)


def test_ragged_cohorts_are_taken_to_have_two_widths():
    assert slots_for(100.0, 100, 1000, ragged=True) == 64
    assert slots_for(100.0, 100, 1000) == 112
