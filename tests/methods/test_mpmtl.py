"""MP-MTL against plain loops, the classical solver, and what it promises."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

import tacit
from tacit import TacitError
from tacit.classical import Problem, trace_norm
from tacit.local.bayes import design
from tacit.methods import MPMTL
from tacit.privacy import schedule


def tasks(kind: str = "regression", number: int = 12, rows: int = 15, features: int = 6):
    made = tacit.data.load(
        "personal-shift", tasks=number, rows=rows, features=features, spread=1.0, kind=kind, seed=3
    )
    return made


def final(federation, method, rounds, **more) -> np.ndarray:
    run = tacit.train(
        federation, method, rounds=rounds, model="linear-no-intercept", seed=0, baselines=False,
        personalise="none", **more,
    )  # fmt: skip
    return run.models(torch.arange(len(federation)))[0].double().numpy()


def states(run) -> dict[str, torch.Tensor]:
    simulation = run.simulation
    fresh = simulation.method.state(simulation.model, simulation.board)
    return simulation.tasks.store.take(torch.arange(len(run.federation)), fresh)


def rows_of(federation) -> tuple[np.ndarray, np.ndarray]:
    m = len(federation)
    x, y = federation.train.x.double().numpy(), federation.train.y.double().numpy()
    return x.reshape(m, -1, x.shape[1]), y.reshape(m, -1)


def begin(federation, kind: str) -> np.ndarray:
    """W^(0): what a run of one round without shrinkage hands back."""
    return final(federation, MPMTL(strength=0.0), 1)


def proximal_gradient(federation, method: MPMTL, rounds: int, kind: str) -> np.ndarray:
    """Algorithms 2 and 3 without noise and clipping, as one reads them; Ŵ^(T) [m, d]."""
    x, y = rows_of(federation)
    m, n, _ = x.shape
    w = begin(federation, kind).T  # d × m, as in the paper
    hat_before, own = w.copy(), np.zeros_like(w)
    step, bend = method.lr * method.strength * math.sqrt(m), method.ridge
    for t in range(1, rounds + 1):
        covariance = w @ w.T
        if method.structure == "low-rank":
            values, u = np.linalg.eigh(covariance)
            shrink = np.maximum(0, 1 - step / np.sqrt(np.maximum(values, 1e-300)))
            hat = u @ np.diag(shrink) @ u.T @ w
        else:
            shrink = np.maximum(0, 1 - step / np.sqrt(np.diag(covariance)))
            hat = shrink[:, None] * w
        if t == rounds:
            return (hat + own).T
        beta = (t - 1) / (t + 2) if method.accelerated else 0.0
        if method.accelerated and bend:
            root = math.sqrt(bend * method.lr)
            beta = (1 - root) / (1 + root)
        z = hat + beta * (hat - hat_before)
        hat_before = hat
        for k in range(m):
            score = x[k] @ (z[:, k] + own[:, k])
            error = (score if kind == "regression" else 1 / (1 + np.exp(-score))) - y[k]
            slope = x[k].T @ error / n + bend * z[:, k]
            w[:, k] = z[:, k] - method.lr * slope
            if method.outliers is not None:
                moved = own[:, k] - method.lr * slope
                own[:, k] = np.sign(moved) * np.maximum(
                    np.abs(moved) - method.lr * method.outliers, 0
                )
    raise AssertionError


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("structure", ["low-rank", "group-sparse"])
@pytest.mark.parametrize(
    "more",
    [
        {"accelerated": False},
        {"accelerated": True},
        {"accelerated": True, "ridge": 0.05},
        {"accelerated": False, "ridge": 0.05},
        {"accelerated": True, "outliers": 0.05},
    ],
)
def test_without_noise_each_step_is_the_proximal_gradient_method(kind, structure, more):
    federation = tasks(kind)
    method = MPMTL(structure=structure, strength=0.08, lr=0.2, **more)
    for rounds in (1, 2, 5):
        expected = proximal_gradient(federation, method, rounds, kind)
        assert np.allclose(final(federation, method, rounds), expected, atol=2e-5), rounds


def test_many_steps_reach_the_solution_of_the_classical_solver():
    federation = tasks()
    strength = 0.3
    problem = Problem.of(federation.train, "regression", intercept=False)
    known = trace_norm(problem, strength * math.sqrt(len(federation))).w.numpy()
    found = final(federation, MPMTL(strength=strength, lr=0.3), 250)
    assert np.abs(found - known).max() < 2e-4
    assert np.linalg.matrix_rank(known, tol=1e-6) < 6  # the penalty does something


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneralisedRidge(MPMTL):
    """Another map and another solver: the prior of all models, and a regression under it."""

    def shared(self, covariance, noise):
        return torch.linalg.inv(covariance + 0.01 * torch.eye(len(covariance)))

    def step(self, model, board, state, batches):
        x, y, counts = design(batches, len(state["w"]))
        w = torch.linalg.solve(x.T @ (counts[:, None] * x) + board["shared"], x.T @ (counts * y))
        return w, w, torch.zeros_like(w)


def test_the_framework_takes_any_map_and_any_single_task_solver():
    federation = tasks()
    found = final(federation, GeneralisedRidge(), 3)
    x, y = rows_of(federation)
    w = begin(federation, "regression")
    for _ in range(3):
        prior = np.linalg.inv(w.T @ w / len(w) + 0.01 * np.eye(6))
        w = np.stack([np.linalg.solve(a.T @ a + prior, a.T @ b) for a, b in zip(x, y, strict=True)])
    assert np.allclose(found, w, atol=1e-4)


def test_outliers_belong_to_their_task_alone():
    """One task far from the common subspace: its own part takes it up, and others stay at zero."""
    rng = np.random.default_rng(0)
    weights = np.outer(rng.choice([-1, 1], 20), np.eye(5)[0] * 2)
    weights[7, 3] = 6.0
    x = rng.standard_normal((20, 60, 5))
    y = np.einsum("knd,kd->kn", x, weights) + 0.1 * rng.standard_normal((20, 60))
    federation = tacit.data.from_arrays(
        x.reshape(-1, 5), y.reshape(-1), np.repeat(np.arange(20), 60), validation=0, test=0.2,
        scale="none", target_scale="none",
    )  # fmt: skip
    method = MPMTL(strength=0.3, lr=0.3, outliers=0.6)
    run = tacit.train(federation, method, rounds=150, model="linear-no-intercept", seed=0,
                      baselines=False, personalise="none")  # fmt: skip
    own = states(run)["own"]
    assert float(own[7, 3]) > 3
    own[7] = 0
    assert float(own.abs().max()) < 0.5


def test_heavy_noise_leaves_a_task_its_own_model():
    """Proposition 1, kept by the floor: noise must not remove directions at random."""
    federation = tasks()
    alone = begin(federation, "regression")
    found = final(
        federation, MPMTL(strength=0.05, clip=0.5), 1, privacy=tacit.Privacy(epsilon=0.01)
    )
    assert np.allclose(found, alone, rtol=0.02, atol=1e-3)


def test_the_copy_is_clipped_and_the_model_only_if_asked():
    federation = tasks()
    free = final(federation, MPMTL(strength=0.0, clip=0.1), 1, privacy=tacit.Privacy(noise=0.0))
    bound = final(
        federation, MPMTL(strength=0.0, clip=0.1, clip_model=True), 1,
        privacy=tacit.Privacy(noise=0.0),
    )  # fmt: skip
    assert np.linalg.norm(free, axis=1).min() > 0.5
    assert np.linalg.norm(bound, axis=1).max() <= 0.1 + 1e-6


@pytest.mark.parametrize(
    ("more", "shares"),
    [
        ({"accelerated": True}, schedule.shares(4, 0.4)),
        ({"accelerated": False}, schedule.shares(4, 0.0)),
        ({"growth": -0.3}, schedule.shares(4, -0.3)),
        ({"ridge": 0.1, "accelerated": False}, schedule.shares(4, q=0.99**0.4)),
        ({"ridge": 0.1, "growth": 0.8}, schedule.shares(4, q=0.8)),
    ],
)
def test_the_budget_of_the_rounds_follows_the_schedule(more, shares):
    federation = tasks()
    run = tacit.train(
        federation, MPMTL(**more), rounds=4, privacy=tacit.Privacy(epsilon=2.0), seed=0,
        baselines=False,
    )  # fmt: skip
    noise = [entry["noise_multiplier"] for entry in run.simulation.channel.ledger.entries]
    assert np.allclose(np.array(noise) * shares, noise[0] * shares[0])
    assert 1.99 < run.guarantee.epsilon <= 2.0
    assert run.simulation.channel.ledger.entries[0]["replaced"] == pytest.approx(math.sqrt(2))


def test_tasks_that_join_late_begin_with_their_own_model():
    federation = tasks(number=40)
    run = tacit.train(
        federation, MPMTL(strength=0.05), rounds=4, cohort=0.4, privacy=tacit.Privacy(noise=1.0),
        seed=0, baselines=False, personalise="none",
    )  # fmt: skip
    found = states(run)
    took_part = found["began"][:, 0] > 0
    assert 10 < int(took_part.sum()) < 40
    assert (found["w"][took_part].norm(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"structure": "dense"}, "structure must be"),
        ({"ridge": 10.0}, "below 1/lr"),
        ({"mechanism": "laplace"}, "mechanism='laplace': only gaussian noise"),
        ({"mechanism": "wishart"}, "papers/mpmtl/wishart.py of tacit's repository"),
        ({"outliers": -1.0}, "outliers must be"),
        ({"ridge": 0.1, "growth": -1.0}, "positive with a ridge"),
    ],
)
def test_settings_are_checked(more, words):
    with pytest.raises(TacitError, match=words):
        MPMTL(**more)
