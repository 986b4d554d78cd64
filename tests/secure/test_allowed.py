"""A server that holds the consortium's file does what was agreed, so often, and nothing else."""

from __future__ import annotations

import dataclasses
import stat

import numpy as np
import pytest

from tacit.deploy.agreement import Agreement
from tacit.deploy.servers import allowed_by, sum_job
from tacit.deploy.terms import agreed_noise
from tacit.errors import TacitError
from tacit.secure.jobs.fedmtl import FedMTLJob
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.daemon import Daemon
from tacit.secure.net.memory import Begun, keep_secret

SILOS = ("north", "east", "south")
TEXT = """
[consortium]
name = "heart"
silos = ["north", "east", "south"]
[data]
target = "disease"
kind = "binary"
labels = ["0", "1"]
[data.columns]
age = { range = [0, 120] }
[method]
name = "pmtl"
[privacy]
epsilon = 2
[curator]
servers = 3
retries = 1
[run]
rounds = 4
"""
EXCHANGE = TEXT.replace("[privacy]\nepsilon = 2\n", "").replace('"pmtl"', '"fedmtl"')
EXCHANGE = EXCHANGE.replace("retries = 1", 'trust = "replicated"')


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, 3, SILOS)
    return folder


@pytest.fixture
def terms(tmp_path):
    def read(text=TEXT):
        (tmp_path / "consortium.toml").write_text(text)
        return Agreement.read(tmp_path / "consortium.toml").terms

    return read


@pytest.fixture
def server(certificates, tmp_path):
    """A server that was just started, in a folder that it finds again."""
    for name in ("ca.pem", "server-0.pem"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())

    started = []

    def start(terms, runs=1):
        addresses = Addresses(("a:1", "b:1", "c:1"))
        started.append(Daemon("server-0", addresses, tmp_path, allowed=allowed_by(terms, runs)))
        return started[-1]

    yield start
    for daemon in started:
        daemon._woken.close()
        daemon._waker.close()


def begin(daemon, job):
    """What the coordinator's word does; the job is over at once."""
    try:
        daemon._open(job)
    finally:
        daemon._session = None


def honest(terms, **changes):
    return sum_job(3, 3, **({"clients": SILOS, "size": 2, "noise": agreed_noise(terms)} | changes))[
        0
    ]


def test_agreed_sums_are_done_and_counted_over_restarts(server, terms):
    agreed = terms()
    daemon, jobs = server(agreed), [honest(agreed) for _ in range(5)]
    for number, job in enumerate(jobs):
        begin(daemon, job)
        begin(daemon, job)  # the same one again is no other
        if number == 2:
            daemon = server(agreed)
    with pytest.raises(TacitError, match="5 jobs were agreed, and all of them were begun"):
        begin(server(agreed), honest(agreed))
    begin(server(agreed), jobs[0])
    begin(server(agreed, runs=2), honest(agreed))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"noise": 1e-9}, "was asked for, agreed was"),
        ({"clients": ("north", "mallory")}, "mallory was asked for, which was not agreed"),
        ({"clients": ("north", "north")}, "a job with one client twice"),
    ],
)
def test_what_was_not_agreed_is_refused(server, terms, changes, sentence):
    agreed = terms()
    with pytest.raises(TacitError, match=sentence):
        begin(server(agreed), honest(agreed, **changes))
    louder = honest(agreed, noise=3 * agreed_noise(agreed))
    begin(server(agreed), dataclasses.replace(louder, clients=("north", "east")))
    with pytest.raises(TacitError, match="agreed was"):  # a bound that makes noise look large
        begin(server(agreed), dataclasses.replace(louder, bound=4 * louder.bound))


def test_the_exchange_is_held_to_its_settings(server, terms):
    agreed = terms(EXCHANGE)
    fields = {"servers": 3, "clients": SILOS, "trust": "replicated", "bits": 64, "columns": 3}
    job = FedMTLJob(**fields, heads=1, slots=1, length=2)
    begin(server(agreed), job)
    for changes in ({"min_peers": 1}, {"shared": "everyone"}, {"mixes_heads": "own"}):
        with pytest.raises(TacitError, match=r"was asked for, agreed was (2|similar)"):
            begin(server(agreed), dataclasses.replace(job, **changes))
    with pytest.raises(TacitError, match="is not repeated"):
        begin(server(agreed), job)
    with pytest.raises(TacitError, match="kind 'sum' was asked for, agreed was 'fedmtl'"):
        begin(server(agreed), honest(terms(), noise=2.0))


def test_terms_without_servers_are_no_leave_to_serve(terms):
    with pytest.raises(TacitError, match="agree on no servers"):
        allowed_by(terms(TEXT.replace("[curator]\nservers = 3\nretries = 1\n", "")), 1)


def test_a_secret_is_made_once_and_for_nobody_else(tmp_path):
    secret = keep_secret(tmp_path, "server-0")
    assert secret == keep_secret(tmp_path, "server-0") != keep_secret(tmp_path, "server-1")
    assert stat.S_IMODE((tmp_path / "server-0.secret").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "server-0.secret",
        "server-1.secret",
    ]
    (tmp_path / "server-0.secret").write_bytes(secret[:5])
    with pytest.raises(TacitError, match="has 5 bytes in place of 32"):
        keep_secret(tmp_path, "server-0")


def test_a_secret_that_is_lost_is_not_made_anew_while_jobs_may_come_again(tmp_path):
    keep_secret(tmp_path, "server-0")
    Begun(tmp_path, "server-0", "agreement").add("a" * 64)
    (tmp_path / "server-0.secret").unlink()
    with pytest.raises(TacitError, match=r"server-0\.secret is gone, and jobs were begun with it"):
        keep_secret(tmp_path, "server-0")
    assert keep_secret(tmp_path, "server-1")


def test_noise_is_the_same_for_the_same_job_and_independent_for_any_other():
    job, secret = sum_job(3, 3, SILOS, 20_000, 1.0)[0], bytes(32)
    drawn = job.normal(0, secret)
    assert np.array_equal(drawn, job.normal(0, secret))
    assert drawn.std() == pytest.approx(1.0, rel=0.02)
    others = [
        dataclasses.replace(job, clients=SILOS[:2]).normal(0, secret),
        dataclasses.replace(job, noise=2 * job.noise).normal(0, secret),
        dataclasses.replace(job, id="0" * 32).normal(0, secret),
        job.normal(0, bytes([1] * 32)),
    ]
    for other in others:
        assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.04


def test_a_line_that_a_crash_cut_short_counts(tmp_path):
    begun = Begun(tmp_path, "server-0")
    begun.add("a" * 64)
    with (tmp_path / "server-0.jobs").open("a") as file:
        file.write("bbb")
    begun = Begun(tmp_path, "server-0")
    assert len(begun) == 2
    begun.add("c" * 64)
    assert len(Begun(tmp_path, "server-0")) == 3 and "c" * 64 in Begun(tmp_path, "server-0")
