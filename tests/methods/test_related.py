"""Clusters, a fixed Ω, the naive mechanism and the split model, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import PMTL, FedAvg, FedRep, Local, NaiveDP, Privacy, RelatedPMTL, TacitError
from tests.data.test_relation import blocks
from tests.methods.test_personal_methods import FREE, close, models, quadratics


def run(federation, method, **settings):
    plain = {"rounds": 4, "seed": 0, "baselines": False, "personalise": "none"}
    return tacit.train(federation, method, **(plain | settings))


@pytest.mark.parametrize("privacy", [None, Privacy(noise=0.0)])
def test_one_cluster_is_pmtl(make_federation, privacy):
    federation, same = make_federation(), {"batch": 6, "clip": 0.4, "pull": 0.7}
    one = run(federation.clustered(["all"] * 12), RelatedPMTL(**same), privacy=privacy, cohort=0.5)
    other = run(federation, PMTL(**same), privacy=privacy, cohort=0.5)
    assert np.allclose(models(one), models(other), atol=1e-5)
    third = run(federation.related(blocks([12])), RelatedPMTL(**same), privacy=privacy, cohort=0.5)
    assert np.allclose(models(third), models(other), atol=1e-5)


def test_one_cluster_has_the_noise_and_the_epsilon_of_pmtl(make_federation):
    federation, same = make_federation(), {"batch": 6, "clip": 0.4}
    private = {"privacy": Privacy(noise=2.0), "cohort": 0.5}
    one = run(federation.clustered(["all"] * 12), RelatedPMTL(**same), **private)
    other = run(federation, PMTL(**same), **private)
    assert np.allclose(models(one), models(other), atol=1e-4)  # the same noise, draw by draw
    two = run(federation.clustered(["a"] * 5 + ["b"] * 7), RelatedPMTL(**same), **private)
    assert one.guarantee.epsilon == two.guarantee.epsilon == other.guarantee.epsilon
    assert "taken to be public (2 clusters)" in " ".join(two.guarantee.assumptions)


@pytest.mark.slow
def test_clusters_do_not_hear_each_other(make_federation):
    """Each cluster is PMTL on its own members."""
    federation = make_federation()
    groups = ["a"] * 5 + ["b"] * 7
    same = {"pull": 0.7, "lr": 0.1, "local_steps": 1, **FREE}
    finished = run(federation.clustered(groups), RelatedPMTL(**same), rounds=1200)
    hessians, rights = quadratics(federation)
    for members in (range(5), range(5, 12)):
        expected = solve(hessians[members], rights[members], 0.7 * blocks([len(members)]))
        assert close(models(finished)[list(members)], expected)


def solve(hessians: np.ndarray, rights: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """argmin Σ l_k(w_k) + ½ tr(W Ω Wᵀ) for quadratic losses: one linear system."""
    tasks, size = rights.shape
    system = np.kron(omega, np.eye(size))
    for k, hessian in enumerate(hessians):
        system[k * size : (k + 1) * size, k * size : (k + 1) * size] += hessian
    return np.linalg.solve(system, rights.reshape(-1)).reshape(tasks, size)


@pytest.mark.slow
def test_a_fixed_omega_converges_to_its_closed_form(make_federation):
    federation, pull = make_federation(), 0.9
    signs = np.array([1.0, -0.5] * 6)
    omega = np.eye(12) - 0.8 * np.outer(signs, signs) / (signs @ signs)
    method = RelatedPMTL(pull=pull, lr=0.1, local_steps=1, **FREE)
    finished = run(federation.related(omega), method, rounds=1200)
    assert close(models(finished), solve(*quadratics(federation), pull * omega))


def test_naive_publishes_every_model_with_undivided_noise(make_federation):
    federation = make_federation()
    quiet = run(federation, NaiveDP(pull=0.0, batch=6, clip=math.inf))
    alone = run(federation, Local(batch=6))
    assert np.allclose(models(quiet), models(alone), atol=1e-5)
    noisy = run(federation, NaiveDP(pull=0.0, clip=0.01), privacy=Privacy(noise=50.0), rounds=1)
    spread = float(np.std(noisy.simulation.board["models"].numpy()))
    assert 0.4 < spread < 0.6  # noise 50 × clip 0.01, not divided by the 12 tasks
    mean = run(federation, PMTL(clip=0.01), privacy=Privacy(noise=50.0), rounds=1)
    assert float(mean.simulation.board["mean"].std()) < 0.15


def test_naive_promises_plain_privacy_only_while_models_stay_as_published(make_federation):
    federation, private = make_federation(), {"privacy": Privacy(noise=5.0)}
    as_published = run(federation, NaiveDP(), **private).guarantee
    assert "even from whoever is handed its own model" in as_published.protects
    tuned = run(federation, NaiveDP(), personalise="vanilla", **private).guarantee
    assert "from all others together" in tuned.protects
    assert as_published.epsilon == tuned.epsilon


def test_fedrep_shares_the_body_only(make_federation):
    """Reference loop in plain PyTorch: heads first with the body fixed, then bodies averaged."""
    federation = make_federation(kind="binary")
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    method = FedRep(lr=0.3, local_steps=2, head_steps=3, **FREE)
    finished = run(federation, method, model=net, rounds=2)
    assert finished.simulation.board["body"].shape == (15,)
    bodies, heads = [p.detach().clone() for p in net[0].parameters()], {}
    for _ in range(2):
        moved = []
        for k in range(len(federation)):
            x, y = federation.train.of(k)
            task = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
            start = heads.get(k, [p.detach() for p in net[2].parameters()])
            with torch.no_grad():
                for p, value in zip(task.parameters(), [*bodies, *start], strict=True):
                    p.copy_(value)
            for step in range(5):
                loss = nn.functional.binary_cross_entropy_with_logits(task(x)[:, 0], y)
                part = task[2] if step < 3 else task[0]
                slopes = torch.autograd.grad(loss, list(part.parameters()))
                with torch.no_grad():
                    for p, slope in zip(part.parameters(), slopes, strict=True):
                        p -= 0.3 * slope
            heads[k] = [p.detach() for p in task[2].parameters()]
            moved.append([p.detach() for p in task[0].parameters()])
        bodies = [torch.stack(same).mean(dim=0) for same in zip(*moved, strict=True)]
    expected = torch.cat([value.reshape(-1) for value in bodies])
    assert torch.allclose(finished.simulation.board["body"], expected, atol=1e-5)
    own = models(finished)
    head = torch.cat([value.reshape(-1) for value in heads[7]]).double().numpy()
    assert np.allclose(own[7][15:], head, atol=1e-5)
    assert np.allclose(own[7][:15], expected.numpy(), atol=1e-5)


def test_fedrep_moves_both_parts_together_without_head_steps(make_federation):
    """One round of the joint split from one start: the body moves as in FedAvg."""
    federation = make_federation(kind="binary")
    same = {"lr": 0.2, "local_steps": 3, **FREE}
    split = run(federation, FedRep(head_steps=0, **same), model="mlp", rounds=1)
    whole = run(federation, FedAvg(**same), model="mlp", rounds=1)
    body = split.simulation.board["body"]
    assert torch.allclose(body, whole.simulation.board["model"][: len(body)], atol=1e-6)


def test_what_cannot_be_is_refused(make_federation):
    federation = make_federation()
    with pytest.raises(TacitError, match="how tasks are related"):
        run(federation, RelatedPMTL())
    with pytest.raises(TacitError, match="has only 1"):
        run(federation, FedRep())
    with pytest.raises(TacitError, match="no cluster"):
        federation.clustered({"task-0": "a"})
    with pytest.raises(TacitError, match="give one each"):
        federation.clustered(["a", "b"])
    with pytest.raises(TacitError, match="Ω is for 4 tasks"):
        federation.related(blocks([4]))
