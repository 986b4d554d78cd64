"""Server processes for tests, and rounds on them that should succeed or fail."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tacit.secure.net.channel import HEADER, MAGIC, NO_JOB
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import LocalServers
from tests.secure import adding
from tests.secure.adding import AddJob

PATIENCE = 3.0
CLIENTS = ("ann", "bob", "cem")
SERVE = (sys.executable, str(Path(__file__).with_name("serve.py")), "server")


def local_servers(kind=LocalServers, **options):
    return kind(3, CLIENTS, dealer=True, patience=PATIENCE, command=SERVE, **options)


def make_job(kind=AddJob, **options):
    return kind(servers=3, clients=CLIENTS, **options)


def secrets_of(job):
    return {
        name: np.arange(job.words, dtype=np.uint64) * (k + 1) for k, name in enumerate(job.clients)
    }


def succeed(servers, **options):
    """A fresh round, on the same processes, gives what it should."""
    job = make_job(**options)
    outcome = servers.remote.run(job, secrets_of(job))
    expected = np.arange(job.words, dtype=np.uint64) * 6
    assert np.array_equal(outcome.opened, expected)
    assert all(np.array_equal(outcome.answers[name], expected) for name in job.clients)
    return outcome


def fail(remote, job, within=PATIENCE + 3.0):
    """The error of a round that must fail soon, open nothing and leave nothing behind."""
    concluded = len(adding.concluded)
    begun = time.monotonic()
    with pytest.raises(PartyError) as caught:
        remote.run(job, secrets_of(job))
    assert time.monotonic() - begun < within
    assert len(adding.concluded) == concluded
    assert_nothing_left(job)
    assert "can be run again" in str(caught.value)
    return caught.value


def assert_nothing_left(job):
    """Threads of a round have the names of parties; an open socket would be a warning."""
    assert not {thread.name for thread in threading.enumerate()} & {*job.names, *job.clients}
    assert "coordinator" not in {thread.name for thread in threading.enumerate()}


def raw_frame(magic=MAGIC, job=NO_JOB, number=1, label=b"x", length=4, payload=b"1234"):
    return HEADER.pack(magic, job, number, len(label), length) + label + payload


def wait_for_line(servers, name, text, count=1):
    until = time.monotonic() + 10
    while servers.log(name).count(text) < count:
        assert time.monotonic() < until, servers.log(name)
        time.sleep(0.01)


def meanwhile(servers, job, name, action):
    """Do something once a server is in the phase in which the job holds it."""

    def watch():
        wait_for_line(servers, name, f"{job.id} is in {job.hold}")
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread
