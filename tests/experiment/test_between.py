"""The covariance between tasks: its release, and the relation that is made of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tacit
from tacit import Privacy, TacitError, between_tasks
from tacit.privacy import Ledger, spent
from tacit.privacy.covariance import gram_moved
from tacit.privacy.gram import _grid


def two_kinds(tasks: int = 16, rows: int = 24, seed: int = 0):
    """Tasks of two kinds, whose weights point in different directions."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tasks, rows, 4))
    kinds = np.arange(tasks) % 2
    weights = np.where(kinds[:, None] == 0, [2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, -2.0])
    y = np.einsum("knd,kd->kn", x, weights) + 0.5 * rng.standard_normal((tasks, rows))
    return kinds, tacit.data.from_arrays(
        x.reshape(-1, 4), y.reshape(-1), np.repeat(np.arange(tasks), rows), validation=0.2,
        test=0.3, scale="none", target_scale="none",
    )  # fmt: skip


def test_without_privacy_it_is_the_gram_matrix_and_knows_the_kinds():
    kinds, federation = two_kinds()
    found = between_tasks(federation, privacy=None)
    assert np.linalg.matrix_rank(found.matrix, tol=1e-8) <= 5
    alike = kinds[:, None] == kinds
    assert found.matrix[alike].min() > 3 > np.abs(found.matrix[~alike]).max()
    assert math.isinf(found.guarantee.epsilon)


def test_noise_is_symmetric_and_as_large_as_a_row_and_a_column_need():
    _, federation = two_kinds()
    clip = 3.0
    free = between_tasks(federation, privacy=Privacy(noise=0.0), clip=clip, seed=0).matrix
    draws = np.stack([
        between_tasks(federation, privacy=Privacy(noise=2.0), clip=clip, seed=s).matrix - free
        for s in range(300)
    ])  # fmt: skip
    assert np.allclose(draws, draws.transpose(0, 2, 1))
    spread = 2.0 * gram_moved("add-remove", 16) * clip**2
    upper = np.triu_indices(16, 1)
    assert draws.diagonal(axis1=1, axis2=2).std() == pytest.approx(spread, rel=0.05)
    assert draws[:, upper[0], upper[1]].std() == pytest.approx(spread / math.sqrt(2), rel=0.02)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_it_is_booked_before_and_a_run_in_the_folder_adds_to_it(tmp_path, neighbours):
    _, federation = two_kinds()
    ask = Privacy(epsilon=2.0, neighbours=neighbours)
    found = between_tasks(federation, privacy=ask, clip=3.0, out=tmp_path / "run")
    assert 1.99 < found.guarantee.epsilon <= 2.0
    related = federation.related(found.omega(rank=2))
    run = tacit.train(
        related, tacit.RelatedPMTL(), privacy=Privacy(noise=20.0, neighbours=neighbours), rounds=3,
        out=tmp_path / "run", personalise="none", baselines=False,
    )  # fmt: skip
    assert run.guarantee.releases == 4
    booked = Ledger.at(tmp_path / "run" / "ledger.jsonl").releases()
    both = spent(booked, run.guarantee.delta, neighbours).epsilon
    assert run.guarantee.epsilon == pytest.approx(both)
    assert both > found.guarantee.epsilon


def test_models_are_clipped_whatever_they_are():
    _, federation = two_kinds()
    federation.train.y[:24] *= 1e6
    found = between_tasks(federation, privacy=Privacy(noise=0.0), clip=0.5, seed=0)
    assert found.matrix.diagonal().max() <= 0.25


@pytest.mark.slow
def test_its_subspace_helps_related_tasks():
    _, federation = two_kinds(tasks=24, rows=12)
    found = between_tasks(federation, privacy=Privacy(noise=0.01), clip=3.0, seed=0)
    settings = {"rounds": 200, "seed": 0, "personalise": "none", "baselines": False}
    method = tacit.RelatedPMTL(pull=5.0, lr=0.05, batch=None)
    scores = [
        tacit.train(each, method, **settings).metrics["overall"]["nmse_pooled"]
        for each in (federation.related(found.omega(2)), federation.clustered(["all"] * 24))
    ]
    assert scores[0] < 0.7 * scores[1]


def test_errors_come_before_work(make_federation, tmp_path):
    _, federation = two_kinds()
    with pytest.raises(TacitError, match="pass out"):
        between_tasks(federation, privacy=Privacy(epsilon=1.0))
    with pytest.raises(TacitError, match="clip"):
        between_tasks(federation, privacy=None, clip=0.0)
    with pytest.raises(TacitError, match="linear models"):
        between_tasks(make_federation(kind="multiclass"), privacy=None)
    with pytest.raises(TacitError, match="half the tasks"):
        between_tasks(federation, privacy=None).omega(9)
    assert torch.is_tensor(federation.train.x)


def test_models_are_as_fine_as_noise_on_their_products_leaves_room_for():
    """Twelve deviations of noise on squares of 2^f stay below 2⁴⁰ steps."""
    assert [_grid(noise).fraction for noise in (1e-9, 1.0, 4.0, 2e10)] == [20, 18, 17, 1]
    assert _grid(1.0).bits == 64
    with pytest.raises(TacitError, match="beyond all precision"):
        _grid(1e11)
