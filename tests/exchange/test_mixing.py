"""Answers as weighted sums: what is mixed, what that gives away, and that the guard ends it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import FedMTL
from tacit.exchange import Uploads, guarded, mixed, normalised, reveals
from tests.exchange import literal


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 5),
    copies=st.integers(1, 3),
    widths=st.lists(st.integers(0, 4), min_size=2, max_size=4),
)
def test_a_mixture_is_the_weighted_sum_part_by_part(seed, n, copies, widths):
    generator = np.random.default_rng(seed)
    ends = np.cumsum([0, *widths])
    parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
    vectors = generator.normal(size=(n, ends[-1]))
    weights = generator.normal(size=(copies, len(parts), n, n))
    receivers = generator.integers(n, size=2)
    held = Uploads(
        torch.arange(n), torch.from_numpy(vectors), torch.ones(n).long(),
        torch.ones(n, 1) > 0, parts, 0, 1,
    )  # fmt: skip
    found = mixed(torch.from_numpy(weights), held, torch.from_numpy(receivers))
    assert found.shape == (2, copies, ends[-1])
    for m, i in enumerate(receivers):
        for copy in range(copies):
            for number, part in enumerate(parts):
                for column in range(part.start, part.stop):
                    wanted = sum(weights[copy, number, i, j] * vectors[j, column] for j in range(n))
                    assert float(found[m, copy, column]) == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 6), empty=st.floats(0, 1))
def test_rows_sum_to_one_and_lonely_clients_keep_themselves(seed, n, empty):
    generator = np.random.default_rng(seed)
    scores = generator.random((2, n, n)) * (generator.random((2, n, n)) > empty)
    found = normalised(torch.from_numpy(scores)).numpy()
    assert np.isfinite(found).all() and (found >= 0).all()
    for part in range(2):
        for i in range(n):
            total = sum(scores[part, i])
            assert sum(found[part, i]) == pytest.approx(1.0)
            for j in range(n):
                wanted = scores[part, i, j] / total if total > 0 else float(i == j)
                assert found[part, i, j] == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), n=st.integers(1, 6), empty=st.floats(0, 1), least=st.integers(1, 4)
)
def test_the_guard_counts_others_part_by_part(seed, n, empty, least):
    generator = np.random.default_rng(seed)
    scores = generator.random((1, 3, n, n)) * (generator.random((1, 3, n, n)) > empty)
    weights = normalised(torch.from_numpy(scores))
    found = guarded(weights, least)
    for part in range(3):
        for i in range(n):
            row = weights[0, part, i].tolist()
            others = [row[j] for j in range(n) if j != i]
            own = [float(i == j) for j in range(n)]
            assert found[0, part, i].tolist() == (row if literal.enough(others, least) else own)
            if found[0, part, i, i] != 1 and least >= 2:
                left = sum(sorted(others)[: len(others) - (least - 1)])
                assert left > 0.999 * sum(others) / (10 * (least - 1))
    if least >= 2:
        assert not reveals(found).any()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 5), copies=st.integers(1, 2))
def test_reveals_names_exactly_those_who_are_alone_in_some_part(seed, n, copies):
    generator = np.random.default_rng(seed)
    shape = (copies, 2, n, n)
    weights = generator.normal(size=shape) * (generator.random(shape) > 0.5)
    found = reveals(torch.from_numpy(weights))
    wanted = np.zeros((n, n), dtype=bool)
    for copy in range(copies):
        for part in range(2):
            for i in range(n):
                others = [j for j in range(n) if j != i and weights[copy, part, i, j] != 0]
                if len(others) == 1:
                    wanted[i, others[0]] = True
    assert np.array_equal(found.numpy(), wanted)


def pair(seed: int) -> tuple[list[dict], list[int]]:
    """Two clients alike in their only task."""
    clients = literal.random_clients(seed, 2, [6], spread=0.0)
    clients[1]["heads"] = {"T0": [v + 0.05 * k for k, v in enumerate(clients[0]["heads"]["T0"])]}
    return clients, [6]


def answers(method: FedMTL, clients: list[dict], lengths: list[int]) -> torch.Tensor:
    held = literal.uploads_of(clients, lengths)
    weights = method.answer(held, {}).weights
    return mixed(weights, held, torch.arange(len(clients)))[:, 0]


@pytest.mark.parametrize("seed", range(5))
def test_without_the_guard_a_receiver_computes_the_other_clients_upload(seed):
    """The attack: answer − own = (weight of the other) · (other − own), so one number is missing.

    It is often not even missing: it follows from the similarity and the sizes.
    """
    clients, lengths = pair(seed)
    held = literal.uploads_of(clients, lengths).vectors
    free = FedMTL(threshold=0.0, min_peers=1)
    moved = answers(free, clients, lengths)[0] - held[0]
    apart = held[1] - held[0]
    cosine = torch.nn.functional.cosine_similarity(moved, apart, dim=0)
    assert float(cosine) == pytest.approx(1.0, abs=1e-9)
    # With the weight known, the whole upload: to the last digit.
    weight = float(free.answer(literal.uploads_of(clients, lengths), {}).weights[0, 0, 0, 1])
    assert torch.allclose(held[0] + moved / weight, held[1], atol=1e-9)
    given = reveals(free.answer(literal.uploads_of(clients, lengths), {}).weights)
    assert given.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("seed", range(5))
def test_with_the_guard_the_answer_does_not_depend_on_a_single_other_at_all(seed):
    clients, lengths = pair(seed)
    careful = FedMTL(threshold=0.0)
    assert careful.min_peers == 2
    before = answers(careful, clients, lengths)
    assert torch.equal(before[0], literal.uploads_of(clients, lengths).vectors[0])
    other = literal.random_clients(seed + 100, 1, lengths, spread=1.0)[0]
    after = answers(careful, [clients[0], other], lengths)
    assert torch.equal(before[0], after[0])
    weights = careful.answer(literal.uploads_of(clients, lengths), {}).weights
    assert not reveals(weights).any()


def test_a_head_that_only_two_clients_hold_is_not_mixed_while_the_shared_layers_are():
    """The guard looks at every part for itself: three clients share, but only two hold the head."""
    generator = np.random.default_rng(0)
    clients = [
        {"shared": generator.normal(size=3).tolist(), "heads": heads, "size": 5}
        for heads in (
            {"T0": [1.0, 0.0], "T1": [0.0, 1.0]},
            {"T0": [1.0, 0.1], "T1": [0.1, 1.0]},
            {"T0": [1.0, 0.2]},
        )
    ]
    held = literal.uploads_of(clients, [2, 2])
    weights = FedMTL(threshold=0.0).answer(held, {}).weights[0]
    assert (weights[0] > 0).all() and (weights[1] > 0).all()
    assert torch.equal(weights[2], torch.eye(3, dtype=weights.dtype))
    free = FedMTL(threshold=0.0, min_peers=1).answer(held, {}).weights
    assert reveals(free)[0].tolist() == [False, True, False]


def test_uploads_show_only_heads_that_are_held_padded_to_the_longest():
    clients = [
        {"shared": [1.0, 2.0, 3.0], "heads": {"T0": [4.0], "T1": [5.0, 6.0]}, "size": 2},
        {"shared": [1.0, 2.0, 3.0], "heads": {"T1": [8.0, 9.0]}, "size": 2},
    ]
    held = literal.uploads_of(clients, [1, 2], rest=2)
    assert held.heads.tolist() == [[[4, 0], [5, 6]], [[0, 0], [8, 9]]]
    assert held.rest.tolist() == [[0.5, 0.5], [0.5, 0.5]] and held.model.shape == (2, 6)
    assert len(held) == 2 and held.progress == 0.0
