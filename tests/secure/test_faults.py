"""Parties and networks that fail: the round ends soon and names who, and the next one succeeds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket

import numpy as np
import pytest

from tacit.errors import TacitError
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import LocalServers
from tacit.secure.net.tls import Identity
from tests.secure.adding import PHASES, AddJob
from tests.secure.proxy import Proxy, at, honest
from tests.secure.running import (
    PATIENCE,
    assert_nothing_left,
    fail,
    local_servers,
    make_job,
    meanwhile,
    secrets_of,
    succeed,
    wait_for_line,
)

pytestmark = pytest.mark.slow
LATE = 100_000
"""Bytes after which only an upload, or an exchange of servers, is still going on."""
LARGE = 40_000
"""Words of such an upload."""


class ThroughProxies(LocalServers):
    """Clients reach server-1 through `near`, and so does server-0 through `between`."""

    def __enter__(self):
        target = self.addresses.servers[1]
        self.near, self.between = Proxy(target), Proxy(target)
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        for proxy in (self.near, self.between):
            proxy.__exit__()

    def peers_of(self, name):
        first, second, third = self.addresses.servers
        led = self.between.address if name == "server-0" else second
        return Addresses((first, led, third), self.addresses.dealer)

    @property
    def remote(self):
        first, _, third = self.addresses.servers
        return dataclasses.replace(super().remote, addresses=(first, self.near.address, third))


@pytest.fixture(scope="module")
def processes():
    with local_servers(ThroughProxies) as servers:
        yield servers


@pytest.fixture
def servers(processes):
    """After every test the servers that survived, with those that did not started again, work."""
    yield processes
    processes.near.tamper = processes.between.tamper = honest
    for name, process in processes.processes.items():
        if process.poll() is not None:
            processes.restart(name)
    succeed(processes, dealt=True)


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_is_killed(servers, phase):
    job = make_job(hold=phase)
    process = servers.processes["server-1"]
    thread = meanwhile(servers, job, "server-1", process.kill)
    error = fail(servers.remote, job)
    thread.join()
    process.wait()
    assert error.party == "server-1"
    assert "closed the connection" in error.what
    assert servers.processes["server-0"].poll() is None


def test_a_dealer_that_is_killed(servers):
    job = make_job(hold="deal", dealt=True)
    process = servers.processes["dealer"]
    thread = meanwhile(servers, job, "dealer", process.kill)
    error = fail(servers.remote, job)
    thread.join()
    process.wait()
    assert error.party == "dealer" and "where 'mask' was expected" in error.what


def test_a_server_that_is_not_there(servers):
    process = servers.processes["server-2"]
    process.kill()
    process.wait()
    error = fail(servers.remote, make_job())
    assert error.party == "server-2" and "cannot be reached at 127.0.0.1:" in error.what


def test_a_server_that_stands_still(servers):
    job = make_job(hold="exchange", seconds=1, held=0)  # whose answers clients read first
    process = servers.processes["server-0"]
    thread = meanwhile(servers, job, "server-0", lambda: os.kill(process.pid, signal.SIGSTOP))
    try:
        error = fail(servers.remote, job)
    finally:
        thread.join()
        os.kill(process.pid, signal.SIGCONT)
    assert error.party == "server-0"
    assert f"sent nothing for {PATIENCE:g} s where" in error.what


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("label", "sent 'something' of 8000 bytes where 'partial' of 8000 was expected"),
        ("length", "sent 'partial' of 8008 bytes where 'partial' of 8000 was expected"),
        ("own", "stopped: this number is too large"),
        ("crash", "stopped: ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.parametrize("held", [0, 1])
def test_a_server_that_does_something_else(servers, fault, sentence, held):
    job = make_job(fault=fault, held=held)
    with pytest.raises(PartyError) as caught:
        servers.remote.run(job, secrets_of(job))
    assert (caught.value.party, caught.value.what) == (f"server-{held}", sentence)


def flipped(piece):
    return piece[:-1] + bytes([piece[-1] ^ 1])


def swallowed(piece):
    return b""


def cut(piece):
    return None


def halved(piece):
    """Leaves bytes out in the middle, and goes on."""
    return piece[: len(piece) // 2]


@pytest.mark.parametrize("change", [flipped, halved, cut])
@pytest.mark.parametrize("where", ["near", "between"])
def test_bytes_that_are_changed_or_lost_on_the_way(servers, where, change):
    getattr(servers, where).tamper = at(LATE, change)
    error = fail(servers.remote, make_job(words=LARGE))
    if change is cut:  # both sides see the same, and cannot know who it was
        assert error.what.startswith("closed the connection")
    else:
        assert "sent bytes that were changed on the way" in error.what
        assert error.party in (("ann", "bob", "cem") if where == "near" else ("server-0",))


def test_bytes_of_a_client_that_never_arrive(servers):
    servers.near.tamper = at(LATE, swallowed)
    error = fail(servers.remote, make_job(words=LARGE))
    assert f"for {PATIENCE:g} s" in error.what
    assert error.party in ("ann", "bob", "cem")


def test_bytes_of_a_server_that_never_arrive(servers):
    servers.between.tamper = at(LATE, swallowed)
    error = fail(servers.remote, make_job(words=LARGE))
    assert error.party == "server-0"  # which believes that it is done
    assert error.what == "closed the connection where 'partial' was expected"


def test_bytes_of_an_earlier_connection_mean_nothing(servers):
    servers.near.flows.clear()
    succeed(servers)
    recorded = [bytes(flow.seen) for flow in servers.near.flows if flow.to_server]
    assert len(recorded) == 5  # a job, its coordinator and its clients
    host, port = servers.addresses.servers[1].split(":")
    for sent in recorded:
        before = servers.log("server-1").count("refused 127.0.0.1: it ")
        with socket.create_connection((host, int(port)), 5) as sock, contextlib.suppress(OSError):
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
        wait_for_line(servers, "server-1", "refused 127.0.0.1: it ", before + 1)


class Rogue(AddJob):
    """One client uploads something else than the others."""

    def upload(self, links, secret):
        if links.name == "bob":
            self.instead(links, secret)
        else:
            super().upload(links, secret)


class WrongLabel(Rogue):
    def instead(self, links, secret):
        links.send("server-1", "share 2", secret)


class TooLong(Rogue):
    def instead(self, links, secret):
        links.send("server-1", "share", np.zeros(self.words + 1, np.uint64))


class Garbage(Rogue):
    def instead(self, links, secret):
        links._outgoing["server-1"].sock.write((b"\0" * 1000,), None)


class OtherJob(Rogue):
    def instead(self, links, secret):
        links._outgoing["server-1"].job = b"another job's id"
        AddJob.upload(self, links, secret)


class Silent(Rogue):
    def instead(self, links, secret):
        pass


class Leaves(Rogue):
    def instead(self, links, secret):
        raise TacitError("this model has run away")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (WrongLabel, "sent 'share 2' of 8000 bytes where 'share' of 8000 was expected"),
        (TooLong, "sent 'share' of 8008 bytes where 'share' of 8000 was expected"),
        (Garbage, "sent bytes that are not a message where 'share' was expected"),
        (OtherJob, "sent a message of another job where 'share' was expected"),
        (Silent, f"sent nothing for {PATIENCE:g} s where 'share' was expected"),
    ],
)
def test_a_client_that_does_something_else(servers, kind, sentence):
    error = fail(servers.remote, make_job(kind))
    assert (error.party, error.what) == ("bob", sentence)


def test_a_client_that_cannot_take_part_says_why(servers):
    job = make_job(Leaves)
    with pytest.raises(TacitError, match=r"^this model has run away$"):
        servers.remote.run(job, secrets_of(job))
    assert_nothing_left(job)
    for name in job.names:  # they noticed by themselves
        wait_for_line(servers, name, f"job {job.id[:8]} (add): failed, bob closed the connection")


def test_a_client_that_never_connects(servers):
    job = make_job()
    remote = servers.remote
    remote._identities["bob"] = Identity(servers.folder, "ann")  # shows the wrong certificate
    error = fail(remote, job)
    assert error.party in ("server-0", "server-1", "server-2", "ann", "bob")
    assert "connected already" in str(error) or "did not connect within" in str(error)
