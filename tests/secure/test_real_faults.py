"""Server processes that are killed (kill -9) in the middle of real jobs, in every phase.

Each time the round ends with the name of the party and without an answer, and after the process was
started again the same round gives what a plain curator gives.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import TacitError
from tacit.methods import FedMTL
from tacit.secure.jobs.fedmtl import FedMTLJob
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import LocalServers
from tests.secure.rounds import Round, apart
from tests.secure.running import assert_nothing_left, wait_for_line

pytestmark = pytest.mark.slow

HOLD = (sys.executable, str(Path(__file__).with_name("hold.py")), "server")
METHOD = FedMTL(threshold=0.3, last_threshold=0.3, min_peers=1)
ROUND = Round.random(3, 4, [5, 4, 6], columns=50)
TASKS = tuple(f"task-{k}" for k in range(4))
PATIENCE = 4.0
SECONDS = 30.0
"""Within which every failure has to be told."""
EVERY_PHASE = (
    "upload", "similarity", "assignment", "weights", "map", "shared layers", "task layers",
)  # fmt: skip
REPLICATED = [(phase, f"server-{i % 3}") for i, phase in enumerate(EVERY_PHASE)]
DEALT = [("similarity", "dealer"), ("map", "server-1"), ("task layers", "dealer")]
"""Servers notice as with three that compute; what differs is that all wait for the dealer."""


@pytest.fixture(scope="module")
def processes():
    clients = (*ROUND.names, *TASKS)
    with LocalServers(3, clients, dealer=True, patience=PATIENCE, command=HOLD) as servers:
        yield servers


@pytest.fixture
def servers(processes):
    """With everybody there, whatever the test before did."""
    for name, process in processes.processes.items():
        if process.poll() is not None:
            processes.restart(name)
    return processes


@contextlib.contextmanager
def killed(servers, name, place, passes=0):
    """Meanwhile this server is killed as soon as it has come to this place; then it comes back."""
    file = servers.folder / f"{name}.hold"
    file.write_text(json.dumps([place, passes]))

    def watch():
        with contextlib.suppress(AssertionError):  # the test sees that nobody was killed
            wait_for_line(servers, name, f"stands at {place}")
            servers.processes[name].kill()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        file.unlink()
    assert servers.processes[name].wait(5) == -9
    servers.restart(name)


def failed(servers, job, secrets):
    """The error of a round that gives nobody anything."""
    begun, outcome = time.monotonic(), None
    with pytest.raises(PartyError, match="nothing was released") as caught:
        outcome = servers.remote.run(job, secrets)
    assert time.monotonic() - begun < SECONDS
    assert outcome is None
    assert_nothing_left(job)
    return caught.value


def mix(**settings) -> FedMTLJob:
    return ROUND.job(METHOD, **settings)


def mixes_as_in_the_clear(servers, **settings):
    outcome = servers.remote.run(mix(**settings), ROUND.secrets(METHOD))
    assert apart(ROUND.models(outcome.answers), ROUND.plain(METHOD)[0]) < 1e-3


def test_somebody_is_like_somebody_so_that_every_phase_counts():
    """Otherwise all clients would get their own models back, whatever servers compute."""
    assert apart(ROUND.plain(METHOD)[0], ROUND.vectors) > 0.05


@pytest.mark.parametrize(("phase", "name"), REPLICATED)
def test_a_server_killed_while_three_compute(servers, phase, name):
    settings = {"trust": "replicated", "bits": 32}
    with killed(servers, name, f"phase {phase}"):
        error = failed(servers, mix(**settings), ROUND.secrets(METHOD))
    assert error.party == name
    mixes_as_in_the_clear(servers, **settings)


@pytest.mark.parametrize(("phase", "name"), DEALT)
def test_a_server_or_the_dealer_killed_while_a_dealer_helps(servers, phase, name):
    settings = {"trust": "dealer", "bits": 64}
    with killed(servers, name, f"phase {phase}"):
        error = failed(servers, mix(**settings), ROUND.secrets(METHOD))
    assert error.party == name
    mixes_as_in_the_clear(servers, **settings)


def test_a_server_killed_after_some_clients_have_their_answer(servers):
    """Then nobody keeps one: all clients repeat the round, or none does."""
    settings = {"trust": "replicated", "bits": 64}
    with killed(servers, "server-1", "sent task layers to client-1"):
        error = failed(servers, mix(**settings), ROUND.secrets(METHOD))
    assert error.party == "server-1"
    mixes_as_in_the_clear(servers, **settings)


def test_a_server_that_is_done_long_before_another_is_not_missed(servers):
    """Of three that compute, the third answers nobody, so it ends first, and leaves."""
    place, file = "phase shared layers", servers.folder / "server-0.hold"
    file.write_text(json.dumps([place, 0]))

    def let_go():
        wait_for_line(servers, "server-0", f"stands at {place}")
        time.sleep(PATIENCE / 2 + 0.7)  # two signs of life later: the first one is still taken
        file.unlink()

    thread = threading.Thread(target=let_go)
    thread.start()
    mixes_as_in_the_clear(servers, trust="replicated", bits=32)
    thread.join()


def add() -> SumJob:
    return SumJob(servers=3, clients=TASKS, size=5, bits=32, bound=1000, noise=1e-9)


NUMBERS = {name: np.arange(5, dtype=np.int64) * (k + 1) - 7 for k, name in enumerate(TASKS)}


@pytest.mark.parametrize("when", ["before", "sent"])
def test_a_server_killed_around_its_noisy_share(servers, when, monkeypatch):
    """Others have sent theirs; without all shares, and all servers' word, nothing is opened."""
    put_together, job = [], add()
    monkeypatch.setattr(SumJob, "combine", lambda self, shares: put_together.append(shares))
    with killed(servers, "server-2", f"{when} noisy share to coordinator"):
        error = failed(servers, job, NUMBERS)
    assert (error.party, put_together) == ("server-2", [])
    for name in ("server-0", "server-1"):  # they are done, and the round is not
        wait_for_line(servers, name, f"job {job.id[:8]} (sum): done")
    monkeypatch.undo()
    again = add()
    opened = again.combine(servers.remote.run(again, NUMBERS).opened)
    assert np.array_equal(opened, sum(NUMBERS.values()))


def booked(folder: Path) -> list[int]:
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["round"] for line in lines]


def test_a_run_whose_server_is_killed_books_nothing_for_the_round_and_resumes(
    servers, make_federation, tmp_path, unaccounted
):
    federation = make_federation(tasks=len(TASKS))
    curator = tacit.Secure(peers=servers.addresses.servers, certificates=str(servers.folder))
    method = tacit.PMTL(local_steps=1, batch=None, clip=3.0)
    given = {
        "privacy": tacit.Privacy(noise=1e-6), "rounds": 3, "baselines": False,
        "personalise": "none",
    }  # fmt: skip

    def train(**more):
        return tacit.train(
            federation, method, curator=curator, out=tmp_path / "run", **given, **more
        )

    with (
        killed(servers, "server-1", "before noisy share to coordinator", passes=1),
        pytest.raises(TacitError, match=r"server-1 .* can be run again"),
    ):
        train()
    assert booked(tmp_path / "run") == [0]
    run = train(resume=True)
    assert booked(tmp_path / "run") == [0, 1, 2]
    assert run.guarantee.releases == 3
    assert run.guarantee.private
    plain = tacit.train(federation, method, seed=0, **given)
    ends = [one.models(torch.arange(len(federation)))[0] for one in (run, plain)]
    assert (ends[0] - ends[1]).abs().max() < 1e-3 * ends[1].abs().max()
