"""Settings of a secure curator: what is refused, what the guarantee says, the command line."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

import tacit
from tacit.errors import TacitError
from tacit.secure.jobs.curator import curated
from tests.test_cli import arguments, fail, succeed, table  # noqa: F401

QUICK = {"rounds": 2, "seed": 0, "baselines": False, "personalise": "none"}
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
        importlib.util, "find_spec", lambda name: None if name == "cryptography" else find(name)
    )
    curator = tacit.Secure()  # importing and describing needs nothing
    with pytest.raises(TacitError, match=r"needs cryptography: pip install 'tacit\[secure\]'"):
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
    two = curated(2, simulated=False).words
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
