"""Servers as processes: what they do, and whom they do not let in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import TacitError
from tacit.secure.jobs.job import InProcess
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.channel import MAGIC
from tacit.secure.net.daemon import Daemon
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import LocalServers
from tacit.secure.net.remote import Remote, take_part
from tacit.secure.net.tls import Identity
from tests.secure.adding import AddJob
from tests.secure.running import (
    CLIENTS,
    SERVE,
    fail,
    local_servers,
    make_job,
    meanwhile,
    raw_frame,
    secrets_of,
    succeed,
    wait_for_line,
)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The same names, by another authority."""
    folder = tmp_path_factory.mktemp("foreign")
    make_certificates(folder, 3, CLIENTS)
    return folder


@pytest.fixture(scope="module")
def servers():
    with local_servers() as servers:
        yield servers


@pytest.fixture(autouse=True)
def survives(request):
    """Whatever a test does to the servers, they go on."""
    yield
    if "servers" in request.fixturenames:
        succeed(request.getfixturevalue("servers"))


def test_processes_give_what_threads_give(servers):
    job = make_job(dealt=True)
    there = servers.remote.run(job, secrets_of(job))
    here = InProcess().run(job, secrets_of(job))
    assert np.array_equal(there.opened, here.opened)
    assert there.sent == here.sent
    told = there.statistics["server-0"]
    assert told["sent_bytes"] == {name: 8000 for name in told["sent_bytes"]}
    assert set(told["sent_bytes"]) == {"server-1", "server-2", *CLIENTS, "coordinator"}
    assert told["sent_messages"] == 6
    assert 0 < told["seconds"] < 5 and 10 << 20 < told["peak_memory"] < 1 << 30
    assert f"job {job.id[:8]} (add): done in" in servers.log("server-0")


def jobs_that_ended(servers, end):
    text = (servers.folder / "server-0.prom").read_text()
    (line,) = [line for line in text.splitlines() if f'end="{end}"' in line]
    assert line.startswith('tacit_server_jobs_total{party="server-0",')
    return float(line.split()[-1])


def test_jobs_are_counted_for_prometheus(servers):
    done, refused = jobs_that_ended(servers, "done"), jobs_that_ended(servers, "refused")
    job = make_job()
    servers.remote.run(job, secrets_of(job))
    fail(servers.remote, job)  # it was here before
    until = time.monotonic() + 10  # counted after the coordinator was told
    while jobs_that_ended(servers, "refused") == refused and time.monotonic() < until:
        time.sleep(0.01)
    assert jobs_that_ended(servers, "refused") == refused + 1
    assert jobs_that_ended(servers, "done") >= done + 1


def test_large_messages(servers):
    outcome = succeed(servers, words=300_000)
    assert outcome.sent["clients"] == 3 * 3 * 300_000 * 8


def test_answers_may_take_longer_than_the_patience(servers):
    job = make_job(hold="answer", seconds=1.5)
    remote = servers.remote
    remote.patience = 1.0  # of coordinator and clients; servers have more
    assert set(remote.run(job, secrets_of(job)).answers) == set(CLIENTS)


def test_a_job_whose_answers_differ_each_time_works_once(servers):
    job = make_job()
    servers.remote.run(job, secrets_of(job))
    error = fail(servers.remote, job)
    assert "this job was here before, and is not repeated" in str(error)
    servers.restart("server-0")  # which has not forgotten
    assert "server-0 refused the job: “this job was here" in str(fail(servers.remote, job))


def test_servers_that_were_told_of_another_job_let_no_client_in(servers):
    """A coordinator tells servers of no noise and one client, and the client of what was agreed."""
    agreed = SumJob(servers=3, clients=CLIENTS, size=4, bits=32, bound=1000, noise=5000.0)
    told = replace(agreed, clients=("ann",), noise=1e-9)
    assert told.id == agreed.id and told.digest != agreed.digest
    tried = []

    def ann():
        identity = Identity(servers.folder, "ann")
        with pytest.raises(PartyError, match="asks for a job that is not open here") as caught:
            take_part(agreed, np.arange(4), identity, servers.addresses, 2.0)
        tried.append(caught.value)
        raise caught.value

    with pytest.raises(PartyError):
        servers.remote.run(told, {}, elsewhere=ann)
    assert tried


def test_one_job_at_a_time_and_the_running_one_goes_on(servers):
    job = make_job(hold="exchange", seconds=2)
    refused = []

    def second():
        with pytest.raises(PartyError) as caught:
            succeed(servers)
        refused.append(caught.value)

    thread = meanwhile(servers, job, "server-1", second)
    servers.remote.run(job, secrets_of(job))
    thread.join()
    assert f"is busy with another job {job.id[:8]} (add): try later" in str(refused[0])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"kind": "unknown"}, "jobs of kind 'unknown' are not known: use one of"),
        ({"id": "short"}, "cannot be the id of a job"),
        ({"id": 7}, "id of a job must be text"),
        ({"nonsense": 1}, "the job is not understood"),
        ({"servers": 2}, "check --peers"),
        ({"servers": 10**9}, "a job needs 1 to 100 servers"),
        ({"clients": ["ann", "ann"]}, "no two the same"),
        ({"words": 10**30}, "words of a job has more than 64 bits"),
        ({"words": "ann"}, "words of a job must be a whole number"),
        ({"words": True}, "words of a job must be a whole number"),
        ({"kind": "x" * 10**6}, "jobs of kind 'xxx"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(servers, changed, sentence):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json() | changed, 2)
    assert sentence in channel.read_json("answer", 5)["refused"]
    channel.close()


def coordinator(servers, name="coordinator"):
    address = servers.addresses.of("server-1")
    identity = Identity(servers.folder, name)
    return identity.connect(address, "server-1", {"role": "job"}, 5)


def test_only_the_coordinator_starts_jobs(servers):
    for name in ("ann", "server-0", "dealer"):
        with pytest.raises(PartyError, match=f"{name} may not start jobs"):
            coordinator(servers, name)


def test_a_coordinator_that_leaves_frees_the_servers_at_once(servers):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json(), 2)
    assert channel.read_json("answer", 2) == {}
    channel.write_json("start", {}, 2)
    channel.close()
    begun = time.monotonic()
    succeed(servers)
    assert time.monotonic() - begun < 1.5


def test_who_takes_no_part_is_refused(servers):
    job = make_job()
    channel = coordinator(servers)
    channel.write_json("job", job.to_json() | {"clients": ["ann", "bob"]}, 2)
    assert channel.read_json("answer", 2) == {}
    hello = {"role": "link", "job": replace(job, clients=("ann", "bob")).digest}
    address = servers.addresses.of("server-1")
    try:
        with pytest.raises(PartyError, match="refused cem: “cem takes no part in this job”"):
            Identity(servers.folder, "cem").connect(address, "server-1", hello, 2)
        Identity(servers.folder, "ann").connect(address, "server-1", hello, 2).close()
        with pytest.raises(PartyError, match="ann is connected already"):
            Identity(servers.folder, "ann").connect(address, "server-1", hello, 2)
        other = hello | {"job": "0" * 32}
        with pytest.raises(PartyError, match="bob asks for a job that is not open here"):
            Identity(servers.folder, "bob").connect(address, "server-1", other, 2)
    finally:
        channel.close()


def test_certificates_of_another_authority_are_refused_on_both_sides(servers, foreign):
    with pytest.raises(PartyError, match="not signed by this consortium's authority"):
        Remote(servers.addresses.servers, None, foreign, 3).run(make_job(), {})
    # A client that would trust anybody is not let in either.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(foreign / "ann.pem")
    refused_with(servers, context, "its certificate was not signed by this consortium's authority")


def test_a_connection_without_a_certificate_is_refused(servers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    refused_with(servers, context, "peer did not return a certificate")


def test_older_tls_is_refused(servers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(servers.folder / "ann.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    refused_with(servers, context, "unsupported protocol")


def refused_with(servers, context, sentence):
    host, port = servers.addresses.of("server-1").split(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), 2) as plain,
        context.wrap_socket(plain) as sock,
    ):
        assert not sock.recv(1)
    wait_for_line(servers, "server-1", sentence)
    line = next(line for line in servers.log("server-1").splitlines() if sentence in line)
    assert line.startswith("refused 127.0.0.1: ")


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" * 100, b""])
def test_garbage_in_place_of_tls_is_refused(servers, sent):
    host, port = servers.addresses.of("server-1").split(":")
    before = servers.log("server-1").count("refused 127.0.0.1")
    with socket.create_connection((host, int(port)), 2) as sock, contextlib.suppress(OSError):
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1000):
            pass
    wait_for_line(servers, "server-1", "refused 127.0.0.1", before + 1)


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        raw_frame(number=0, label=b"hello", length=1 << 60, payload=b""),
        raw_frame(number=0, label=b"hello", length=2, payload=b"[]"),
        MAGIC,
    ],
)
def test_garbage_in_place_of_a_greeting_is_refused(servers, sent):
    host, port = servers.addresses.of("server-1").split(":")
    context = Identity(servers.folder, "ann")._outgoing
    before = servers.log("server-1").count("ended the connection with 127.0.0.1: ann")
    with context.wrap_socket(socket.create_connection((host, int(port)), 2)) as sock:
        sock.sendall(sent)
        socket.socket.shutdown(sock, socket.SHUT_WR)
        with contextlib.suppress(OSError):
            assert not sock.recv(1)
    wait_for_line(servers, "server-1", "ended the connection with 127.0.0.1: ann", before + 1)


def test_a_job_for_other_servers_or_clients_without_certificates_is_not_begun(servers):
    with pytest.raises(TacitError, match="for 2 servers, but 3 are given"):
        servers.remote.run(AddJob(servers=2, clients=("ann",)), {})
    with pytest.raises(TacitError, match=r"eve\.pem is missing"):
        servers.remote.run(AddJob(servers=3, clients=("eve",)), {})


def test_a_server_needs_no_torch():
    code = "import serve, sys, tacit.secure.net.daemon; sys.exit('torch' in sys.modules)"
    folder = SERVE[1].removesuffix("/serve.py")
    assert subprocess.run([sys.executable, "-c", code], cwd=folder).returncode == 0


def test_the_command_starts_and_ends():
    with LocalServers(1, ["ann"]) as servers:
        process = servers.processes["server-0"]
        assert servers.log("server-0") == f"server-0 listens on {servers.addresses.servers[0]}\n"
        process.terminate()
        assert process.wait(5) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--party", "3", "--peers", "a:1,b:2"], "server-3 has no address"),
        (["--party", "x", "--peers", "a:1"], "--party x: give the number"),
        (["--party", "dealer", "--peers", "a:1"], "dealer has no address"),
        (["--party", "0", "--peers", "a"], "'a' is not an address: write host:port"),
        (["--party", "0", "--peers", "a:1", "--consortium", "nowhere.toml"], "nowhere.toml"),
        (["--party", "1", "--peers", "a:1,b:70000"], "'b:70000' is not an address"),
    ],
)
def test_wrong_options_are_one_sentence(foreign, options, sentence):
    told = CliRunner().invoke(app, ["server", *options, "--certificates", str(foreign)])
    assert isinstance(told.exception, TacitError) and sentence in str(told.exception)


def test_an_address_that_is_taken_or_elsewhere_is_named(servers):
    for address in (servers.addresses.servers[0], "192.0.2.1:9"):
        daemon = Daemon("server-0", Addresses((address,)), servers.folder)
        with pytest.raises(TacitError, match=f"server-0 cannot listen on {address}"):
            daemon.run()
