"""MOCHA: the relationship step, the clients' step, and that together they solve the problem."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import MOCHA, TacitError
from tacit.classical import Problem
from tacit.classical import relationship as convex
from tacit.engine import course
from tacit.exchange import Uploads, mixed
from tacit.methods.mocha import relationship


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


def quick(federation, method, **given):
    plain = {"seed": 0, "baselines": False, "personalise": "none", "model": "linear-no-intercept"}
    return tacit.train(federation, method, **(plain | given))


def personal(run) -> np.ndarray:
    return run.simulation.personal(torch.arange(len(run.federation)))[0].double().numpy()


def slow_relationship(models: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """(V Vᵀ)^½ from the singular vectors of V, with trace n, and the inverse."""
    n = len(models)
    u, values, _ = np.linalg.svd(models, full_matrices=False)
    root = sum(s * np.outer(side, side) for s, side in zip(values, u.T, strict=True))
    covariance = n * root / np.trace(root)
    return covariance, np.linalg.inv(covariance + ridge * np.eye(n))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 6),
    d=st.integers(1, 8),
    ridge=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_the_relationship_is_a_covariance_of_trace_n_and_its_inverse(seed, n, d, ridge):
    models = np.random.default_rng(seed).normal(size=(n, d))
    covariance, omega = (part.numpy() for part in relationship(torch.from_numpy(models), ridge))
    wanted, inverse = slow_relationship(models, ridge)
    assert np.allclose(covariance, wanted, atol=1e-4)
    assert np.allclose(omega, inverse, atol=1e-4 / ridge**2)
    assert np.allclose(omega @ (covariance + ridge * np.eye(n)), np.eye(n), atol=1e-9)
    assert np.trace(covariance) == pytest.approx(n)
    assert np.allclose(covariance, covariance.T) and np.linalg.eigvalsh(covariance).min() > -1e-9
    # It is the best there is: no other covariance of that trace is paid less for these models.
    other = np.random.default_rng(seed + 1).normal(size=(n, n))
    other = other @ other.T
    other = n * other / np.trace(other)
    mine, theirs = (
        np.trace(models.T @ np.linalg.solve(c + 1e-9 * np.eye(n), models))
        for c in (covariance, other)
    )
    assert mine <= theirs * (1 + 1e-6)


def test_equal_and_opposite_clients_are_found():
    v = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [-1.0, -2.0, -3.0], [0.0, 3.0, -2.0]])
    covariance, _ = relationship(v, 0.1)
    scale = covariance.diagonal().sqrt()
    correlation = covariance / scale.unsqueeze(0) / scale.unsqueeze(1)
    wanted = torch.eye(4).double()
    wanted[:3, :3] = torch.tensor([[1, 1, -1], [1, 1, -1], [-1, -1, 1]])
    assert torch.allclose(correlation, wanted, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_models_that_did_not_move_are_unrelated(n):
    covariance, omega = relationship(torch.zeros(n, 4), 0.5)
    assert torch.equal(covariance, torch.eye(n).double())
    assert torch.allclose(omega, torch.eye(n).double() / 1.5)


def uploads(vectors: torch.Tensor, holds: torch.Tensor) -> Uploads:
    """Models of two shared numbers and heads of one number each, and a one."""
    n, size = vectors.shape
    parts = [slice(0, 2), *(slice(k, k + 1) for k in range(2, size)), slice(size, size + 1)]
    whole = torch.cat([vectors, torch.ones_like(vectors[:, :1])], dim=1)
    return Uploads(torch.arange(n), whole, torch.ones(n).long(), holds, parts, 0, 1)


def test_answers_are_what_the_regulariser_pulls_to():
    """λ/2 tr(V Ω Vᵀ) has the gradient λ Ω_ii (w_i − answer), taken here by autograd."""
    vectors = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    holds = torch.ones(5, 2, dtype=torch.bool)
    holds[2, 1] = holds[3, 0] = False
    vectors[2, 3] = vectors[3, 2] = 0.0  # where everybody began
    given = uploads(vectors, holds)
    answer = MOCHA(ridge=0.2).answer(given, {})
    found = mixed(answer.weights, given, torch.arange(5))[:, 0]
    covariance, omega = relationship(vectors, 0.2)
    assert answer.similarity is not None
    assert torch.allclose(answer.similarity.double(), covariance, atol=1e-6)
    moving = vectors.clone().requires_grad_()
    energy = sum(omega[i, j] * moving[i] @ moving[j] for i in range(5) for j in range(5)) / 2
    slope = torch.autograd.grad(energy, moving)[0]
    relatives, stiffness = found[:, :4], found[:, 4:]
    assert torch.allclose(stiffness[:, 0], omega.diagonal())
    held = torch.cat([torch.ones(5, 2, dtype=torch.bool), holds], dim=1)
    pulled = stiffness * (vectors - relatives)
    assert torch.allclose(pulled[held], slope[held], atol=1e-9)
    assert (relatives[~held] == 0).all()  # a head that it does not hold stays


def mean_squares(federation, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum over tasks of the mean squared error, and its gradient, row by row."""
    total, slopes = 0.0, np.zeros_like(w)
    for k in range(len(w)):
        x, y = (part.double().numpy() for part in federation.train.of(k))
        for row, target in zip(x, y, strict=True):
            error = row @ w[k] - target
            total += error**2 / len(x)
            slopes[k] += 2 * error * row / len(x)
    return total, slopes


def test_rounds_equal_plain_loops(make_federation):
    federation = make_federation(tasks=5, features=7)
    method = MOCHA(lr=0.05, pull=0.4, ridge=0.1, local_steps=2, batch=None)
    run = quick(federation, method, rounds=4)
    w, relatives, stiffness = np.zeros((5, 7)), np.zeros((5, 7)), np.ones(5)
    for _ in range(4):
        for _ in range(2):
            slopes = mean_squares(federation, w)[1]
            for k in range(5):
                stiff = method.pull * stiffness[k]
                step = slopes[k] + stiff * (w[k] - relatives[k])
                w[k] = w[k] - method.lr * step / (1 + method.lr * stiff)
        _, omega = slow_relationship(w, method.ridge)
        stiffness = omega.diagonal()
        for k in range(5):
            others = sum(omega[k, j] * w[j] for j in range(5) if j != k)
            relatives[k] = -others / omega[k, k]
    assert np.allclose(personal(run), w, atol=1e-6)


def clustered(tasks: int = 12, features: int = 8, rows: int = 7, seed: int = 0):
    """Three planted clusters of linear tasks, with fewer rows than features to train on."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(3, features))
    truth = centres[np.arange(tasks) % 3] + 0.1 * generator.normal(size=(tasks, features))
    names = np.repeat([f"task-{k:02d}" for k in range(tasks)], rows)
    x = generator.normal(size=(len(names), features)).astype(np.float32)
    y = (x * np.repeat(truth, rows, axis=0)).sum(axis=1) + 0.1 * generator.normal(size=len(x))
    federation = tacit.data.from_arrays(
        x, y, names, scale="none", target_scale="none", validation=0.0, test=0.0
    )
    return federation, truth


@pytest.fixture(scope="module")
def related():
    federation, truth = clustered()
    method = MOCHA(lr=0.05, pull=0.3, ridge=0.05, local_steps=4, batch=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "TRACED_GRADIENTS", 0)
        run = quick(federation, method, rounds=80)
        alone = quick(federation, tacit.Local(lr=0.05, local_steps=4, batch=None), rounds=80)
    return run, alone, truth


def test_planted_clusters_are_recovered(related):
    run, _, _ = related
    covariance = run.simulation.exchange.record.similarity.double().numpy()
    scale = np.sqrt(covariance.diagonal())
    correlation = covariance / np.outer(scale, scale)
    planted = np.arange(12) % 3
    same = np.equal.outer(planted, planted)
    within = correlation[same & ~np.eye(12, dtype=bool)]
    between = correlation[~same]
    assert within.mean() > np.abs(between).mean() + 0.4
    assert within.min() > between.max()
    # Joining the two most alike groups until three are left finds the planted ones.
    groups = [{k} for k in range(12)]
    while len(groups) > 3:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        a, b = max(
            pairs, key=lambda p: correlation[np.ix_(list(groups[p[0]]), list(groups[p[1]]))].mean()
        )
        groups[b] |= groups.pop(a)
    assert sorted(map(sorted, groups)) == [[c + 3 * k for k in range(4)] for c in range(3)]


def test_relatives_help_where_rows_are_few(related):
    run, alone, truth = related
    own, together = (np.linalg.norm(personal(found) - truth) ** 2 for found in (alone, run))
    assert together < 0.6 * own


def equal_tasks(tasks: int = 6, features: int = 4, rows: int = 10):
    return clustered(tasks, features, rows, seed=1)[0]


def objective(federation, w: np.ndarray, pull: float) -> float:
    """With the best covariance the regulariser is the squared trace norm, λ/2 · (Σ sᵢ)² / n."""
    norm = np.linalg.svd(w, compute_uv=False).sum()
    return mean_squares(federation, w)[0] + pull / 2 * norm**2 / len(w)


def test_the_objective_falls_in_every_round(monkeypatch):
    federation, seen = equal_tasks(), []
    method = MOCHA(lr=0.02, pull=1.0, ridge=1e-4, local_steps=1, batch=None)
    whole = MOCHA.answer

    def watched(self, uploads, memory):
        seen.append(uploads.model.double().numpy().copy())
        return whole(self, uploads, memory)

    monkeypatch.setattr(MOCHA, "answer", watched)
    quick(federation, method, rounds=40)
    values = [objective(federation, w, method.pull) for w in seen if w.any()]
    assert len(values) == 40
    assert all(after < before for before, after in itertools.pairwise(values))


def test_alternating_steps_end_at_the_convex_solution():
    """The classical solver's problem is the same up to a factor of two in the squares."""
    federation, pull = equal_tasks(), 1.0
    method = MOCHA(lr=0.05, pull=pull, ridge=0.01, local_steps=2, batch=None)
    found = personal(quick(federation, method, rounds=400))
    problem = Problem.of(federation.train, "regression", intercept=False)
    solved = convex(problem, pull / (2 * len(federation))).w.numpy()
    gap = objective(federation, found, pull) - objective(federation, solved, pull)
    assert gap < 2e-3 * objective(federation, solved, pull)
    assert np.linalg.norm(found - solved) < 0.02 * np.linalg.norm(solved)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pull": -1.0}, "pull must be zero or more"),
        ({"ridge": 0.0}, "ridge must be a positive number"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(TacitError, match=words):
        MOCHA(**settings)


def test_a_model_that_runs_away_does_not_end_the_round():
    """Its square overflows single precision; the others must still get numbers."""
    vectors = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    vectors[3] = 1e25
    given = uploads(vectors, torch.ones(4, 2, dtype=torch.bool))
    answer = MOCHA().answer(given, {})
    assert mixed(answer.weights, given, torch.arange(4)).isfinite().all()
