"""Who is in a secret cohort shows in nothing that others see: not in time, lengths or accounts."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy import messages
from tacit.deploy.servers import sum_job
from tacit.engine.tasks import Tasks
from tacit.privacy import Everyone, Release, spent
from tests.deploy.asked import Asked, agreed, federation_of, vector
from tests.deploy.direct import personal
from tests.deploy.runs import board, run, same
from tests.exchange.federations import headed

SECONDS = (1, 2, 3, 600)
"""How long each silo takes to train."""
SLOW = 3


@pytest.fixture(scope="module")
def federation():
    return federation_of(4)


def sampled(federation, method=None, **changes):
    """Terms of eight rounds, in each of which half of the silos are drawn."""
    settings = {"cohort": 0.5, "rounds": 8, "seed": 3} | changes
    return agreed(federation, method or tacit.PMTL(clip_quantile=0.5), **settings)


@pytest.fixture
def trained(monkeypatch):
    """Who has trained, as (round, task)."""
    real, calls = Tasks.train, []

    def counted(self, board, public, cohort):
        calls.append((board.round, int(cohort[0])))
        return real(self, board, public, cohort)

    monkeypatch.setattr(Tasks, "train", counted)
    return calls


class Seen:
    """What a coordinator asked, and what it was answered."""

    def __init__(self):
        self.requests, self.replies = [], []

    def asked(self, task, request):
        self.requests.append((task, request))
        return request

    def answered(self, task, request, reply):
        self.replies.append((task, request, reply))
        return reply

    @property
    def hooks(self):
        return {"asked": self.asked, "answered": self.answered}

    def cohort(self, round, kind="train"):
        return {
            task for task, asked in self.requests
            if asked.kind == kind and asked.round == round and asked.takes_part
        }  # fmt: skip


def test_how_long_a_round_takes_does_not_tell_whether_a_slow_silo_was_drawn(
    federation, tmp_path, trained
):
    seen = Seen()
    run(sampled(federation), federation, tmp_path, **seen.hooks)
    drawn = [SLOW in seen.cohort(round) for round in range(8)]
    assert any(drawn) and not all(drawn)  # otherwise this test says nothing
    lengths = [
        max((SECONDS[task] for when, task in trained if when == round), default=0)
        for round in range(8)
    ]
    assert lengths == [SECONDS[SLOW]] * 8


def test_messages_are_as_long_for_those_outside_the_cohort(federation, tmp_path):
    seen = Seen()
    run(sampled(federation), federation, tmp_path, **seen.hooks)
    trains = [(q, r) for _, q, r in seen.replies if q.kind == "train"]
    assert {q.takes_part for q, _ in trains} == {True, False}
    assert len({len(r.to_bytes()) for _, r in trains}) == 1
    for round in range(8):
        assert len({len(q.to_bytes()) for q, _ in trains if q.round == round}) == 1


def test_a_run_ends_in_the_same_bits_as_if_only_the_cohort_were_asked(federation, tmp_path):
    terms, seen = sampled(federation), Seen()
    _, everybody = run(terms, federation, tmp_path / "all", **seen.hooks)
    few = Seen()
    _, members = run(terms, federation, tmp_path / "few", one_owner=True, **few.hooks)
    assert same(board(tmp_path / "all"), board(tmp_path / "few"))
    for one, two in zip(everybody.silos, members.silos, strict=True):
        assert torch.equal(personal(one), personal(two))
    for round in range(8):
        asked = {task for task, q in few.requests if q.kind == "train" and q.round == round}
        assert asked == few.cohort(round) == seen.cohort(round)


def test_in_turn_only_those_whose_turn_it_is_are_asked_and_pay_for_that(federation, tmp_path):
    privacy = tacit.Privacy(epsilon=2.0, delta=1e-3, sampling="in-turn")
    terms, seen = sampled(federation, privacy=privacy, rounds=6), Seen()
    done, _ = run(terms, federation, tmp_path, **seen.hooks)
    asked = [
        {task for task, q in seen.requests if q.kind == "train" and q.round == t} for t in range(6)
    ]
    assert all(len(cohort) == 2 for cohort in asked)
    assert all(one | two == {0, 1, 2, 3} for one, two in itertools.pairwise(asked))
    noise = done.guarantee.noise_multiplier
    assert noise is not None
    three = spent({Release(Everyone(), noise): 3}, 1e-3, "add-remove").epsilon
    assert done.guarantee.epsilon == pytest.approx(three, abs=1e-9) and three <= 2.0
    assert len(seen.replies) == 6 * 2 + 4 and all(r.state == "done" for _, _, r in seen.replies)


@pytest.mark.parametrize(
    "changes", [{"relaxed": True, "method": tacit.FedAvg()}, {"cohort": 1.0}], ids=["plain", "all"]
)
def test_where_nothing_is_hidden_only_the_cohort_is_asked(changes, federation, tmp_path, trained):
    seen = Seen()
    run(sampled(federation, **changes), federation, tmp_path, **seen.hooks)
    assert all(request.takes_part for _, request in seen.requests)
    sizes = {len(seen.cohort(round)) for round in range(8)}
    assert sizes == {4} if "cohort" in changes else min(sizes) < 4


def test_what_comes_from_outside_the_cohort_is_not_added(federation, tmp_path):
    terms = sampled(federation, metrics=True)
    done = {}
    for name, factor in (("as sent", 1.0), ("huge", 1e30)):

        def answered(task, request, reply, factor=factor):
            if request.takes_part:
                return reply
            return dataclasses.replace(reply, tensors={"sent": factor * reply.tensors["sent"]})

        done[name], _ = run(terms, federation, tmp_path / name, answered=answered)
        assert not done[name].coordination.asking.excluded
    assert same(board(tmp_path / "as sent"), board(tmp_path / "huge"))
    assert done["as sent"].scores == done["huge"].scores is not None


def on_account(folder, terms):
    """How many releases each silo has booked."""
    counts = []
    for task in range(len(terms.silos)):
        (path,) = (folder / f"silo-{task}").glob("runs/*/ledger.jsonl")
        lines = path.read_text(encoding="utf-8").splitlines()
        counts.append(len({json.loads(line)["round"] for line in lines}))
    return counts


class Gone(Exception):
    """The coordinator is never heard of again."""


def test_a_silo_that_never_hears_of_the_end_has_booked_all_rounds(federation, tmp_path):
    terms, seen = sampled(federation), Seen()

    def asked(task, request):
        if request.kind == "finish":
            raise Gone
        return seen.asked(task, request)

    with pytest.raises(Gone):
        run(terms, federation, tmp_path, asked=asked)
    assert len(seen.cohort(7)) < 4  # otherwise this test says nothing
    assert on_account(tmp_path, terms) == [8] * 4


def test_whoever_was_asked_in_the_last_round_has_booked_it(federation, tmp_path):
    terms = sampled(federation)

    def asked(task, request):
        if request.round == 7 and task == 2:
            raise Gone
        return request

    with pytest.raises(Gone):
        run(terms, federation, tmp_path, asked=asked)
    assert on_account(tmp_path, terms) == [8, 8, 7, 7]


def test_scores_are_on_every_account_whoever_was_drawn_for_them(federation, tmp_path):
    terms, seen = sampled(federation, metrics=True), Seen()
    run(terms, federation, tmp_path, **seen.hooks)
    assert len(seen.cohort(8, "measure")) < 4
    assert on_account(tmp_path, terms) == [9] * 4
    assert len({len(r.to_bytes()) for _, q, r in seen.replies if q.kind == "measure"}) == 1


@pytest.fixture
def asked(federation, tmp_path):
    """A silo that was in the first cohort."""
    made = Asked(sampled(federation), federation, tmp_path)
    vector(made.ask(round=0))
    return made


def state(asked):
    """The silo's own state on disk, and its personal model."""
    table = (asked.folder / "runs" / asked.run / "checkpoint" / "states.bin").read_bytes()
    return table, personal(asked.silo).numpy().tobytes()


def test_a_silo_outside_the_cohort_works_and_books_and_stays_as_it_was(asked, trained):
    before = state(asked)
    reply = asked.ask(round=1, takes_part=False)
    assert reply.state == "done" and trained == [(1, 0)]
    assert state(asked) == before == state(asked.reopened())
    assert asked.booked() == [0, 1]
    assert "round 2: not in this cohort, so the result was thrown away" in asked.log
    for _ in range(2):  # again, and again after a restart
        again = asked.ask(round=1, takes_part=False)
        assert np.array_equal(vector(again), vector(reply))
        asked.reopened()
    assert trained == [(1, 0)] and asked.booked() == [0, 1] and state(asked) == before
    assert asked.log.count("not in this cohort") == 1


def test_as_much_is_written_outside_the_cohort(asked, federation, tmp_path):
    """Large models take long to save."""
    other = Asked(sampled(federation), federation, tmp_path / "other")
    vector(other.ask(round=0))
    asked.ask(round=1, takes_part=False)
    other.ask(round=1)
    journals = [next(one.folder.glob("runs/*/checkpoint/journal.*")) for one in (asked, other)]
    assert len({path.stat().st_size for path in journals}) == 1


def test_a_silo_that_was_never_drawn_stays_new(federation, tmp_path):
    asked = Asked(sampled(federation), federation, tmp_path / "one")
    for round in range(3):
        assert asked.ask(round=round, takes_part=False).state == "done"
    other = Asked(sampled(federation), federation, tmp_path / "other")
    sent = [vector(silo.reopened().ask(round=3)) for silo in (asked, other)]
    assert np.array_equal(*sent)


def test_work_for_nothing_leaves_no_trace_in_later_contributions(asked, federation, tmp_path):
    other = Asked(sampled(federation), federation, tmp_path / "other")
    vector(other.ask(round=0))
    for round in (1, 2):
        asked.ask(round=round, takes_part=False)
    assert np.array_equal(vector(asked.ask(round=3)), vector(other.ask(round=3)))


def test_what_leaves_outside_the_cohort_is_random_and_has_nothing_of_the_rows(
    federation, tmp_path, monkeypatch
):
    terms, sent = sampled(federation), []
    with monkeypatch.context() as patch:
        patch.setattr(messages.secrets, "token_bytes", lambda size: bytes(range(size)))
        for task in range(2):
            asked = Asked(terms, federation, tmp_path / "same dice", task=task)
            sent.append(asked.ask(nonce="n", takes_part=False).to_bytes())
    assert sent[0] == sent[1]
    free = Asked(terms, federation, tmp_path / "free").ask(nonce="n", takes_part=False)
    assert free.to_bytes() != sent[0] and not free.size


def test_scores_do_not_leave_outside_the_cohort(federation, tmp_path):
    asked = Asked(sampled(federation, metrics=True), federation, tmp_path)
    assert asked.ask(kind="finish", round=8).state == "done"
    outside, again, scores = (
        vector(asked.ask(kind="measure", round=8, takes_part=part)) for part in (False, False, True)
    )
    assert not np.isin(outside, scores).any() and not np.isin(outside, again).any()
    assert asked.booked() == list(range(9)) and asked.log.count("scores: not in this cohort") == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_round_is_answered_in_one_way_only(first, asked):
    reply = asked.ask(round=1, takes_part=first)
    kept = state(asked)
    words = "round 2 was asked for, but round 2 was answered"
    for _ in range(2):
        asked.sees_refused(words, round=1, takes_part=not first)
        assert np.array_equal(vector(asked.ask(round=1, takes_part=first)), vector(reply))
        asked.reopened()
    assert state(asked) == kept and asked.booked() == [0, 1]


def test_rounds_outside_cohorts_are_not_counted_as_drawn(federation, tmp_path):
    """Drawn 5 of 40 times and asked in all: that is no more than was agreed."""
    terms = sampled(federation, cohort=0.1, rounds=40)
    asked = Asked(terms, federation, tmp_path)
    states = [asked.ask(round=t, takes_part=t % 8 == 7).state for t in range(40)]
    assert states == ["done"] * 40


def test_on_the_exchange_nobody_works_for_nothing(tmp_path):
    federation = headed()
    asked = Asked(agreed(federation, tacit.FedAMP(), relaxed=True), federation, tmp_path)
    asked.sees_refused("nothing to do outside the cohort", takes_part=False)


def test_work_that_fails_is_booked_and_told_alike(asked, monkeypatch):
    def broken(*given):
        raise ValueError("row 17")

    monkeypatch.setattr(Tasks, "train", broken)
    replies = [asked.ask(round=t, nonce="n", takes_part=t == 1) for t in (1, 2)]
    assert replies[0] == replies[1] and replies[0].state == "failed"
    assert asked.booked() == [0, 1, 2]


class Servers:
    """Servers on shares that keep what they are told."""

    def __init__(self):
        self.settings, self.told = tacit.Secure(servers=3), []

    def take_part(self, job, secret):
        self.told.append(secret)


def test_a_coordinator_that_changes_its_mind_gets_shares_of_zeros(federation, tmp_path):
    servers = Servers()
    terms = dataclasses.replace(
        sampled(federation, tacit.FedAvg(), seed=None), curator={"servers": 3}
    )
    asked = Asked(terms, federation, tmp_path, servers=servers)
    size = asked.coordination.course.contribution_size
    noise = asked.start["noise"]
    job = sum_job(4, 3, terms.silos, size, noise)[0].to_json()
    for part in (False, True):  # before anything was trained, and booked
        asked.sees_refused("nothing was trained in round 1", kind="share", job=job, takes_part=part)
    assert not asked.ask(takes_part=False).tensors
    for part in (False, True):
        assert asked.ask(kind="share", job=job, takes_part=part).state == "done"
    assert len(servers.told) == 2 and not any(secret.any() for secret in servers.told)
    assert asked.booked() == [0]  # the same job again is no other
    assert not asked.ask(round=1).tensors
    asked.sees_refused("something else", kind="share", round=1, job=job, tensors={})
    job = sum_job(4, 3, terms.silos, size, noise)[0].to_json()
    assert asked.ask(kind="share", round=1, job=job, takes_part=False).state == "done"
    assert servers.told[2].any()
