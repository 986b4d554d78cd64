"""The private prior: what it learns, what it never loses, what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize

import tacit
from tacit import Privacy, SharedPrior, TacitError
from tacit.methods.base import Board
from tacit.methods.prior import _near, _sparse, roots_of

PLAIN: dict = {"seed": 0, "baselines": False, "personalise": "none"}
"""The method by itself: its last step has tests of its own."""


def score(federation, method, *, alone: bool = False, model="linear-no-intercept", **more):
    """Pooled nMSE (log loss for classes), and that of every task by itself."""
    settings = PLAIN | {"baselines": True} | more
    run = tacit.train(federation, method, model=model, **settings)
    name = "nmse_pooled" if federation.kind == "regression" else "loss"
    scores = run.metrics
    return scores["overall"][name], scores["baselines"]["local"]["overall"][name]


def unrelated(tasks: int = 60, rows: int = 20, features: int = 10):
    """Tasks that have nothing in common."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((tasks, 3 * rows, features))
    w = 2 * rng.standard_normal((tasks, features))
    y = np.einsum("knd,kd->kn", x, w) + rng.standard_normal((tasks, 3 * rows))
    return tacit.data.from_arrays(
        x.reshape(-1, features), y.reshape(-1), np.repeat(np.arange(tasks), 3 * rows),
        validation=0, test=2 / 3, scale="none", target_scale="none",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["low-rank", "group-sparse"])
def test_without_noise_one_release_finds_the_structure(name):
    federation = tacit.data.load(name, seed=5)
    found, alone = score(federation, SharedPrior(mean=0.0))
    assert found < 0.2 * alone
    assert found < 0.02  # the noise of the targets alone is 0.01


@pytest.mark.parametrize(("epsilon", "part"), [(0.1, 0.95), (1.0, 0.5), (10.0, 0.25)])
def test_more_budget_helps_and_little_does_not_hurt(epsilon, part):
    federation = tacit.data.load("low-rank", seed=5)
    found, alone = score(federation, SharedPrior(mean=0.0), privacy=Privacy(epsilon=epsilon))
    assert found < part * alone


@pytest.mark.parametrize("mean", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_a_task_with_nothing_to_learn_from_others_loses_nothing(mean, epsilon):
    found, alone = score(unrelated(), SharedPrior(mean=mean), privacy=Privacy(epsilon=epsilon))
    assert found < 1.05 * alone


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("mean", [0.5, 1.0])
def test_tasks_around_a_common_mean_profit_from_it(kind, mean):
    federation = tacit.data.load("personal-shift", kind=kind, spread=0.3, seed=2)
    found, alone = score(federation, SharedPrior(mean=mean), privacy=Privacy(epsilon=2.0))
    assert found < 0.85 * alone


def test_who_never_took_part_gets_the_mean():
    federation = tacit.data.load("personal-shift", spread=0.1, seed=2)
    run = tacit.train(federation, SharedPrior(mean=1.0), rounds=8, **PLAIN)
    known = run.simulation.newcomer(torch.arange(3))[0]
    assert torch.equal(known[0], run.simulation.board["mean"])
    personal = run.models(torch.arange(100))[0]
    assert float((known[0] - personal.mean(0)).norm()) < 0.1 * float(known[0].norm())


def test_the_unit_of_the_target_does_not_matter_for_a_covariance():
    federation = tacit.data.load("low-rank", seed=5, tasks=100)
    scaled = tacit.data.load("low-rank", seed=5, tasks=100)
    scaled.train.y.mul_(1000.0), scaled.test.y.mul_(1000.0), scaled.validation.y.mul_(1000.0)
    method = SharedPrior(mean=0.0, clip=1.0)
    one, other = (
        score(each, method, privacy=Privacy(epsilon=3.0))[0] for each in (federation, scaled)
    )
    assert one == pytest.approx(other, rel=1e-3)


def test_the_release_is_booked_with_its_own_sensitivity():
    federation = tacit.data.load("low-rank", seed=5, tasks=40)
    run = tacit.train(
        federation, SharedPrior(mean=0.0), privacy=Privacy(epsilon=1.0, neighbours="replace"),
        **PLAIN,
    )  # fmt: skip
    (entry,) = run.simulation.channel.ledger.entries
    assert entry["replaced"] == pytest.approx(math.sqrt(4 * 0.1 + 2 * 0.9))
    assert entry["size"] == 1 + 31 * 32 // 2  # the strength, and the covariance
    assert 0.99 < run.guarantee.epsilon <= 1.0


def test_a_finished_run_that_is_resumed_ends_with_the_same_models(tmp_path):
    federation = tacit.data.load("low-rank", seed=5, tasks=30)
    settings = PLAIN | {"privacy": Privacy(epsilon=3.0), "rounds": 3, "out": tmp_path / "run"}
    first = tacit.train(federation, SharedPrior(), **settings)
    again = tacit.train(federation, SharedPrior(), resume=True, **settings)
    everyone = torch.arange(30)
    assert torch.equal(first.models(everyone)[0], again.models(everyone)[0])


def test_usual_rounds_are_few():
    assert [SharedPrior(mean=m).usual_rounds for m in (0.0, 0.5, 1.0)] == [1, 3, 5]
    federation = tacit.data.load("low-rank", seed=5, tasks=30)
    run = tacit.train(federation, SharedPrior(), **PLAIN)
    assert run.simulation.board.round == 3


def test_only_linear_models_with_one_output(make_federation):
    with pytest.raises(
        TacitError, match="linear models of a target of kind regression, count, binary, survival:"
    ):
        tacit.train(make_federation(), SharedPrior(), model="mlp", seed=0)
    with pytest.raises(
        TacitError, match="linear models of a target of kind regression, count, binary, survival:"
    ):
        tacit.train(make_federation(kind="multiclass"), SharedPrior(), seed=0)
    with pytest.raises(TacitError, match="nothing to fine-tune"):
        tacit.train(make_federation(), SharedPrior(), personalise="ewc", seed=0)
    with pytest.raises(TacitError, match="between 0 and 1"):
        SharedPrior(mean=1.5)


def test_candidates_are_covariances_of_one_size():
    rng = torch.Generator().manual_seed(0)
    draw = torch.randn(8, 8, generator=rng)
    for moment in (draw @ draw.T, draw + draw.T, torch.zeros(8, 8), -torch.eye(8)):
        for spread in (0.0, 0.5, 100.0):
            roots = roots_of(moment, torch.tensor(spread)).double()
            assert roots.isfinite().all()
            sizes = torch.einsum("kij,kij->k", roots, roots)
            assert sizes.numpy() == pytest.approx(8, rel=1e-5)
            assert torch.linalg.eigvalsh(roots @ roots.mT).min() > 0
            assert torch.allclose(roots[-1], torch.eye(8).double())


def test_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.standard_normal(6) * rng.choice([0.1, 1.0, 10.0])
        found = _near(torch.from_numpy(values)).numpy()
        best = optimize.minimize(
            lambda p, v=values: ((p - v) ** 2).sum(), np.full(6, 1 / 6), bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, options={"ftol": 1e-12},
        )  # fmt: skip
        assert found == pytest.approx(best.x, abs=1e-4)


def test_sparse_keeps_what_rises_out_of_the_bulk():
    values = torch.tensor([0.1, 0.11, 0.09, 0.1, 0.1, 3.0, 0.105]).double()
    kept = _sparse(values, torch.tensor(0.0).double())
    assert kept.nonzero().flatten().tolist() == [5]
    assert torch.allclose(
        _sparse(values, torch.tensor(5.0).double()), torch.full((7,), 1 / 7).double()
    )


def test_a_noisy_strength_is_believed_less():
    method = SharedPrior(mean=0.0)
    told = []
    for variance in (0.0, 1.0):
        board = Board({"strength": torch.ones(1), "variance": torch.full((1,), variance),
                       "roots": torch.eye(2).expand(7, 2, 2), "mean": torch.zeros(2)})  # fmt: skip
        told.append(float(method._candidates("regression", board)[0][2]))
    assert told[0] == pytest.approx(3.0)
    assert 1.0 < told[1] < 1.1
