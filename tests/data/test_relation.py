"""Which relationship matrices the billboard can carry, and that the rest are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import TacitError
from tacit.data.relation import Relation, clusters, graph, parts, separate


def blocks(sizes) -> np.ndarray:
    """Ω of mean regularisation inside clusters of these sizes."""
    total = sum(sizes)
    omega, begin = np.eye(total), 0
    for size in sizes:
        omega[begin : begin + size, begin : begin + size] -= 1 / size
        begin += size
    return omega


def slopes(relation: Relation, models: np.ndarray) -> np.ndarray:
    """The penalty's slope of every task, from sums as a perfect billboard would hold them."""
    rows = relation.places.double()
    fits = rows[:, : relation.sums]
    sums = fits.T @ torch.from_numpy(models)
    found = []
    for place, w in zip(rows, torch.from_numpy(models), strict=True):
        _, target, own, _ = parts(place, relation.sums)
        found.append(own * (w - target @ sums))
    return torch.stack(found).numpy()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=4), st.integers(0, 100))
def test_a_covered_omega_is_carried_exactly(sizes, seed):
    generator = np.random.default_rng(seed)
    omega = blocks(sizes) * generator.uniform(0.5, 2.0)
    models = generator.normal(size=(len(omega), 3))
    relation = graph(omega)
    assert relation.sums == len(sizes)
    assert np.allclose(slopes(relation, models), omega @ models, atol=1e-5)


def test_components_may_pull_with_different_strength():
    """The plain Laplacian of cliques of different size: no single eigenvalue is common to all."""
    omega = np.zeros((7, 7))
    omega[:3, :3] = 3 * np.eye(3) - 1
    omega[3:, 3:] = 4 * np.eye(4) - 1
    models = np.random.default_rng(0).normal(size=(7, 2))
    assert np.allclose(slopes(graph(omega), models), omega @ models, atol=1e-5)


def test_low_rank_coupling_beyond_clusters():
    """I − a aᵀ with signs: opposites attract to opposite models."""
    a = np.array([1.0, -1.0, 1.0, 0.5, -0.5, 1.0])
    omega = np.eye(6) - 0.9 * np.outer(a, a) / (a @ a)
    models = np.random.default_rng(1).normal(size=(6, 2))
    relation = graph(omega)
    assert relation.sums == 1
    assert np.allclose(slopes(relation, models), omega @ models, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=20))
def test_no_task_moves_all_sums_by_more_than_one(groups):
    for relation in (clusters(groups), separate(len(groups))):
        assert float(relation.loadings.norm(dim=1).max()) <= 1 + 1e-6


def test_clusters_are_the_same_as_their_omega():
    groups = ["a"] * 3 + ["b"] * 4
    one, other = clusters(groups), graph(blocks([3, 4]))
    models = np.random.default_rng(2).normal(size=(7, 2))
    assert np.allclose(slopes(one, models), slopes(other, models), atol=1e-5)


@pytest.mark.parametrize(
    ("omega", "words"),
    [
        (np.ones((2, 3)), "square"),
        (np.full((2, 2), np.nan), "finite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (np.zeros((3, 3)), "not all zero"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), "negative eigenvalue"),
        (np.ones((4, 4)), "most frequent eigenvalue is zero"),
        (np.eye(4), "relates no two tasks"),
        (np.diag([2.0, 3, 3, 3, 2]) - (np.eye(5, k=1) + np.eye(5, k=-1)), "5 tasks"),
    ],
)
def test_what_is_not_covered_is_refused(omega, words):
    with pytest.raises(TacitError, match=words):
        graph(omega)


def test_loadings_that_would_break_the_bound_are_refused():
    with pytest.raises(TacitError, match="at most 1"):
        Relation(torch.full((2, 2), 0.9), torch.zeros(2, 6), torch.ones(2), torch.ones(2), "")
