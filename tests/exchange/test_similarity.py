"""Similarity of clients: equations 4 to 6 against brute force and against scipy, pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from tacit.exchange import assignment_scores, cosines, distances, similarity
from tests.exchange import literal


def tables(seed: int, n: int, k: int, ties: bool = False) -> torch.Tensor:
    """Random values for all pairs of layers [n, k, n, k], the same from both sides."""
    generator = np.random.default_rng(seed)
    found = generator.uniform(-1, 1, size=(n, k, n, k))
    if ties:
        found = np.round(2 * found) / 2
    for i in range(n):
        for j in range(i):
            found[i, :, j, :] = found[j, :, i, :].T
        found[i, :, i, :] = (found[i, :, i, :] + found[i, :, i, :].T) / 2
    return torch.from_numpy(found)


shapes = {
    "seed": st.integers(0, 10_000),
    "n": st.integers(1, 5),
    "ties": st.booleans(),
}


@settings(max_examples=25, deadline=None)
@given(k=st.integers(1, 4), **shapes)
def test_assignment_equals_brute_force(seed, n, k, ties):
    pairs = tables(seed, n, k, ties)
    found = assignment_scores(pairs)
    for i in range(n):
        for j in range(n):
            wanted = literal.best_mapping(pairs[i, :, j, :].tolist())
            assert float(found[i, j]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("k", [5, 6])
def test_assignment_of_many_layers_equals_brute_force(k):
    pairs = tables(k, 3, k)
    found = assignment_scores(pairs)
    for i in range(3):
        for j in range(i, 3):
            wanted = literal.best_mapping(pairs[i, :, j, :].tolist())
            assert float(found[i, j]) == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 8), **shapes)
def test_assignment_equals_scipy_on_every_pair(seed, n, k, ties):
    """A pair with a negative cosine may stay unmatched: it then counts as zero, no less."""
    pairs = tables(seed, n, k, ties)
    found = assignment_scores(pairs)
    assert torch.equal(found, found.T)
    for i in range(n):
        for j in range(n):
            worth = pairs[i, :, j, :].numpy().clip(min=0)
            rows, columns = linear_sum_assignment(worth, maximize=True)
            assert float(found[i, j]) == pytest.approx(worth[rows, columns].sum(), abs=1e-12)


def test_layers_that_only_contradict_have_no_partner():
    pairs = -torch.ones(2, 3, 2, 3, dtype=torch.float64)
    assert torch.equal(assignment_scores(pairs), torch.zeros(2, 2, dtype=torch.float64))
    pairs[0, 1, 1, 2] = pairs[1, 2, 0, 1] = 0.25
    assert float(assignment_scores(pairs)[0, 1]) == 0.25


def test_two_layers_that_want_the_same_partner_share_no_partner():
    """The greedy sum would be 0.9 + 0.8; one of the two has to do with its second choice."""
    table = torch.tensor([[0.9, 0.1], [0.8, 0.5]], dtype=torch.float64)
    pairs = torch.zeros(2, 2, 2, 2, dtype=torch.float64)
    pairs[0, :, 1, :], pairs[1, :, 0, :] = table, table.T
    assert float(assignment_scores(pairs)[0, 1]) == pytest.approx(1.4)
    assert float(assignment_scores(pairs)[1, 0]) == pytest.approx(1.4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), zeros=st.sampled_from([0.0, 0.4]))
def test_cosines_equal_plain_loops_and_zero_layers_have_none(seed, zeros):
    generator = np.random.default_rng(seed)
    layers = generator.normal(size=(3, 4, 5)) * 10.0 ** generator.integers(-6, 6, size=(3, 4, 1))
    layers[generator.random((3, 4)) < zeros] = 0.0
    found = cosines(torch.from_numpy(layers))
    assert found.isfinite().all() and found.abs().max() <= 1
    for i, a, j, b in np.ndindex(3, 4, 3, 4):
        wanted = literal.cosine(layers[i, a].tolist(), layers[j, b].tolist())
        assert float(found[i, a, j, b]) == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    spread=st.sampled_from([0.0, 0.1, 1.0]),
    zeros=st.sampled_from([0.0, 0.3]),
)
def test_similarity_equals_the_equations_with_and_without_fake_tasks(
    seed, n, lengths, spread, zeros
):
    clients = literal.random_clients(seed, n, lengths, spread, zeros)
    uploads = literal.uploads_of(clients, lengths)
    found = similarity(uploads.heads, uploads.holds)
    assert ((found >= 0) & (found <= 1)).all() and found.isfinite().all()
    assert (found.diagonal() == 1).all()
    wanted = torch.tensor(literal.similarities(clients), dtype=torch.float64).clamp(0, 1)
    assert torch.allclose(found, wanted, atol=1e-9)
    # The secure version pads clients with fake tasks: they change nothing, on paper and here.
    if len(lengths) < 4:
        padded = torch.tensor(literal.similarities(clients, fake=1), dtype=torch.float64)
        assert torch.allclose(padded.clamp(0, 1), wanted, atol=1e-9)
    fake = torch.cat([uploads.heads, torch.zeros_like(uploads.heads[:, :1])], dim=1)
    held = torch.cat([uploads.holds, torch.zeros_like(uploads.holds[:, :1])], dim=1)
    assert torch.allclose(similarity(fake, held), found, atol=1e-12)


def test_similarity_is_not_symmetric_but_counts_the_same_matches():
    """One task against three: the first finds all its layers in the second, not vice versa."""
    layers = torch.zeros(2, 3, 4, dtype=torch.float64)
    layers[0, 0] = layers[1, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    layers[1, 1], layers[1, 2] = torch.eye(4, dtype=torch.float64)[:2]
    holds = torch.tensor([[True, False, False], [True, True, True]])
    found = similarity(layers, holds)
    assert float(found[0, 1]) == pytest.approx(1.0)
    assert float(found[1, 0]) == pytest.approx(1 / 3)


def test_a_client_whose_layers_are_all_zero_is_like_itself_and_nobody_else():
    layers, holds = torch.zeros(3, 2, 4), torch.ones(3, 2, dtype=torch.bool)
    layers[1:] = 1.0
    found = similarity(layers, holds)
    assert found[0].tolist() == [1.0, 0.0, 0.0] and found[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert float(found[1, 2]) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_the_size_of_a_layer_does_not_matter_in_single_precision(size):
    """Squares of the largest and smallest are infinite and zero; the similarity is not NaN."""
    generator = torch.Generator().manual_seed(0)
    layers = torch.randn(3, 2, 5, generator=generator)
    holds = torch.ones(3, 2, dtype=torch.bool)
    plain = similarity(layers, holds)
    found = similarity(layers * torch.tensor([size, 1.0, 1.0]).reshape(3, 1, 1), holds)
    assert found.isfinite().all() and (found.diagonal() == 1).all()
    assert math.isclose(float(found[1, 2]), float(plain[1, 2]), rel_tol=1e-5)
    if size in (1e-12, 1e12):
        assert torch.allclose(found, plain, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 6),
    centre=st.sampled_from([0.0, 1.0, 1e3]),
)
def test_distances_equal_plain_loops(seed, n, centre):
    """In single precision, around a centre that is far larger than what they differ by."""
    generator = np.random.default_rng(seed)
    models = (centre + 1e-2 * generator.normal(size=(n, 6))).astype(np.float32)
    found = distances(torch.from_numpy(models)).numpy()
    for i in range(n):
        for j in range(n):
            wanted = sum(
                (float(a) - float(b)) ** 2 for a, b in zip(models[i], models[j], strict=True)
            )
            assert found[i, j] == pytest.approx(wanted, rel=1e-3, abs=1e-9)
    assert (found == found.T).all() and (found.diagonal() == 0).all()


def test_a_model_whose_square_is_no_number_is_infinitely_far():
    models = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    models[1] = 1e25
    found = distances(models)
    assert found[1].tolist() == [torch.inf, 0.0, torch.inf, torch.inf]
    assert found[0, 2] == pytest.approx(float((models[0] - models[2]).square().sum()), rel=1e-5)


def test_where_half_of_the_models_run_away_the_others_still_have_distances():
    """The model that distances are measured from must not be one of them."""
    models = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    wanted = float((models[0] - models[2]).square().sum())
    models[1], models[3] = 1e18, -1e18  # accepted, and then all differences of others are lost
    assert abs(float(distances(models)[0, 2]) - wanted) < 1e-3


def test_two_models_at_the_edge_of_single_precision_have_a_distance():
    """Their squares are numbers, the sum of the two is not."""
    models = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    models[2] = models[3] = 7e18
    assert not distances(models).isnan().any()
