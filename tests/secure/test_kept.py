"""Clients stay connected from one job to the next; what happens in between is no failure."""

from __future__ import annotations

import pytest

from tacit.secure.net.remote import Remote
from tacit.secure.net.tls import Identity
from tests.secure.adding import AddJob
from tests.secure.running import (
    CLIENTS,
    assert_nothing_left,
    fail,
    local_servers,
    make_job,
    secrets_of,
    wait_for_line,
)


@pytest.fixture(scope="module")
def servers():
    with local_servers() as running:
        yield running


@pytest.fixture
def shaken(monkeypatch):
    """Who shook hands with whom, except for the coordinator."""
    found = []
    reach = Identity._reach

    def counted(self, address, peer, patience):
        if self.name in CLIENTS:
            found.append((self.name, peer))
        return reach(self, address, peer, patience)

    monkeypatch.setattr(Identity, "_reach", counted)
    return found


def run(remote: Remote, **options):
    job = make_job(**options)
    outcome = remote.run(job, secrets_of(job))
    assert (outcome.opened == secrets_of(job)["ann"] * sum(range(1, 1 + len(job.clients)))).all()
    assert_nothing_left(job)
    return job


def test_the_next_job_needs_no_handshakes(servers, shaken):
    remote = servers.remote
    job = run(remote)
    assert len(shaken) == len(CLIENTS) * len(job.names)
    shaken.clear()
    for _ in range(3):
        run(remote)
    assert not shaken


def test_a_job_that_fails_keeps_nothing(servers, shaken):
    remote = servers.remote
    run(remote)
    fail(remote, make_job(fault="label"))
    shaken.clear()
    job = run(remote)
    assert len(shaken) == len(CLIENTS) * len(job.names)


def test_a_server_that_was_started_again_is_connected_to_again(servers, shaken):
    remote = servers.remote
    job = run(remote)
    shaken.clear()
    servers.restart("server-1")
    run(remote)
    assert sorted(shaken) == [(name, "server-1") for name in CLIENTS]
    assert len(remote._kept) == len(CLIENTS) * len(job.names)


def test_servers_let_go_of_those_who_have_no_part_in_the_next_job(servers, shaken):
    remote = servers.remote
    job = run(remote)
    some = AddJob(servers=3, clients=CLIENTS[:2])
    remote.run(some, secrets_of(some))
    shaken.clear()
    run(remote)
    assert sorted(shaken) == [("cem", name) for name in sorted(job.names)]


def test_a_client_that_leaves_between_jobs_is_no_line_in_the_log(servers):
    before = servers.log("server-0")
    run(servers.remote)  # forgotten at once
    run(servers.remote)
    wait_for_line(servers, "server-0", "done in", before.count("done in") + 2)
    assert "ended the connection" not in servers.log("server-0").removeprefix(before)
