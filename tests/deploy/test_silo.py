"""What leaves a silo, how often, and what is left of it after a crash."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy import silo as silo_module
from tacit.deploy import work as work_module
from tacit.deploy.silo import FAILED
from tacit.engine.store import Store
from tacit.engine.tasks import Tasks
from tests.deploy.asked import Asked, agreed, federation_of, vector
from tests.exchange.federations import headed


@pytest.fixture(scope="module")
def federation():
    return federation_of()


@pytest.fixture
def asked(federation, tmp_path):
    return Asked(agreed(federation), federation, tmp_path)


class Killed(BaseException):
    """As if the process had ended: nothing catches it."""


def killed(*given, **more):
    raise Killed


def test_what_leaves_is_within_the_clip_and_said_in_the_log(asked):
    sent = vector(asked.ask())
    assert np.linalg.norm(sent) <= 1 + 1e-6
    assert "contribution of round 1: 5 numbers of length" in asked.log
    assert "in clips of 0.5, sent to the coordinator; about ε=" in asked.log


def test_the_same_request_is_answered_with_the_same_numbers_and_booked_once(asked):
    first = vector(asked.ask())
    for _ in range(3):
        assert np.array_equal(vector(asked.ask()), first)
    assert np.array_equal(vector(asked.reopened().ask()), first)
    assert asked.booked() == [0]
    assert asked.log.count("sent to the coordinator") == 1


def test_a_second_other_billboard_for_an_answered_round_is_refused(asked):
    first = vector(asked.ask())
    words = "round 1 was asked for, but round 1 was answered"
    asked.sees_refused(words, round=0, tensors=asked.board(7))
    asked.reopened().sees_refused(words, round=0, tensors=asked.board(7))
    assert np.array_equal(vector(asked.ask()), first)


def test_a_billboard_that_differs_in_one_bit_is_another(asked):
    vector(asked.ask())
    board = asked.board(0)
    name = next(iter(board))
    board[name] = board[name].clone()
    board[name].view(torch.int32)[0] ^= 1
    asked.sees_refused("round 1 was answered", round=0, tensors=board)


def test_an_earlier_round_is_refused(asked):
    vector(asked.ask(round=1))
    asked.sees_refused("round 1 was asked for, but round 2 was answered", round=0)
    asked.reopened().sees_refused("round 1 was asked for, but round 2 was answered", round=0)


def test_rounds_between_are_paid_for_whoever_was_in_their_cohort(asked):
    vector(asked.ask(round=2))
    assert asked.booked() == [0, 1, 2]


@pytest.mark.parametrize("end", [0, 1, 3])
def test_nothing_leaves_after_the_end(end, asked):
    """Also where the run ended before its last round."""
    vector(asked.ask(round=0))
    assert asked.ask(kind="finish", round=end).state == "done"
    for round in range(3):
        asked.sees_refused("but the run is over", round=round)
        board = asked.board(end)
        asked.sees_refused("but the run is over", round=round, tensors=board)
    assert asked.ask(kind="finish", round=end).state == "done"
    assert asked.log.count("the run is over; ε=") == 1


def test_silos_that_only_watched_have_paid_for_sampling(asked):
    assert asked.ask(kind="finish", round=3).state == "done"
    assert asked.booked() == [0, 1, 2]


def secret(*given, **more):
    raise ValueError("row 17 of Jane Doe has 3.25")


@pytest.mark.parametrize("kind", ["train", "finish"])
def test_what_goes_wrong_inside_stays_inside(kind, federation, tmp_path, monkeypatch):
    asked = Asked(agreed(federation, tacit.FedRep(), model="mlp"), federation, tmp_path)
    asked.ask(round=0)
    monkeypatch.setattr(Tasks, "train", secret)
    monkeypatch.setattr(Store, "settle", secret)
    reply = asked.ask(kind=kind, round=1)
    assert (reply.state, reply.reason, dict(reply.tensors)) == ("failed", FAILED, {})
    assert "Jane Doe has 3.25" in asked.log and "Traceback" in asked.log
    monkeypatch.undo()
    assert asked.ask(kind=kind, round=1).state == "done"


def test_refusals_and_failures_are_sent_as_words_and_nothing_else(asked, monkeypatch):
    monkeypatch.setattr(silo_module, "check_terms", secret)
    content = asked.silo.answer(asked.request()).to_bytes()
    assert b"Jane" not in content and FAILED.encode() in content


def test_a_contribution_that_is_not_finite_counts_as_zero(asked, monkeypatch):
    def trained(self, board, public, cohort):
        yield cohort, {}, torch.full((1, 5), torch.nan)

    monkeypatch.setattr(Tasks, "train", trained)
    monkeypatch.setattr(Store, "put", lambda self, tasks, states: None)
    assert not vector(asked.ask()).any()


def test_killed_between_booking_and_saving(federation, tmp_path, monkeypatch):
    calm = Asked(agreed(federation, seed=1), federation, tmp_path / "calm")
    expected = [vector(calm.ask(round=round)) for round in range(3)]
    asked = Asked(agreed(federation, seed=1), federation, tmp_path / "killed")
    for round in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "settle", killed)
            with pytest.raises(Killed):
                asked.ask(round=round)
        assert asked.booked() == list(range(round + 1))
        found = vector(asked.reopened().ask(round=round))
        assert np.array_equal(found, expected[round])
        assert asked.booked() == list(range(round + 1))


@pytest.mark.parametrize("point", ["table", "diary"])
def test_killed_between_saving_and_sending(point, federation, tmp_path, monkeypatch):
    """Once before the table has what the journal has, once before anything is sent."""
    calm = Asked(agreed(federation, seed=1), federation, tmp_path / "calm")
    expected = [vector(calm.ask(round=round)) for round in range(3)]
    asked = Asked(agreed(federation, seed=1), federation, tmp_path / "killed")

    def journal_only(self, *given):
        journal(self, *given)
        raise Killed

    journal = Store._journal
    for round in range(3):
        with monkeypatch.context() as patch:
            if point == "table":
                patch.setattr(Store, "_journal", journal_only)
            else:
                patch.setattr("tacit.deploy.diary.Diary.write", killed)
            with pytest.raises(Killed):
                asked.ask(round=round)
        found = vector(asked.reopened().ask(round=round))
        assert np.array_equal(found, expected[round])
        asked.sees_refused("was answered", round=round, tensors=asked.board(7))
        assert asked.booked() == list(range(round + 1))


def test_killed_while_the_run_is_being_named(asked, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(work_module, "replace", killed)
        with pytest.raises(Killed):
            asked.ask()
    vector(asked.reopened().ask())


def test_a_ledger_that_was_cut_short_is_mended(asked):
    vector(asked.ask(round=0))
    path = asked.folder / "runs" / asked.run / "ledger.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"round": 1, "noi')
    vector(asked.reopened().ask(round=1))
    assert asked.booked() == [0, 1]


def test_scores_leave_within_their_bound_and_are_booked_once(federation, tmp_path):
    asked = Asked(agreed(federation, metrics=True), federation, tmp_path)
    vector(asked.ask(round=0))
    assert asked.ask(kind="finish", round=3).state == "done"
    assert asked.booked() == [0, 1, 2]
    sent = vector(asked.ask(kind="measure", round=3))
    assert sent.shape == (2,) and np.linalg.norm(sent) <= 1 + 1e-6 and (sent >= 0).all()
    assert np.array_equal(vector(asked.reopened().ask(kind="measure", round=3)), sent)
    assert asked.booked() == [0, 1, 2, 3]
    assert "a score and a loss were sent, to be released with noise" in asked.log


def test_on_the_exchange_a_repeated_answer_changes_nothing(tmp_path):
    federation = headed()
    asked = Asked(agreed(federation, tacit.FedAMP(), relaxed=True), federation, tmp_path)
    first = vector(asked.ask(round=0))
    answer = {"answer": torch.from_numpy(first).unsqueeze(0) + 1.0}
    assert asked.ask(kind="receive", round=0, tensors=answer).state == "done"
    state = _state(asked)
    for other in (answer, {"answer": 5 * answer["answer"]}):
        assert asked.reopened().ask(kind="receive", round=0, tensors=other).state == "done"
        assert torch.equal(_state(asked), state)
    assert np.array_equal(vector(asked.ask(round=0)), first)
    assert torch.equal(_state(asked), state)


def _state(asked):
    simulation = asked.silo.latest().reopen()
    return simulation.personal(torch.tensor([asked.silo.task]))[0][0]
