"""A run across silos ends in the models of the simulation, for every method."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy.conduct import conduct
from tacit.deploy.personal import keep_personal
from tacit.deploy.terms import terms_of
from tacit.engine.progress import silent
from tacit.experiment.plan import Plan
from tacit.methods import METHODS
from tacit.report.silo import page
from tests.deploy.direct import Direct, personal, silos_of
from tests.exchange.federations import headed

EXCHANGE = ("fedmtl", "fedamp", "fedfomo", "mocha")
SETTINGS = {
    "pmtl": {"clip_quantile": 0.5},
    "mpmtl": {"clip": 2.0},
    "pfedme": {"local_steps": 2, "inner_steps": 2},
    "fedrep": {"local_steps": 2, "head_steps": 2},
}


def across(federation, method, folder, **settings):
    """The same run by `train` and across silos: both sets of personal models, and the run."""
    model = "mlp" if isinstance(method, tacit.FedRep) else method.usual_model
    plan = Plan(method=method, model=model, **({"cohort": 1.0} | settings))
    terms = terms_of(federation, plan)
    alike = {"model": model, "personalise": "none", "baselines": False}
    run = tacit.train(federation, method, **alike, **settings)
    silos = silos_of(federation, terms, folder)
    done = conduct(terms, folder / "coordinator", Direct(silos))
    expected = run.models(torch.arange(len(federation)))[0]
    return torch.stack([personal(silo) for silo in silos]), expected, run, done


@pytest.mark.parametrize("name", [n for n in METHODS if n not in (*EXCHANGE, "local")])
def test_billboard_methods_end_like_the_simulation(name, make_federation, tmp_path):
    federation = make_federation(tasks=4)
    if name == "related":
        federation = federation.clustered(["a", "a", "b", "b"])
    method = METHODS[name](**SETTINGS.get(name, {}))
    rounds = {"prior": 1, "clusters": 4, "cluster-priors": 4}.get(name, 2)  # every stage once
    settings = dict(rounds=rounds, seed=3, privacy=tacit.Privacy(noise=1.5), cohort=0.8)
    found, expected, run, done = across(federation, method, tmp_path, **settings)
    assert torch.allclose(found, expected, atol=2e-5)
    assert done.guarantee.epsilon == run.guarantee.epsilon
    assert done.guarantee.releases == rounds


@pytest.mark.slow
def test_outcomes_over_time_end_like_the_simulation(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(48, 3)), np.column_stack([rng.exponential(size=48), np.arange(48) % 2])
    about = {"kind": "survival", "cuts": (0.5, 1.0, 2.0), "scale": "none"}
    federation = tacit.data.from_arrays(x, y, np.arange(48) % 4, **about)
    settings = dict(rounds=2, seed=3, privacy=tacit.Privacy(noise=1.5), cohort=0.8)
    found, expected, *_ = across(federation, METHODS["mixed"](), tmp_path, **settings)
    assert torch.allclose(found, expected, atol=2e-5) and found.abs().max() > 0.1


@pytest.mark.parametrize("name", EXCHANGE)
def test_exchange_methods_end_like_the_simulation(name, tmp_path):
    federation = headed()
    found, expected, run, done = across(federation, METHODS[name](), tmp_path, rounds=2, seed=3)
    assert torch.allclose(found, expected, atol=1e-5)
    assert str(done.guarantee) == str(run.guarantee)


def test_without_privacy_and_with_a_server_rule(make_federation, tmp_path):
    publishing = tacit.Publishing(rule="momentum")
    method = tacit.FedAvg(lr=0.2)
    found, expected, _, done = across(
        make_federation(tasks=3), method, tmp_path, rounds=4, seed=1, publishing=publishing
    )
    assert torch.allclose(found, expected, atol=1e-5)
    assert not dataclasses.asdict(done.guarantee)["releases"]


def test_a_silo_knows_its_own_effects_as_the_simulation_does(make_federation, tmp_path):
    federation = make_federation(tasks=4)
    settings = dict(rounds=2, seed=3, privacy=tacit.Privacy(noise=1.5), cohort=0.8)
    method = METHODS["mixed"]()
    terms = terms_of(federation, Plan(method=method, **settings))
    run = tacit.train(federation, method, personalise="none", baselines=False, **settings)
    silos = silos_of(federation, terms, tmp_path)
    conduct(terms, tmp_path / "coordinator", Direct(silos))
    work = silos[1].latest()
    assert work is not None
    report = keep_personal(work, silos[1].own, "none", tmp_path / "kept", silent)
    expected = run.effects(federation.names[1])
    assert report["effects"]["effects"] == pytest.approx(expected.effects, abs=2e-5)
    assert report["effects"]["errors"] == pytest.approx(expected.errors, rel=1e-4)
    assert "What sets this silo apart" in page(report, [])
    counts = [report["verdict"][side] for side in ("gained", "lost", "unchanged")]
    assert sum(counts) == int(federation.test.counts[1])  # it judges by its own rows
    assert report["verdict"]["sentences"][0].split(":")[0] in page(report, [])
