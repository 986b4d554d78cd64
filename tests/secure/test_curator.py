"""`curator=tacit.Secure()`: the same results as one machine, booked before it is opened."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import TacitError
from tacit.methods import METHODS, OnBillboard, TrainedMethod
from tacit.privacy import Everyone, Ledger, Release
from tacit.privacy.channel import Channel
from tacit.privacy.moments import Moments
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import InProcess
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import LocalServers

BILLBOARD = [name for name, kind in METHODS.items() if issubclass(kind, OnBillboard)]
QUICK = {"rounds": 2, "seed": 0, "baselines": False, "personalise": "none"}


def secure(tasks=4, servers=3, randomness=None) -> SecureSum:
    names = tuple(f"task {k}" for k in range(tasks))
    return SecureSum(InProcess(), servers, names, randomness or Randomness.of(0))


def channel(tasks=4, noise=1.0, *, curator=None, **more) -> Channel:
    return Channel(
        Everyone(), tasks, Randomness.of(0), release=Release(Everyone(), noise), clip=0.5,
        curator=curator, **more,
    )  # fmt: skip


def federation_for(name, make_federation, **more):
    found = make_federation(kind="regression", **more)
    return found.clustered(["a", "b"] * 6) if name == "related" else found


def models(run) -> torch.Tensor:
    return run.models(torch.arange(len(run.federation)))[0]


@pytest.mark.parametrize("name", BILLBOARD)
def test_every_method_on_the_billboard_ends_where_one_machine_takes_it(
    name, make_federation, unaccounted
):
    federation = federation_for(name, make_federation)
    given = {"privacy": tacit.Privacy(noise=1e-6), "cohort": 0.7, **QUICK}
    given["model"] = "mlp" if name == "fedrep" else "linear"
    steps = {"local_steps": 1} if issubclass(METHODS[name], TrainedMethod) else {}
    method = METHODS[name](**steps, **({} if name in ("mixed", "additive") else {"clip": 3.0}))
    # Every stage once. Mixed: units, places, lengths, information twice; groups are found in three;
    # additive: units, places, rows, shapes, own.
    more = {"mixed": 5, "additive": 5, "clusters": 4, "cluster-priors": 4}
    releases = given["rounds"] = more.get(name, 2)
    central = tacit.train(federation, method, **given)
    shared = tacit.train(federation, method, curator=tacit.Secure(), **given)
    # Servers have 20 bits of a clip, one machine 30; MP-MTL takes square roots of what is left.
    assert (models(central) - models(shared)).abs().max() < 1e-3 * models(central).abs().max()
    assert not torch.equal(models(central), models(shared))
    booked = shared.simulation.channel.ledger.entries
    assert len(booked) == releases
    assert all(entry["servers"] == 3 and entry["bits"] == 32 for entry in booked)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"quantile": 0.5},
        {"moments": Moments()},
        {"moments": Moments(covariance=0.5, mean=0.3, extra=0.2)},
        {"relation": tacit.data.load("personal-shift", tasks=4).clustered([0, 0, 1, 1]).relation},
    ],
    ids=["mean", "adaptive", "covariance", "moments", "relation"],
)
def test_both_curators_release_the_same_and_adapt_alike(more):
    sent = torch.tensor([[3.0, -1.0, 0.2], [0.1, 0.2, -0.3], [math.nan, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = []
    for curator in (None, secure()):
        one = channel(noise=1e-7, curator=curator, **more)
        collection = one.open(0, 1)
        collection.add(sent[:2], torch.tensor([2, 0]))
        collection.add(sent[2:], torch.tensor([1, 3]))
        found.append((collection.publishable(3), one.clip, one.dropped))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-4)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-5)
    assert found[0][2] == found[1][2] == 1


def test_methods_are_told_the_noise_that_is_there_and_the_ledger_books_one_server():
    tasks, z = 50, 3.0
    one = channel(tasks, z, curator=secure(tasks, servers=4))
    drawn = one.open(0, 1).publishable(40_000)
    assert float(drawn.std()) == pytest.approx(one.noise_at(0) * 0.5, rel=0.02)
    assert one.noise_at(0) == pytest.approx(2 * z / tasks)
    (entry,) = one.ledger.entries
    assert entry["noise_multiplier"] == z
    assert entry["noise_total"] == pytest.approx(2 * z)
    assert (entry["servers"], entry["bits"], entry["grid"]) == (4, 32, 2.0**-20)
    assert "one honest server" in entry["bound"]


def test_whoever_sums_for_itself_says_so_unless_servers_really_are_others():
    assert "simulated by one process, which sees everything" in secure().about.words
    assert "simulated" not in replace(secure(), simulated=False).about.words


def test_noise_of_an_adaptive_clip_is_that_of_one_release():
    """Update and bit come from one vector with noise √P·z alike, and are rescaled apart."""
    one = channel(4, 2.0, curator=secure(), quantile=0.5)
    drawn = one.open(0, 1).publishable(40_000) * 4
    assert float(drawn.std()) == pytest.approx(0.5 * 2 * math.sqrt(3 / 0.95), rel=0.02)


@pytest.mark.parametrize("stage", ["upload", "serve", "conclude"])
def test_a_party_that_fails_leaves_nothing_booked_and_nothing_opened(stage, monkeypatch):
    def fails(self, *args):
        raise PartyError("somebody", f"failed in {stage}")

    opened = []
    monkeypatch.setattr(SumJob, stage, fails)
    monkeypatch.setattr(SumJob, "combine", lambda self, shares: opened.append(shares))
    one = channel(curator=secure())
    collection = one.open(0, 1)
    collection.add(torch.ones(4, 2), torch.arange(4))
    with pytest.raises(PartyError, match="nothing was released"):
        collection.publishable(2)
    assert len(one.ledger) == 0
    assert opened == []


def test_shares_are_put_together_only_when_the_ledger_is_on_disk(tmp_path, monkeypatch):
    path, seen = tmp_path / "ledger.jsonl", []
    combine = SumJob.combine

    def spy(self, shares):
        seen.append(len(path.read_text().splitlines()))
        return combine(self, shares)

    monkeypatch.setattr(SumJob, "combine", spy)
    one = channel(curator=secure(randomness=Randomness()), ledger=Ledger.at(path))
    one.open(0, 2).publishable(2)
    one.open(1, 2).publishable(2)
    assert seen == [1, 2]
    monkeypatch.setattr(Ledger, "book", lambda self, *args, **more: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one.open(2, 3).publishable(2)
    assert seen == [1, 2]


def test_a_run_ends_with_a_lost_party_and_resumes(make_federation, tmp_path, monkeypatch):
    serve, rounds = SumJob.serve, []

    def fails(self, links, index):
        rounds.append(index)
        if len(rounds) == 5:  # the second server, in the second round
            raise PartyError("server-1", "stopped")
        serve(self, links, index)

    given = {
        "privacy": tacit.Privacy(noise=5.0), "rounds": 3, "out": tmp_path, "baselines": False,
        "personalise": "none", "curator": tacit.Secure(),
    }  # fmt: skip
    monkeypatch.setattr(SumJob, "serve", fails)
    with pytest.raises(PartyError, match="can be run again"):
        tacit.train(make_federation(), tacit.PMTL(), **given)
    assert len(Ledger.at(tmp_path / "ledger.jsonl")) == 1
    run = tacit.train(make_federation(), tacit.PMTL(), resume=True, **given)
    assert run.guarantee.releases == 3
    assert run.guarantee.private
    with pytest.raises(TacitError, match="other curator"):
        given["curator"] = tacit.Secure(servers=2)
        tacit.train(make_federation(), tacit.PMTL(), resume=True, **given)


def test_a_seeded_run_repeats_itself_and_servers_differ(make_federation):
    given = {"privacy": tacit.Privacy(noise=2.0), **QUICK}

    def run(servers, seed=0):
        settings = given | {"seed": seed}
        curator = tacit.Secure(servers=servers)
        return models(tacit.train(make_federation(), tacit.PMTL(), curator=curator, **settings))

    assert torch.equal(run(3), run(3))
    assert not torch.equal(run(3), run(2))
    assert not torch.equal(run(3), run(3, seed=1))


def test_without_clipping_a_task_is_stopped_at_its_own_door(monkeypatch):
    """The bound of the job catches what neither the channel nor the curator clipped."""
    monkeypatch.setattr("tacit.privacy.bounds.LONGEST", 1e4)
    unbounded = secure()
    collection = channel(curator=unbounded).open(0, 1)
    collection.add(torch.full((1, 2), 1e3), torch.tensor([1]))
    first = collection.publishable(2)
    assert float(first.norm()) < 6  # the grid clips again
    monkeypatch.setattr(
        "tacit.privacy.grid.Grid.integers",
        lambda grid, vectors: np.trunc(vectors * grid.steps).astype(np.int64),
    )
    again = channel(curator=unbounded).open(0, 1)
    again.add(torch.full((1, 2), 1e3), torch.tensor([1]))
    with pytest.raises(TacitError, match="bound the contribution first"):
        again.publishable(2)


def test_server_processes_sum_for_a_run(make_federation, tmp_path, unaccounted):
    """Over TLS, with noise that each process draws: what is promised is what one machine promises.

    Almost no noise, so that the result can be compared.
    """
    federation = make_federation(tasks=4)
    given = {
        "privacy": tacit.Privacy(noise=1e-6), "rounds": 2, "baselines": False,
        "personalise": "none", "out": tmp_path / "run",
    }  # fmt: skip
    method = tacit.PMTL(local_steps=1, batch=None, clip=3.0)
    with LocalServers(2, federation.names) as servers:
        curator = tacit.Secure(
            servers=2, peers=servers.addresses.servers, certificates=str(servers.folder)
        )
        run = tacit.train(federation, method, curator=curator, **given)
    assert "simulated" not in run.guarantee.trusts
    assert not run.guarantee.seeded
    central = tacit.train(federation, method, **given | {"out": tmp_path / "central"})
    assert (models(central) - models(run)).abs().max() < 2e-4 * models(central).abs().max()
