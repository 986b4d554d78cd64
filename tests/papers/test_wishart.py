"""The printed noise of MP-MTL: as large as printed, and no run with it has an ε."""

from __future__ import annotations

import math

import pytest
import torch

import tacit
from papers.mpmtl.composition import composed
from papers.mpmtl.wishart import PrintedMPMTL, printed_scale, wishart_noise
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.methods.base import Board
from tacit.privacy.covariance import flatten, unflatten
from tacit.randomness import Randomness


def tasks():
    return tacit.data.load(
        "personal-shift", tasks=12, rows=15, features=6, spread=1.0, kind="regression", seed=3
    )


def train(method, **more):
    given = {"rounds": 3, "model": "linear-no-intercept", "seed": 0, "baselines": False}
    return tacit.train(tasks(), method, **given | more)


@pytest.mark.parametrize("sensitivity", ["2K", "K2"])
def test_the_printed_mechanism_runs_and_promises_nothing(sensitivity):
    method = PrintedMPMTL(sensitivity=sensitivity, clip=3.0, rounds=3)
    run = train(method)
    assert not math.isfinite(run.guarantee.epsilon)
    assert not run.guarantee.private
    assert "protects nobody" in str(run.guarantee)
    assert run.guarantee.to_json()["epsilon"] is None
    assert len(run.simulation.channel.ledger) == 0  # nothing that could be added up to an ε
    every = torch.arange(12)
    plain = train(tacit.MPMTL(clip=3.0, clip_model=True))
    assert not torch.allclose(run.models(every)[0], plain.models(every)[0], rtol=1e-3)


def test_no_promise_can_be_asked_of_it():
    for privacy in (tacit.Privacy(epsilon=1.0), tacit.Privacy(noise=2.0)):
        with pytest.raises(TacitError, match="keeps no promise"):
            train(PrintedMPMTL(rounds=3), privacy=privacy)


def test_a_run_has_as_many_rounds_as_the_budget_is_for():
    assert PrintedMPMTL(rounds=4).usual_rounds == 4
    with pytest.raises(TacitError, match="for 4 rounds, but the run has 3"):
        train(PrintedMPMTL(rounds=4))


def test_the_printed_noise_has_the_size_of_the_paper():
    method = PrintedMPMTL(accelerated=False, clip=5.0, rounds=4)
    assert composed(method.budgets, method.printed_delta) == pytest.approx(method.printed_epsilon)
    drawn = [
        unflatten(PrintedMPMTL(accelerated=False, clip=5.0, rounds=4, seed=s).noise(3)[0], 3)
        for s in range(1000)
    ]
    # E[W_d(d+1, c I)] = (d+1) c I with c = 2K / (2ε)
    expected = 4 * 5.0 / method.budgets[0]
    assert torch.stack(drawn).mean(0).diagonal().numpy() == pytest.approx(expected, rel=0.08)


def test_each_round_publishes_its_own_noise_and_only_upwards():
    """Positive definite, which is its flaw."""
    method = PrintedMPMTL(clip=5.0, rounds=3, tasks=7, strength=0.0)
    row = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    signal, noise = torch.outer(row, row), method.noise(3)
    assert float(torch.linalg.eigvalsh(unflatten(noise, 3)).min()) > 0
    seen = []

    class Spied(PrintedMPMTL):
        def shared(self, covariance, noise):
            seen.append(covariance)
            return super().shared(covariance, noise)

    spied = Spied(clip=5.0, rounds=3, tasks=7, strength=0.0)
    for round in range(3):
        board = Board({"shared": torch.eye(3).double(), "noise": noise}, round)
        after = spied.publish(board, flatten(signal))
        assert torch.equal(after["noise"], noise)
        assert torch.allclose(seen[-1], signal + unflatten(noise[round], 3) / 7)


@pytest.mark.parametrize("clip_model", [False, True])
def test_what_is_sent_is_never_longer_than_the_clip(clip_model):
    """The channel of a run without privacy clips nothing, so the method does."""
    method = PrintedMPMTL(clip=0.1, clip_model=clip_model, rounds=1)
    run = train(method, rounds=1)
    model, board, (x, y) = run.simulation.model, run.simulation.board, tasks().train.of(0)
    batches = Batches(x.unsqueeze(0), y.unsqueeze(0), torch.ones_like(y).unsqueeze(0))
    _, w = method.client(model, board, method.state(model, board), batches)
    assert float(w.norm()) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize("d", [1, 3, 6])
def test_wishart_noise_has_the_moments_of_its_distribution(d):
    scale, runs = 0.7, 20_000
    randomness = Randomness.of(5)
    drawn = torch.stack([wishart_noise(d, scale, randomness, run) for run in range(runs)])
    assert drawn.dtype == torch.double
    assert torch.equal(drawn, drawn.mT)
    mean = (d + 1) * scale * torch.eye(d, dtype=torch.double)
    # Var E_ij = (d+1) scale² (1 + [i = j])
    variance = (d + 1) * scale**2 * (torch.ones(d, d) + torch.eye(d)).double()
    assert ((drawn.mean(dim=0) - mean).abs() <= 5 * (variance / runs).sqrt()).all()
    assert torch.allclose(drawn.var(dim=0), variance, rtol=0.1)
    assert (torch.linalg.cholesky_ex(drawn).info == 0).all()


def test_wishart_noise_is_named_by_its_round_and_secret_without_a_seed():
    seeded, secret = Randomness.of(1), Randomness.of(None)
    assert torch.equal(wishart_noise(4, 1.0, seeded, 7), wishart_noise(4, 1.0, seeded, 7))
    assert not torch.equal(wishart_noise(4, 1.0, seeded, 7), wishart_noise(4, 1.0, seeded, 8))
    assert not torch.equal(wishart_noise(4, 1.0, secret, 7), wishart_noise(4, 1.0, secret, 7))


def test_the_printed_scale_has_the_wrong_units_and_the_other_has_not():
    assert printed_scale(3.0, 0.5, "2K") == pytest.approx(6.0)
    assert printed_scale(3.0, 0.5, "K2") == pytest.approx(9.0)
    # Models that are c times as large have covariances c² times as large.
    for c in (0.1, 10.0):
        assert printed_scale(c, 1, "K2") / printed_scale(1, 1, "K2") == pytest.approx(c**2)
        assert not math.isclose(printed_scale(c, 1, "2K") / printed_scale(1, 1, "2K"), c**2)
    with pytest.raises(TacitError, match="choose 2K or K2"):
        printed_scale(1.0, 1.0, "K")  # type: ignore[arg-type]
    for clip, epsilon in ((1.0, 0.0), (0.0, 1.0), (1.0, -1.0)):
        with pytest.raises(TacitError, match="positive"):
            printed_scale(clip, epsilon, "K2")
