"""Silos that hand shares to real server processes; their messages go without a transport."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy.conduct import conduct
from tacit.deploy.messages import Reply, Request
from tacit.deploy.servers import ToServers
from tacit.deploy.silo import Silo
from tacit.deploy.terms import terms_of
from tacit.engine.tasks import Tasks
from tacit.experiment.plan import Plan
from tacit.secure.net.local import LocalServers
from tests.deploy.direct import Direct, own_of, personal
from tests.exchange.federations import headed


class AtOnce(Direct):
    """Asks all for shares at the same time: servers answer nobody before all have uploaded."""

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        if all(request.kind != "share" for request in requests.values()):
            return super().ask(requests)
        with ThreadPoolExecutor(max(1, len(requests))) as pool:
            asked = {
                task: pool.submit(super(AtOnce, self).ask, {task: request})
                for task, request in requests.items()
            }
            replies: dict[int, Reply] = {}
            for future in asked.values():
                replies |= future.result()
            return replies


@pytest.fixture(scope="module")
def servers():
    names = [f"task-{k}" for k in range(6)]
    with LocalServers(3, names, patience=8) as running:
        yield running


def secure(running, **settings):
    where = {"peers": running.addresses.servers, "certificates": str(running.folder)}
    return tacit.Secure(servers=3, **settings, **where)


def run(federation, method, servers, folder, *, asking=AtOnce, curator=None, **settings):
    curator = curator or secure(servers)
    plan = Plan(
        method=method,
        rounds=settings.pop("rounds"),
        cohort=settings.pop("cohort", 1.0),
        privacy=settings.pop("privacy", None),
        curator=curator,
    )
    terms = terms_of(federation, plan)
    silos = []
    for task, name in enumerate(terms.silos):
        place = folder / name
        place.mkdir(parents=True)
        silos.append(
            Silo(
                terms,
                name,
                own_of(federation, task),
                place,
                servers=ToServers(curator, name),
                **settings,
            )
        )
    return terms, silos, conduct(terms, folder / "coordinator", asking(silos), servers=curator)


@pytest.mark.slow
def test_sums_go_as_shares_and_only_noisy_sums_come_back(servers, make_federation, tmp_path):
    federation = make_federation(tasks=4)
    privacy = tacit.Privacy(noise=1e-3)  # hardly any, so that the sum can be compared
    asked = []

    class Listening(AtOnce):
        def ask(self, requests):
            replies = super().ask(requests)
            asked.extend((requests[k].kind, reply) for k, reply in replies.items())
            return replies

    method = tacit.FedAvg(lr=0.2)
    _, silos, done = run(
        federation, method, servers, tmp_path, asking=Listening, rounds=2, privacy=privacy
    )
    assert not any(reply.tensors for _, reply in asked)  # nothing but words reached the coordinator
    assert not any(reply.size for _, reply in asked)  # nor how many rows a silo has
    assert [kind for kind, _ in asked].count("share") == 8
    assert done.guarantee.curator is not None and done.guarantee.curator.kind == "secure"
    assert "secret-shared" in done.guarantee.trusts
    plain = tacit.train(
        federation,
        method,
        rounds=2,
        privacy=tacit.Privacy(noise=0.0),
        seed=done.coordination.course.randomness.run_key,
        personalise="none",
        baselines=False,
    )
    board = done.coordination.rounds.board.tensors
    for name, value in plain.simulation.board.tensors.items():
        assert torch.allclose(board[name], value, atol=0.02)
    log = (silos[0].folder / "log.txt").read_text()
    assert "handed to 3 servers as shares" in log


def test_silos_outside_the_cohort_train_and_book_and_share_zeros(
    servers, make_federation, tmp_path, monkeypatch
):
    federation, rounds = make_federation(tasks=4), 3
    cohorts, trained, shared = [], [], []

    class Drawn(AtOnce):
        def ask(self, requests):
            if next(iter(requests.values())).kind == "train":
                cohorts.append({k for k, request in requests.items() if request.takes_part})
            return super().ask(requests)

    def draw(self, tasks, randomness, round):  # without a seed nobody knows what would be drawn
        return np.array([[0, 2], [], [1]][round], dtype=np.int64)

    def counted(self, board, public, cohort):
        trained.append((board.round, int(cohort[0])))
        return work(self, board, public, cohort)

    def told(self, job, secret):
        shared.append((self.name, bool(secret.any())))
        return hand_over(self, job, secret)

    work, hand_over = Tasks.train, ToServers.take_part
    monkeypatch.setattr(tacit.privacy.Poisson, "draw", draw)
    monkeypatch.setattr(Tasks, "train", counted)
    monkeypatch.setattr(ToServers, "take_part", told)
    _, silos, _ = run(
        federation, tacit.FedAvg(lr=0.2), servers, tmp_path, asking=Drawn, rounds=rounds,
        cohort=0.5, privacy=tacit.Privacy(noise=1.0),
    )  # fmt: skip
    assert cohorts == [{0, 2}, set(), {1}]
    assert trained == [(round, task) for round in range(rounds) for task in range(4)]
    for round, members in enumerate(cohorts):
        told_now = dict(shared[4 * round : 4 * round + 4])
        assert told_now == {f"task-{task}": task in members for task in range(4)}
    for silo in silos:
        (ledger,) = silo.folder.glob("runs/*/ledger.jsonl")
        assert len(ledger.read_text().splitlines()) == rounds
    log = (silos[3].folder / "log.txt").read_text()
    assert log.count("zeros (not in this cohort) handed to 3 servers") == rounds


@pytest.mark.slow
def test_fedmtl_on_shares_ends_like_the_plain_curator(servers, tmp_path):
    federation = headed()
    method = tacit.FedMTL(min_peers=1)
    curator = secure(servers, trust="replicated")
    _, silos, done = run(federation, method, servers, tmp_path, curator=curator, rounds=2)
    key = done.coordination.course.randomness.run_key
    plain = tacit.train(
        federation, method, rounds=2, seed=key, personalise="none", baselines=False
    ).models(torch.arange(len(federation)))[0]
    found = torch.stack([personal(silo) for silo in silos])
    assert torch.allclose(found, plain, atol=1e-3)
    assert "hides everything from the 3 servers" in str(done.guarantee)


class Failing(AtOnce):
    """One silo never hears that it should hand in its shares."""

    def ask(self, requests):
        if next(iter(requests.values())).kind == "share" and requests.get(1) is not None:
            requests = {task: request for task, request in requests.items() if task != 1}
        return super().ask(requests)


def booked(silo):
    (ledger,) = silo.folder.glob("runs/*/ledger.jsonl")
    return len(ledger.read_text().splitlines())


@pytest.mark.slow
def test_a_silo_that_fails_in_the_middle_is_left_out_and_the_run_goes_on(
    servers, make_federation, tmp_path, monkeypatch
):
    monkeypatch.setattr("tacit.deploy.servers.TRIES", 2)
    federation = make_federation(tasks=4)
    privacy = tacit.Privacy(noise=1.0)
    _, silos, done = run(
        federation, tacit.PMTL(), servers, tmp_path, asking=Failing, rounds=2, privacy=privacy
    )
    assert done.coordination.rounds.board.round == 2
    assert done.guarantee.releases == 1  # the first round released nothing
    assert [booked(silo) for silo in silos] == [2, 2, 2, 2]  # asked twice in it, and paid once
    assert "task-1 did not hand in its shares" in (tmp_path / "coordinator/log.txt").read_text()


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_costs_nothing(
    servers, make_federation, tmp_path, monkeypatch
):
    federation, killed = make_federation(tasks=4), []

    class Killing(AtOnce):
        def ask(self, requests):
            first = next(iter(requests.values()))
            replies = super().ask(requests)
            if first.kind == "share" and first.round == 1 and not killed:
                killed.append(first.job)
                servers.restart("server-1")
            return replies

    _, silos, done = run(
        federation,
        tacit.PMTL(),
        servers,
        tmp_path,
        asking=Killing,
        rounds=3,
        privacy=tacit.Privacy(noise=1.0),
    )
    assert killed and done.coordination.rounds.board.round == 3
    assert done.guarantee.releases == 3
    assert [booked(silo) for silo in silos] == [3, 3, 3, 3]


@pytest.mark.slow
def test_on_the_exchange_a_round_without_a_silo_is_not_answered(servers, tmp_path):
    """The others keep what they trained; the next round is without it."""
    curator = secure(servers, trust="replicated")
    _, silos, done = run(
        headed(),
        tacit.FedMTL(min_peers=1),
        servers,
        tmp_path,
        asking=Failing,
        curator=curator,
        rounds=2,
    )
    assert done.coordination.rounds.board.round == 2
    log = (silos[0].folder / "log.txt").read_text()
    assert log.count("its answer taken") == 1 and "shares of round 2" in log.splitlines()[-2]
    coordinator = (tmp_path / "coordinator/log.txt").read_text()
    assert "round 1 released nothing: silos keep what they trained" in coordinator
