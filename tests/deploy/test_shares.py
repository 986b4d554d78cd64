"""Whatever a coordinator asks for, a silo hands shares to no sum that is not on its account."""

from __future__ import annotations

import json
import re

import pytest

import tacit
from tacit.privacy.accounting import spent
from tacit.privacy.ledger import Ledger
from tests.deploy.asked import agreed, federation_of, run_name
from tests.deploy.on_shares import SERVERS, Sharing


@pytest.fixture(scope="module")
def federation():
    return federation_of()


@pytest.fixture
def sharing(federation, tmp_path):
    def make(retries=0, **settings):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        own = {name: settings.pop(name) for name in ("budget", "runs") if name in settings}
        terms = agreed(federation, curator=SERVERS, retries=retries, **settings)
        return Sharing(terms, federation, place, **own)

    return make


def ledger_of(sharing):
    return Ledger.at(sharing.folder / "runs" / sharing.run / "ledger.jsonl")


def test_the_same_job_again_costs_nothing_and_gets_the_same_numbers(sharing):
    silo, job = sharing(), None
    vector_of_round = []
    for round in range(3):
        silo.ask(round=round)
        job = silo.job()
        for again in range(5):
            assert silo.share(job, round).state == "done"
            if again == 2:
                silo.reopened()  # and remembers
        vector_of_round.append(silo.way.handed[-1][1])
    assert silo.booked() == [0, 1, 2] and len(silo.way.sums) == 3
    for round, (first, *others) in enumerate(zip(*[iter(silo.way.handed)] * 5, strict=True)):
        assert all((first[1] == other[1]).all() for other in others), round


@pytest.mark.parametrize("cohort", [1.0, 0.5])
def test_no_order_of_requests_gets_more_sums_than_are_booked(sharing, cohort):
    """Rounds in the cohort and outside it in turn, each with many jobs, forwards and backwards."""
    silo = sharing(rounds=6, cohort=cohort)
    for round in range(6):
        silo.ask(round=round, takes_part=round % 3 != 2)
        for other in (round, max(0, round - 1), round):
            silo.share(silo.job(), other)
            silo.share(silo.job(), other, takes_part=False)
        assert len(silo.way.sums) <= len(silo.booked())
    assert len(silo.way.sums) == 4 and silo.booked() == list(range(6))


def test_jobs_that_are_asked_for_at_the_same_moment_are_still_counted(sharing, monkeypatch):
    silo = sharing()
    silo.ask(round=0)
    states = silo.share_at_once([silo.job() for _ in range(8)])
    assert sorted(states) == ["done"] + ["refused"] * 7
    assert len(silo.way.sums) == 1


def test_a_job_is_for_one_round_of_one_run(sharing):
    silo = sharing(runs=2)
    silo.ask(round=0)
    job = silo.job()
    assert silo.share(job).state == "done"
    silo.ask(round=1)
    reply = silo.share(job, round=1)
    assert "something else" in reply.reason and len(silo.way.handed) == 1
    second = run_name(2)
    assert silo.ask(round=0, run=second).state == "done"
    assert "something else" in silo.share(job, run=second).reason


def test_another_job_of_a_round_is_one_of_the_agreed_retries_and_is_paid_for(sharing):
    silo = sharing(retries=2)
    silo.ask(round=0)
    replies = [silo.share(silo.job()) for _ in range(4)]
    assert [reply.state for reply in replies] == ["done"] * 3 + ["refused"]
    assert "2 such retries were agreed" in replies[-1].reason
    assert silo.booked() == [0, -1, -1] and len(silo.way.sums) == 3
    silo.ask(round=1)
    assert silo.share(silo.job(), round=1).state == "done"
    assert "retries were agreed" in silo.share(silo.job(), round=1).reason  # for the whole run


def test_the_log_says_what_retries_cost(sharing):
    silo = sharing(retries=30)
    silo.ask(round=0)
    for _ in range(20):
        silo.share(silo.job())
    told = float(re.findall(r"about ε=([\d.]+)", silo.log)[-1])
    delta = silo.terms.make_privacy().delta_for(3)
    assert told == pytest.approx(
        spent(ledger_of(silo).releases(), delta, "add-remove").epsilon, abs=0.01
    )


def test_agreed_retries_are_within_the_agreed_epsilon(sharing):
    """The noise is for all rounds and all retries; without them there is less of it."""
    privacy = tacit.Privacy(epsilon=3.0)
    silo, without = sharing(retries=2, privacy=privacy), sharing(privacy=privacy)
    assert silo.start["noise"] > 1.1 * without.start["noise"]
    for round in range(3):
        vector_of = silo.ask(round=round)
        assert vector_of.state == "done"
        silo.share(silo.job(), round)
        silo.share(silo.job(), round)
    assert silo.booked() == [0, -1, 1, -1, 2]
    delta = silo.terms.make_privacy().delta_for(3)
    found = spent(ledger_of(silo).releases(), delta, "add-remove").epsilon
    assert 2.9 < found <= 3.0
    # A coordinator that planned for no retries offers too little noise.
    silo = sharing(retries=2, privacy=privacy)
    reply = silo.ask(noise=without.start["noise"])
    assert "agreed was ε=3" in reply.reason


@pytest.mark.parametrize("damage", ["[]", '{"x": 1}', '{"x": {"run": "y"}}', "{", ""])
def test_a_damaged_journal_hands_in_nothing(sharing, damage):
    silo = sharing()
    silo.ask(round=0)
    (silo.folder / "shares.json").write_text(damage)
    assert silo.share(silo.job()).state == "failed"
    assert not silo.way.handed and "shares.json is damaged" in silo.log


def test_the_journal_is_written_before_shares_leave(sharing, monkeypatch):
    silo = sharing()
    silo.ask(round=0)
    job, seen = silo.job(), []

    def take_part(asked, secret):
        seen.append(job.digest in json.loads((silo.folder / "shares.json").read_text()))
        raise OSError("the network is gone")

    monkeypatch.setattr(silo.way, "take_part", take_part)
    assert silo.share(job).state == "failed"
    assert seen == [True]
    assert silo.share(silo.job()).state == "refused"  # who knows what became of the first


@pytest.mark.parametrize("older", [False, True])
def test_a_silo_whose_journal_of_shares_is_lost_or_older_hands_in_nothing(sharing, older):
    """Another sum of the round would look like its first one, which is paid for."""
    silo = sharing()
    path = silo.folder / "shares.json"
    silo.ask(round=0)
    assert silo.share(silo.job(), 0).state == "done"
    before = path.read_bytes()
    silo.ask(round=1)
    assert silo.share(silo.job(), 1).state == "done"
    if older:
        path.write_bytes(before)
    else:
        path.unlink()
    assert silo.reopened().share(silo.job(), 1).state == "failed"
    assert "shares.json is not what it was in this round" in silo.log
    assert len(silo.way.sums) == len(silo.booked()) == 2
