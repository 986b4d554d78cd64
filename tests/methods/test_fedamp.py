"""FedAMP: who pays attention to whom, and that the pull towards the cloud model has a gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import FedAMP, TacitError
from tacit.engine import course
from tacit.exchange import Uploads, mixed


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


def uploads(vectors: torch.Tensor, holds: torch.Tensor | None = None, shared: int = 2) -> Uploads:
    """Models of `shared` numbers and heads of one number each."""
    n, size = vectors.shape
    heads = [slice(k, k + 1) for k in range(shared, size)]
    held = torch.ones(n, len(heads), dtype=torch.bool) if holds is None else holds
    parts = [slice(0, shared), *heads, slice(size, size)]
    return Uploads(torch.arange(n), vectors, torch.ones(n).long(), held, parts, 0, 1)


def attention(models: np.ndarray, sigma: float, others: float) -> np.ndarray:
    """ξ by plain loops: α A'(‖w_i − w_j‖²) with A(x) = 1 − exp(−x/σ), and the rest is the own.

    σ is in units of the median distance, the lower one where there are two.
    """
    n = len(models)
    apart = [[sum((a - b) ** 2) for b in models] for a in models]
    pairs = sorted(apart[i][j] for i in range(n) for j in range(i))
    width = sigma * (pairs[(len(pairs) - 1) // 2] if pairs else 1.0)
    alpha = others * width / max(1, n - 1)
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                slope = math.exp(-apart[i][j] / width) / width if width > 0 else 0.0
                found[i, j] = alpha * slope if width > 0 else others / (n - 1)
        found[i, i] = 1 - sum(found[i])
    return found


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 6),
    sigma=st.sampled_from([0.3, 1.0, 5.0]),
    others=st.sampled_from([0.2, 0.9, 1.0]),
)
def test_attention_equals_plain_loops(seed, n, sigma, others):
    models = np.random.default_rng(seed).normal(size=(n, 4))
    method = FedAMP(sigma=sigma, others=others, min_peers=1)
    held = uploads(torch.from_numpy(models))
    weights = method.answer(held, {}).weights[0]
    wanted = attention(models, sigma, others)
    for part in range(3):
        assert np.allclose(weights[part].numpy(), wanted, atol=1e-9)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(()).double())
    assert (weights >= -1e-12).all()
    share = 1 - weights[0].diagonal()
    assert (share <= others + 1e-9).all()
    cloud = mixed(weights.unsqueeze(0), held, torch.arange(n))[:, 0]
    assert np.allclose(cloud.numpy(), wanted @ models, atol=1e-9)


def test_closer_models_get_more():
    models = torch.tensor([[0.0], [1.0], [2.0], [4.0]]).double().repeat(1, 3)
    row = FedAMP().answer(uploads(models), {}).weights[0, 0, 0]
    assert float(row[1]) > float(row[2]) > float(row[3]) > 0


@pytest.mark.parametrize("n", [2, 3, 40])
def test_identical_models_make_a_cloud_that_is_the_model(n):
    model = torch.randn(1, 5, generator=torch.Generator().manual_seed(0))
    held = uploads(100 * model.repeat(n, 1))
    weights = FedAMP(min_peers=1).answer(held, {}).weights
    assert weights.isfinite().all()
    cloud = mixed(weights, held, torch.arange(n))[:, 0]
    assert torch.allclose(cloud, held.vectors, rtol=1e-5)


def test_small_differences_between_large_models_are_seen(n=10):
    """Clients that began with one model differ by little; attention is about that little."""
    generator = np.random.default_rng(0)
    models = 10 + 1e-3 * generator.normal(size=(n, 30)).astype(np.float32)
    weights = FedAMP().answer(uploads(torch.from_numpy(models)), {}).weights[0, 0]
    wanted = attention(models.astype(np.float64), 1.0, 0.9)
    assert np.allclose(weights.numpy(), wanted, atol=0.02 * 0.9 / n)


def test_small_differences_between_many_large_models_are_seen():
    """From 26 clients on, distances must not be computed as differences of large squares."""
    test_small_differences_between_large_models_are_seen(n=40)


def test_a_model_that_runs_away_is_in_nobodys_cloud():
    """Its distance overflows single precision; no number that is none must come of it."""
    models = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    calm = FedAMP(min_peers=1).answer(uploads(models[:3]), {}).weights
    models[3] = 1e25
    held = uploads(models)
    weights = FedAMP(min_peers=1).answer(held, {}).weights
    assert weights.isfinite().all() and (weights[:, :, :3, 3] == 0).all()
    assert torch.allclose(weights.sum(dim=-1), torch.ones(()))
    assert mixed(weights, held, torch.arange(3)).abs().max() < 10
    # Attention of the others for each other is what it was, but for the share of one more.
    others = weights[:, :, :3, :3] - torch.diag_embed(
        weights[:, :, :3, :3].diagonal(dim1=2, dim2=3)
    )
    before = calm - torch.diag_embed(calm.diagonal(dim1=2, dim2=3))
    assert torch.allclose(others, before * 2 / 3, atol=1e-6)


@pytest.mark.parametrize("same", [2, 3])
def test_clients_that_are_alike_to_the_last_digit_share_as_much_as_they_may(same):
    """Also where most distances, and so their median, are zero."""
    models = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).double()
    models[:same] = models[0].clone()
    weights = FedAMP(min_peers=1).answer(uploads(models), {}).weights[0, 0]
    assert weights.isfinite().all() and torch.allclose(weights.sum(dim=1), torch.ones(4).double())
    assert torch.allclose(weights[0, 1:same], torch.full((same - 1,), 0.3).double())
    assert (weights[0, same:] < 0.3).all()


def test_two_models_at_the_edge_of_single_precision_have_a_distance():
    """Their squares are numbers, the sum of the two is not."""
    models = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    models[2] = models[3] = 7e18
    assert FedAMP(min_peers=1).answer(uploads(models), {}).weights.isfinite().all()


def test_heads_are_mixed_among_those_who_hold_them():
    models = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double()
    holds = torch.tensor([[True, False], [True, True], [True, True], [True, False]])
    weights = FedAMP(min_peers=1).answer(uploads(models, holds), {}).weights[0]
    wanted = attention(models.numpy(), 1.0, 0.9)
    for i in range(4):
        for head in range(2):
            row = [
                wanted[i, j] if i != j and holds[i, head] and holds[j, head] else 0.0
                for j in range(4)
            ]
            row[i] = 1 - sum(row)
            assert weights[1 + head, i].tolist() == pytest.approx(row, abs=1e-9)
    guarded = FedAMP().answer(uploads(models, holds), {}).weights[0]
    assert torch.equal(guarded[2], torch.eye(4).double())  # two hold it: one other, so nobody
    assert torch.equal(guarded[:2], weights[:2])


def quick(federation, method, **given):
    plain = {"seed": 0, "baselines": False, "personalise": "none", "model": "linear"}
    return tacit.train(federation, method, **(plain | given))


def states(run) -> dict[str, torch.Tensor]:
    sim = run.simulation
    fresh = sim.method.state(sim.model, sim.board)
    return sim.tasks.store.take(torch.arange(len(run.federation)), fresh)


def descent(rows, start: np.ndarray, towards: np.ndarray, method: FedAMP) -> np.ndarray:
    """Gradient descent on the mean squared error plus pull/2 ‖w − towards‖², by hand."""
    x, y = (part.double().numpy() for part in rows)
    x, w = np.hstack([x, np.ones((len(x), 1))]), start.copy()
    for _ in range(method.local_steps):
        slope = np.zeros_like(w)
        for row, target in zip(x, y, strict=True):
            slope += 2 * (row @ w - target) * row / len(x)
        w = w - method.lr * (slope + method.pull * (w - towards))
    return w


def test_rounds_equal_plain_loops(make_federation):
    """Three rounds: eq. 6 from the cloud model, with its gradient, then eq. 4 and 5."""
    federation = make_federation(tasks=5)
    method = FedAMP(pull=2.0, lr=0.05, local_steps=3, batch=None)
    run = quick(federation, method, rounds=3)
    clouds = np.zeros((5, 5))
    models = clouds
    for _ in range(3):
        models = np.array(
            [descent(federation.train.of(k), clouds[k], clouds[k], method) for k in range(5)]
        )
        clouds = attention(models, method.sigma, method.others) @ models
    kept = states(run)
    assert np.allclose(kept["w"].numpy(), models, atol=1e-6)
    assert np.allclose(kept["cloud"].numpy(), clouds, atol=1e-6)
    found = run.simulation.personal(torch.arange(5))[0]
    assert np.allclose(found.numpy(), models, atol=1e-6)


def test_the_pull_ends_nearer_to_the_cloud(make_federation):
    """Two more rounds from the same clouds: only the pull differs, and it has an effect."""
    federation = make_federation(tasks=5)
    apart = {}
    for pull in (0.0, 5.0):
        method = FedAMP(pull=pull, lr=0.05, local_steps=4, batch=None)
        run = quick(federation, method, rounds=1)  # everybody begins at the start: the same cloud
        apart[pull] = torch.linalg.vector_norm(states(run)["w"], dim=1)
    assert (apart[5.0] < 0.9 * apart[0.0]).all() and (apart[5.0] > 0).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pull": -1.0}, "pull must be zero or more"),
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"others": 0.0}, "others must be above 0"),
        ({"others": 1.1}, "others must be above 0, and at most 1"),
        ({"min_peers": 0}, "min_peers must be at least 1"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(TacitError, match=words):
        FedAMP(**settings)
