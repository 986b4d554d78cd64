"""A run on shares ends whatever fails, and nobody pays for what shows nothing new."""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest

import tacit
from tacit.deploy import servers as silos_servers
from tacit.deploy.conduct import conduct
from tacit.deploy.silo import Silo
from tacit.engine.on_shares import OnShares
from tacit.errors import TacitError
from tacit.secure.jobs.curator import SealedSum
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.links import PartyError
from tacit.secure.net.remote import Remote
from tests.deploy.asked import agreed, federation_of
from tests.deploy.direct import Direct, own_of
from tests.deploy.on_shares import SERVERS, Kept, Sharing, Shown
from tests.exchange.federations import headed

ROUNDS = 5


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


class Trial:
    """Three silos, a coordinator and servers, in one process."""

    def __init__(self, folder, monkeypatch, *, before=lambda job: None, asked=None, **settings):
        federation = federation_of(3)
        self.terms = agreed(federation, curator=SERVERS, **({"rounds": ROUNDS} | settings))
        self.folder, self.ways = folder, [Kept(name) for name in self.terms.silos]
        self.shown = Shown(self.ways, before)
        monkeypatch.setattr(Remote, "of", lambda settings: self.shown)
        silos = []
        for task, way in enumerate(self.ways):
            (folder / way.name).mkdir(parents=True)
            own = own_of(federation, task)
            silos.append(Silo(self.terms, way.name, own, folder / way.name, servers=way))
        self.direct = Direct(silos) if asked is None else Direct(silos, asked=asked)

    def conduct(self):
        return conduct(self.terms, self.folder / "coordinator", self.direct, servers=SERVERS)

    def booked(self, task):
        (path,) = (self.folder / self.ways[task].name).glob("runs/*/ledger.jsonl")
        return [json.loads(line)["round"] for line in path.read_text().splitlines()]

    @property
    def released(self):
        lines = (self.folder / "coordinator" / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line)["round"] for line in lines]

    @property
    def log(self):
        return (self.folder / "coordinator" / "log.txt").read_text()


def failing(times, party="server-1", at=1):
    """The servers fail so often, from the job with this number on, after all shares are in."""
    jobs, left = [], [times]

    def before(job):
        if job.id not in jobs:
            jobs.append(job.id)
        if jobs.index(job.id) >= at and left[0]:
            left[0] -= 1
            raise PartyError(party, "closed the connection")

    return before


def absent(task):
    """This silo trains, and never hands in shares."""
    return lambda k, request: None if k == task and request.kind == "share" else request


def test_a_server_that_dies_once_costs_nobody_anything(tmp_path, monkeypatch):
    privacy = tacit.Privacy(epsilon=2.0)
    trial = Trial(tmp_path, monkeypatch, before=failing(1), privacy=privacy)
    done = trial.conduct()
    assert done.coordination.rounds.board.round == ROUNDS and not done.coordination.rounds.stopped
    assert trial.released == list(range(ROUNDS))
    assert all(trial.booked(task) == list(range(ROUNDS)) for task in range(3))
    handed = [job.id for job, _ in trial.ways[0].handed]
    assert len(handed) == ROUNDS + 1 and len(set(handed)) == ROUNDS
    assert "server-1 closed the connection (shares, round 2)" in trial.log


@pytest.mark.slow
def test_a_server_that_stays_away_stops_the_run_which_goes_on_for_free(tmp_path, monkeypatch):
    privacy = tacit.Privacy(epsilon=2.0)
    trial = Trial(tmp_path, monkeypatch, before=failing(5), privacy=privacy)
    with pytest.raises(TacitError, match="start the coordinator again, which costs nothing"):
        trial.conduct()
    assert trial.released == [0]
    assert trial.conduct().coordination.rounds.board.round == ROUNDS
    assert trial.released == list(range(ROUNDS))
    assert all(trial.booked(task) == list(range(ROUNDS)) for task in range(3))


@pytest.mark.slow
def test_a_sum_that_is_opened_once_more_is_the_same(tmp_path, monkeypatch):
    """Servers that sent all their shares, and were said to have failed, sent the same again."""
    trial = Trial(tmp_path, monkeypatch)
    honest, seen = trial.shown.run, []

    def twice(job, secret_of, elsewhere=None):
        seen.extend(honest(job, secret_of, elsewhere) for _ in range(2))
        return seen[-1]

    monkeypatch.setattr(trial.shown, "run", twice)
    trial.conduct()
    for (job, first), (other, again) in zip(*[iter(trial.shown.opened)] * 2, strict=True):
        assert job.digest == other.digest
        assert np.array_equal(job.combine(first), job.combine(again))
    sums = [job.combine(shares) for job, shares in trial.shown.opened[::2]]
    assert all(not np.array_equal(sums[0], other) for other in sums[1:])


def test_a_coordinator_that_dies_before_it_publishes_releases_no_second_sum(tmp_path, monkeypatch):
    privacy = tacit.Privacy(epsilon=2.0)
    trial = Trial(tmp_path, monkeypatch, privacy=privacy)
    deaths, opened = [2, 4], SealedSum.open

    def dying(self):
        if len(trial.released) - 1 in deaths:
            deaths.remove(len(trial.released) - 1)
            raise KeyboardInterrupt
        return opened(self)

    monkeypatch.setattr(SealedSum, "open", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            trial.conduct()
    done = trial.conduct()
    assert done.coordination.rounds.board.round == ROUNDS and not done.coordination.rounds.stopped
    assert trial.released == list(range(ROUNDS))


def test_a_silo_that_never_hands_in_shares_is_left_out_and_exhausts_nobody(tmp_path, monkeypatch):
    privacy = tacit.Privacy(epsilon=2.0)
    trial = Trial(tmp_path, monkeypatch, asked=absent(1), privacy=privacy)
    done = trial.conduct()
    assert done.coordination.rounds.board.round == ROUNDS and not done.coordination.rounds.stopped
    assert trial.released == [1, 2, 3, 4]  # it spoiled the first round, and no other
    assert all(trial.booked(task) == list(range(ROUNDS)) for task in (0, 2))
    assert "task-1 stayed away, so round 1 released nothing" in trial.log
    assert {job.clients for job, _ in trial.shown.opened} == {("task-0", "task-2")}


def test_a_damaged_record_of_the_job_is_named(tmp_path, monkeypatch):
    trial = Trial(tmp_path, monkeypatch, rounds=2)
    (tmp_path / "coordinator").mkdir()
    for damage in ("[]", "{", '{"round": 0}', ""):
        (tmp_path / "coordinator" / "job.json").write_text(damage)
        with pytest.raises(TacitError, match=r"job\.json is damaged"):
            trial.conduct()


@pytest.mark.slow
def test_an_agreed_retry_saves_the_round_that_a_silo_spoiled(tmp_path, monkeypatch):
    privacy = tacit.Privacy(epsilon=2.0)
    trial = Trial(tmp_path, monkeypatch, asked=absent(1), privacy=privacy, retries=1)
    done = trial.conduct()
    assert trial.released == list(range(ROUNDS))
    assert done.guarantee.epsilon <= 2.0
    assert all(trial.booked(task) == [0, -1, 1, 2, 3, 4] for task in (0, 2))


def test_a_run_of_one_round_that_is_lost_ends_with_a_sentence(tmp_path, monkeypatch):
    trial = Trial(tmp_path, monkeypatch, asked=absent(1), rounds=1)
    done = trial.conduct()
    assert "task-1 stayed away" in done.coordination.rounds.stopped
    assert "agree on retries" in done.coordination.rounds.stopped
    assert not done.guarantee.releases


@pytest.mark.slow
def test_a_silo_that_comes_back_is_asked_again(tmp_path, monkeypatch):
    gone = lambda k, request: (  # noqa: E731
        None if k == 1 and request.kind == "share" and request.round < 2 else request
    )
    monkeypatch.setattr(silos_servers, "ABSENT", 1)
    trial = Trial(tmp_path, monkeypatch, asked=gone)
    trial.conduct()
    members = [len(job.clients) for job, _ in trial.shown.opened]
    assert trial.released == [1, 2, 3, 4] and members == [2, 3, 3, 3]


@pytest.mark.slow
def test_a_sum_that_a_silo_spoiled_is_not_published(tmp_path, monkeypatch):
    """Nobody can tell which silo it was: its shares are uniform like all others."""
    trial = Trial(tmp_path, monkeypatch)
    honest = trial.ways[1].take_part

    def far_too_much(job, secret):
        honest(job, secret if len(trial.ways[1].handed) > 2 else secret + job.bound * 100)

    monkeypatch.setattr(trial.ways[1], "take_part", far_too_much)
    monkeypatch.setattr(SumJob, "upload", _unchecked(SumJob.upload))
    done = trial.conduct()
    assert done.coordination.rounds.board.round == ROUNDS
    assert trial.log.count("the sum is longer than what 3 clients of the agreed length") == 3
    assert all(
        float(value.abs().max()) < 10 for value in done.coordination.rounds.board.tensors.values()
    )


def _unchecked(upload):
    """A client that does not look at its own numbers."""

    def changed(self, links, secret):
        upload(dataclasses.replace(self, bound=2**28), links, secret)

    return changed


def test_on_the_exchange_a_round_is_handed_in_once(tmp_path):
    """With and without one silo, two answers of one round would give its model away."""
    federation, curator = headed(), tacit.Secure(servers=3, trust="replicated")
    terms = agreed(federation, tacit.FedMTL(), curator=curator, relaxed=True)
    silo = Sharing(terms, federation, tmp_path)
    silo.way.settings = curator
    assert silo.ask(round=0).state == "done"
    made = exchanged(silo, curator)
    whole, without = made(terms.silos), made(terms.silos[:-1])
    assert silo.share(whole).state == "failed"  # no answer came
    for job in (without, whole, made(terms.silos)):
        reply = silo.share(job)
        assert reply.state == "refused" and "which is answered once" in reply.reason
    assert [job.digest for job, _ in silo.way.handed] == [whole.digest]


def exchanged(silo, curator):
    course = silo.coordination.course
    return OnShares(course.method, curator, course.model, course.contribution_size).job
