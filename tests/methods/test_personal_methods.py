"""FedProx, Ditto, pFedMe and PP-SGD against closed forms, and against each other at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tacit import PPSGD, Ditto, FedAvg, FedProx, Local, PFedMe, Privacy, TacitError
from tacit.experiment.train import train
from tacit.methods import METHODS, ExchangeMethod, OnBillboard, TrainedMethod

FREE = {"clip": math.inf, "batch": None}


def run(federation, method, **settings):
    plain = {"rounds": 4, "seed": 0, "baselines": False, "personalise": "none"}
    return train(federation, method, **(plain | settings))


def models(finished) -> np.ndarray:
    every = torch.arange(len(finished.federation))
    return finished.simulation.personal(every)[0].double().numpy()


def quadratics(federation) -> tuple[np.ndarray, np.ndarray]:
    """Hessians H_k and right sides b_k of the tasks' mean squared errors: gradient H w - b."""
    hessians, rights = [], []
    for k in range(len(federation)):
        x, y = (part.double().numpy() for part in federation.train.of(k))
        x = np.hstack([x, np.ones((len(x), 1))])
        hessians.append(2 * x.T @ x / len(x))
        rights.append(2 * x.T @ y / len(x))
    return np.array(hessians), np.array(rights)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-3) -> bool:
    return float(np.linalg.norm(found - expected)) < tolerance * float(np.linalg.norm(expected))


@pytest.mark.parametrize("privacy", [None, Privacy(noise=3.0)])
def test_fedprox_without_pull_is_fedavg(make_federation, privacy):
    federation, same = make_federation(), {"batch": 6, "clip": 0.4}
    one = run(federation, FedProx(pull=0.0, **same), privacy=privacy)
    other = run(federation, FedAvg(**same), privacy=privacy)
    assert torch.equal(one.simulation.board["model"], other.simulation.board["model"])
    near = run(federation, FedProx(pull=5.0, **same), privacy=privacy)
    assert not torch.equal(near.simulation.board["model"], other.simulation.board["model"])


@pytest.mark.slow
def test_fedprox_solves_the_proximal_problem(make_federation):
    """One round, many local steps: the contribution is the mean proximal point."""
    federation, pull = make_federation(), 0.8
    finished = run(federation, FedProx(pull=pull, lr=0.05, local_steps=1500, **FREE), rounds=1)
    hessians, rights = quadratics(federation)
    points = np.linalg.solve(hessians + pull * np.eye(5), rights[..., None])[..., 0]
    # the linear model of the library starts at zero, so the billboard is the mean point itself
    assert close(finished.simulation.board["model"].numpy(), points.mean(axis=0))


def test_ditto_without_pull_trains_alone_beside_fedavg(make_federation):
    federation, same = make_federation(), {"batch": 6}
    ditto = run(federation, Ditto(pull=0.0, clip=0.4, **same), privacy=Privacy(noise=2.0))
    alone = run(federation, Local(**same))
    average = run(federation, FedAvg(clip=0.4, **same), privacy=Privacy(noise=2.0))
    assert np.array_equal(models(ditto), models(alone))
    assert torch.equal(ditto.simulation.board["model"], average.simulation.board["model"])


@pytest.mark.slow
def test_ditto_converges_to_its_closed_form(make_federation):
    federation, pull = make_federation(), 0.6
    finished = run(federation, Ditto(pull=pull, lr=0.1, local_steps=1, **FREE), rounds=1000)
    hessians, rights = quadratics(federation)
    centre = np.linalg.solve(hessians.sum(axis=0), rights.sum(axis=0))
    around = np.linalg.solve(hessians + pull * np.eye(5), (rights + pull * centre)[..., None])
    assert close(finished.simulation.board["model"].numpy(), centre)
    assert close(models(finished), around[..., 0])


@pytest.mark.slow
def test_pfedme_converges_to_the_minimiser_of_the_envelopes(make_federation):
    federation, pull = make_federation(), 2.0
    method = PFedMe(pull=pull, lr=0.1, local_steps=1, inner_steps=40, inner_lr=0.08, **FREE)
    finished = run(federation, method, rounds=200)
    hessians, rights = quadratics(federation)
    inverse = np.linalg.inv(hessians + pull * np.eye(5))
    # mean over tasks of w - prox_k(w) = 0, where prox_k(w) = (H_k + λ)^-1 (b_k + λ w)
    system = np.eye(5) - pull * inverse.mean(axis=0)
    centre = np.linalg.solve(system, np.einsum("kij,kj->ki", inverse, rights).mean(axis=0))
    points = np.einsum("kij,kj->ki", inverse, rights + pull * centre)
    assert close(finished.simulation.board["model"].numpy(), centre, 5e-3)
    assert close(models(finished), points, 5e-3)


@pytest.mark.slow
def test_ppsgd_reaches_every_task_and_equals_fedavg_without_a_personal_part(make_federation):
    federation = make_federation()
    finished = run(federation, PPSGD(lr=0.05, local_steps=1, **FREE), rounds=1600)
    hessians, rights = quadratics(federation)
    found = models(finished)
    slopes = np.einsum("kij,kj->ki", hessians, found) - rights
    assert np.abs(slopes).max() < 1e-3 * np.abs(rights).max()
    shared = run(federation, PPSGD(personal_rate=0.0, batch=6))
    average = run(federation, FedAvg(batch=6))
    assert np.allclose(models(shared), models(average), atol=1e-6)


@pytest.mark.parametrize(
    "name", [name for name, kind in METHODS.items() if not issubclass(kind, ExchangeMethod)]
)
def test_every_method_trains_privately_with_a_guarantee(make_federation, name):
    kind, federation = METHODS[name], make_federation(kind="binary")
    trained = issubclass(kind, TrainedMethod)
    method = kind(batch=6, local_steps=2) if trained else kind()
    federation = federation.clustered(["a", "b"] * 6)
    private = {"privacy": Privacy(noise=6.0), "cohort": 0.5}
    finished = run(federation, method, model="mlp" if trained else "linear", **private)
    assert np.isfinite(models(finished)).all()
    if isinstance(method, OnBillboard):
        assert finished.guarantee.releases == 4
        assert finished.guarantee.epsilon < math.inf
    else:
        assert finished.guarantee.epsilon == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FedProx(pull=-1.0), "pull must be"),
        (lambda: Ditto(pull=-1.0), "pull must be"),
        (lambda: PFedMe(pull=0.0), "pull must be"),
        (lambda: PFedMe(inner_steps=0), "inner_steps must be"),
        (lambda: PFedMe(inner_lr=0.0), "inner_lr must be"),
        (lambda: PFedMe(server_rate=0.0), "server_rate must be"),
        (lambda: PPSGD(personal_rate=-1.0), "personal_rate must be"),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(TacitError, match=words):
        make()
