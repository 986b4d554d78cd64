"""`curator=tacit.Secure()`: the same results as one machine, booked before it is opened."""

from __future__ import annotations

import importlib.util
import json
import math

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import TacitError
from tacit.methods import METHODS, OnBillboard
from tacit.privacy import Everyone, Ledger, Release
from tacit.privacy.channel import Channel
from tacit.privacy.moments import Moments
from tacit.randomness import Randomness
from tacit.secure.curator import SecureSum
from tacit.secure.in_turn import InTurn
from tacit.secure.links import PartyError
from tacit.secure.summing import SeededSum, SumJob
from tests.privacy.test_channel import attack
from tests.test_cli import arguments, fail, succeed, table  # noqa: F401

BILLBOARD = [name for name, kind in METHODS.items() if issubclass(kind, OnBillboard)]
QUICK = {"rounds": 2, "seed": 0, "baselines": False, "personalise": "none"}


def secure(tasks=4, servers=3, randomness=None) -> SecureSum:
    names = tuple(f"task {k}" for k in range(tasks))
    return SecureSum(InTurn(), servers, names, randomness or Randomness.of(0))


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
def test_every_method_on_the_billboard_ends_where_one_machine_takes_it(name, make_federation):
    federation = federation_for(name, make_federation)
    given = {"privacy": tacit.Privacy(noise=1e-6), "cohort": 0.7, **QUICK}
    given["model"] = "mlp" if name == "fedrep" else "linear"
    method = METHODS[name](clip=3.0)
    central = tacit.train(federation, method, **given)
    shared = tacit.train(federation, method, curator=tacit.Secure(), **given)
    assert (models(central) - models(shared)).abs().max() < 2e-4 * models(central).abs().max()
    assert not torch.equal(models(central), models(shared))
    booked = shared.simulation.channel.ledger.entries
    assert len(booked) == 2
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


def colluding(monkeypatch, *, honest=1.0):
    """All servers but the first know what they drew and take it off again."""
    draw = SeededSum.normal

    def known(self, index):
        return draw(self, index) * honest if index == 0 else np.zeros(self.size)

    monkeypatch.setattr(SeededSum, "normal", known)


def test_attack_the_opened_sum_with_all_servers_but_one(monkeypatch):
    colluding(monkeypatch)
    promised, proved = attack(noise=1.0, runs=3000, curator=secure(servers=2))
    assert 0.3 * promised < proved <= promised


def test_attack_succeeds_when_the_honest_server_halves_its_noise(monkeypatch):
    colluding(monkeypatch, honest=0.5)
    promised, proved = attack(noise=1.0, runs=6000, curator=secure(servers=2))
    assert proved > promised


def test_without_clipping_a_task_is_stopped_at_its_own_door(monkeypatch):
    """The bound of the job catches what neither the channel nor the curator clipped."""
    monkeypatch.setattr("tacit.privacy.bounds.ROUNDING", -1e4)
    unbounded = secure()
    collection = channel(curator=unbounded).open(0, 1)
    collection.add(torch.full((1, 2), 1e3), torch.tensor([1]))
    first = collection.publishable(2)
    assert float(first.norm()) < 6  # the curator clips again, in double precision
    monkeypatch.setattr(
        "tacit.secure.curator.quantised",
        lambda vector, grid: np.trunc(vector * grid.steps).astype(np.int64),
    )
    again = channel(curator=unbounded).open(0, 1)
    again.add(torch.full((1, 2), 1e3), torch.tensor([1]))
    with pytest.raises(TacitError, match="bound the contribution first"):
        again.publishable(2)


SECURE = tacit.Secure()
NOISY = tacit.Privacy(noise=1.0)


@pytest.mark.parametrize(
    ("method", "curator", "privacy", "sentence"),
    [
        (tacit.PMTL(), SECURE, None, "servers open sums with noise only"),
        (tacit.PMTL(), SECURE, tacit.Privacy(noise=0.0), "servers open sums with noise only"),
        (tacit.PMTL(), tacit.Secure(trust="dealer"), NOISY, "a sum needs no products"),
        (tacit.PMTL(), tacit.Secure(bits=32), NOISY, "sums choose their own ring"),
        (tacit.PMTL(), "secure", NOISY, r"pass tacit.Secure\(...\)"),
        (tacit.Local(), SECURE, NOISY, "nothing leaves the tasks of Local"),
        (tacit.FedAMP(), SECURE, None, "does not run on shares"),
        (
            tacit.MPMTL(mechanism="wishart"), SECURE, tacit.Privacy(epsilon=1.0),
            "no noise that servers add",
        ),
    ],
)  # fmt: skip
def test_what_servers_cannot_do_is_refused(method, curator, privacy, sentence, make_federation):
    with pytest.raises(TacitError, match=sentence):
        tacit.train(make_federation(), method, curator=curator, privacy=privacy, **QUICK)


def peers(**more):
    given = {"peers": ("a:1", "b:2", "c:3"), "certificates": "nowhere"}
    return given | more


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"servers": 1}, "at least 2"),
        ({"servers": 2.5}, "at least 2"),
        ({"trust": "nobody"}, "choose dealer or replicated"),
        ({"bits": 16}, "choose 32 or 64"),
        (peers(peers="a:1"), "tuple of addresses"),
        (peers(peers=("a", "b:2", "c:3")), "write host:port"),
        (peers(servers=2), "3 peers for 2 servers"),
        (peers(certificates=None), "give certificates=DIR"),
        ({"certificates": "here"}, "give peers too"),
        ({"dealer": "d:4"}, "give peers too"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(TacitError, match=sentence):
        tacit.Secure(**settings)


def test_server_processes_need_no_seed_no_dealer_and_names_for_certificates(
    make_federation, tmp_path
):
    def refused(sentence, seed=None, federation=None, **more):
        given = QUICK | {"seed": seed, "privacy": NOISY, "out": tmp_path / "out"}
        curator = tacit.Secure(**peers(certificates=str(tmp_path)) | more)
        with pytest.raises(TacitError, match=sentence):
            tacit.train(federation or make_federation(), tacit.PMTL(), curator=curator, **given)
        assert not (tmp_path / "out").exists()

    refused("no seed can decide", seed=0)
    refused("needs no dealer", dealer="d:4")
    refused("no folder of certificates", certificates=str(tmp_path / "none"))
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    strange = tacit.data.from_arrays(rows, rows[:, 0], np.repeat(["a/b", "dealer"], 20))
    refused("cannot be the name of a client", federation=strange)
    run = tacit.train(strange, tacit.PMTL(), curator=SECURE, privacy=NOISY, **QUICK)
    assert run.guarantee.releases == 2  # simulated parties may be called anything


def test_without_the_extra_packages_it_says_what_to_install(make_federation, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "numba" else find(name)
    )
    curator = tacit.Secure()  # importing and describing needs nothing
    with pytest.raises(TacitError, match=r"needs numba: pip install 'tacit\[secure\]'"):
        tacit.train(make_federation(), tacit.PMTL(), curator=curator, privacy=NOISY, **QUICK)


def test_the_guarantee_says_who_is_trusted(make_federation, tmp_path):
    privacy = tacit.Privacy(epsilon=2.0, delta=1e-3)
    given = QUICK | {"privacy": privacy, "out": tmp_path, "baselines": True}
    run = tacit.train(make_federation(), tacit.PMTL(), curator=tacit.Secure(), **given)
    promise = run.guarantee
    assert promise.epsilon <= 2.0
    for words in (
        "secret-shared among 3 servers that follow the protocol",
        "up to 2 together see nothing of a task but the noisy sums (no dealer is needed)",
        "the noise of one honest server alone gives this ε",
        "simulated by one process, which sees everything",
        "personal models stay with their tasks",
    ):
        assert words in promise.trusts
    assert "the machine that sums" not in promise.trusts
    assert "by noise that one of 3 servers adds alone" in str(promise)
    written = json.loads((tmp_path / "result.json").read_text())
    about = written["guarantee"]["curator"]
    assert (about["kind"], about["servers"]) == ("secure", 3)
    assert written["config"]["curator"]["servers"] == 3
    assert "secret-shared among 3 servers" in (tmp_path / "report.html").read_text()
    central = tacit.train(make_federation(), tacit.PMTL(), **QUICK, privacy=privacy)
    assert central.guarantee.to_json()["curator"] is None
    two = secure(servers=2).about.words
    assert "neither sees anything of a task" in two


def test_the_command_line_takes_a_curator(table, tmp_path):  # noqa: F811
    words = arguments(table, tmp_path / "a", curator="secure", servers=2)
    result = json.loads(succeed([*words, "--json", "--no-baselines"]))
    assert result["guarantee"]["curator"]["servers"] == 2
    assert json.loads((tmp_path / "a" / "config.json").read_text())["curator"]["servers"] == 2
    assert "add --curator secure" in fail(arguments(table, tmp_path / "b", servers=2))
    assert "'secure'" in fail(arguments(table, tmp_path / "c", curator="magic"))
    sentence = fail(arguments(table, tmp_path / "d", curator="secure", trust="replicated"))
    assert "a sum needs no products" in sentence
    assert "3 peers" in fail(
        arguments(table, tmp_path / "e", curator="secure", peers="a:1,b:2,c:3", servers=2,
                  certificates=tmp_path)
    )  # fmt: skip
    file = tmp_path / "tune.toml"
    file.write_text(
        f'[data]\nfrom = "{table}"\ntask = "hospital"\ntarget = "outcome"\n'
        '[privacy]\nepsilon = 2\n[curator]\nkind = "secure"\n[tune]\nlr = [0.1, 0.2]\n'
    )
    assert "leave [curator] out" in fail(["tune", str(file)])
