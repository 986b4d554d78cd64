"""A coordinator that asks for something else than what was agreed is refused, with the reason."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

import tacit
from tacit.deploy.guard import Refused, check_leaving, check_often
from tacit.deploy.messages import Unreadable
from tacit.privacy.channel import CLIP_STEP
from tests.deploy.asked import AGREED, Asked, agreed, federation_of, run_name, vector
from tests.exchange.federations import headed


@pytest.fixture(scope="module")
def federation():
    return federation_of()


@pytest.fixture
def asked(federation, tmp_path):
    """A silo that has answered round 1 of 3, honestly asked."""
    made = Asked(agreed(federation), federation, tmp_path)
    vector(made.ask(round=0))
    return made


OTHER_TERMS = {
    "another method": ("method.name", "ditto"),
    "another hyperparameter": ("method.lr", 9.0),
    "a larger clip": ("method.clip", 50.0),
    "more rounds": ("rounds", 1000),
    "another model": ("model", "mlp"),
    "no privacy": ("privacy", None),
    "less noise": ("privacy.noise", 0.01),
    "another delta": ("privacy.delta", 0.5),
    "other neighbours": ("privacy.neighbours", "replace"),
    "another cohort": ("cohort", 0.1),
    "scores": ("metrics", True),
    "a seed": ("seed", 5),
    "other silos": ("silos", ["task-0", "me"]),
    "a server's rule": ("publishing", {"rule": "momentum"}),
    "servers on shares": ("curator", {"servers": 3}),
    "something unheard of": ("backdoor", True),
}


@pytest.mark.parametrize("what", OTHER_TERMS)
def test_terms_that_were_not_agreed_are_refused(what, asked):
    name, value = OTHER_TERMS[what]
    terms = asked.terms.to_json()
    outer, _, inner = name.partition(".")
    terms[outer] = terms[outer] | {inner: value} if inner else value
    asked.sees_refused(f"{name} is ", round=1, terms=terms)
    vector(asked.ask(round=1))


def test_terms_that_leave_something_out_are_refused(asked):
    terms = asked.terms.to_json()
    del terms["rounds"]
    asked.sees_refused("rounds is null, agreed was 3", round=1, terms=terms)
    asked.sees_refused("this was not agreed", round=1, terms={})


def test_many_differences_are_not_listed_without_end(asked):
    terms = {f"extra-{k}": "x" * 1000 for k in range(1000)}
    reply = asked.ask(round=1, terms=terms)
    assert reply.state == "refused" and len(reply.reason) < 500


def test_a_coordinator_cannot_write_lines_of_a_silos_log(asked):
    forged = "2026-01-01 00:00:00  the run is over"
    asked.ask(round=1, terms=asked.terms.to_json() | {f"x\n{forged}\x1b[2J\r": 1})
    assert not any(line.startswith(forged) for line in asked.log.splitlines())
    assert forged in asked.log and "\x1b" not in asked.log and "\r" not in asked.log


def test_rounds_beyond_the_agreed_number_are_refused(asked):
    asked.sees_refused("round 4 was asked for, agreed were 3", round=3)
    asked.sees_refused("round 10000000001 was asked for", round=10**10)
    asked.sees_refused("round 5 was asked for", kind="finish", round=4)


@pytest.mark.parametrize("run", ["", "..", "../../elsewhere", "A" * 32, "0" * 31, "0" * 33])
def test_a_run_cannot_be_named_like_a_path(run, asked):
    before = set(asked.folder.rglob("*"))
    asked.sees_refused("32 hexadecimal digits", round=1, run=run)
    assert set(asked.folder.rglob("*")) == before


def test_a_key_that_changes_in_mid_run_is_refused(asked):
    key = asked.start["key"]
    asked.sees_refused(f"key is {key + 1} now, and was {key}", round=1, key=key + 1)


@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_noise_that_changes_in_mid_run_is_refused(noise, asked):
    asked.sees_refused(f"noise is {noise} now, and was 2.0", round=1, noise=noise)
    asked.reopened().sees_refused(f"noise is {noise} now, and was 2.0", round=1, noise=noise)


def test_another_key_than_the_agreed_seed_is_refused(federation, tmp_path):
    asked = Asked(agreed(federation, seed=7), federation, tmp_path)
    asked.sees_refused("the key is 8, agreed was seed 7", key=8)
    vector(asked.ask())


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.99])
def test_too_little_noise_is_refused_from_the_start(noise, federation, tmp_path):
    asked = Asked(agreed(federation), federation, tmp_path)
    asked.sees_refused("was offered, agreed was 2", noise=noise)
    vector(asked.ask())  # what was refused has not begun, and takes no run away


@pytest.mark.parametrize("metrics", [False, True])
@pytest.mark.parametrize("cohort", [1.0, 0.5])
def test_noise_must_be_enough_for_the_agreed_epsilon(metrics, cohort, federation, tmp_path):
    privacy = tacit.Privacy(epsilon=3.0)
    terms = agreed(federation, privacy=privacy, metrics=metrics, cohort=cohort)
    asked = Asked(terms, federation, tmp_path)
    enough = asked.start["noise"]
    asked.sees_refused("agreed was ε=3", noise=0.98 * enough)
    asked.sees_refused("agreed was ε=3", noise=0.0)
    vector(asked.ask(noise=enough))


def test_the_noise_for_fewer_rounds_is_not_enough(federation, tmp_path):
    privacy = tacit.Privacy(epsilon=3.0)
    few = Asked(agreed(federation, privacy=privacy, rounds=1), federation, tmp_path / "few")
    asked = Asked(agreed(federation, privacy=privacy), federation, tmp_path / "all")
    asked.sees_refused("after 3 releases, agreed was ε=3", noise=few.start["noise"])


def test_noise_that_is_no_noise_leaves_nothing(federation, tmp_path):
    asked = Asked(agreed(federation), federation, tmp_path)
    reply = asked.ask(noise=-1.0)
    assert reply.state != "done" and not reply.tensors and not asked.booked()
    with pytest.raises(Unreadable):
        asked.ask(noise=10**400)
    assert not asked.booked()


@pytest.mark.parametrize("clip", [0.500002, 5.0, 1e30, 0.4, 0.0, -0.5, None])
def test_another_clip_than_the_agreed_is_refused(clip, asked):
    asked.sees_refused("a clip of", round=1, clip=clip)


def test_a_clip_may_be_off_by_rounding(asked):
    vector(asked.ask(round=1, clip=0.5 * (1 + 5e-7)))


@pytest.mark.parametrize("round", [0, 1, 2])
def test_an_adaptive_clip_grows_no_faster_than_its_rule(round, federation, tmp_path):
    method = tacit.PMTL(clip=0.5, clip_quantile=0.6)
    asked = Asked(agreed(federation, method), federation, tmp_path)
    largest = 0.5 * math.exp(CLIP_STEP * 0.6 * round)
    asked.sees_refused("agreed was at most", round=round, clip=largest * 1.00001)
    sent = vector(asked.ask(round=round, clip=largest * (1 - 1e-9)))
    assert float((sent**2).sum()) <= 1 + 1e-6


def test_an_adaptive_clip_may_shrink(federation, tmp_path):
    method = tacit.PMTL(clip=0.5, clip_quantile=0.6)
    asked = Asked(agreed(federation, method), federation, tmp_path)
    sent = vector(asked.ask(round=1, clip=0.01))
    assert float((sent**2).sum()) <= 1 + 1e-6


def test_a_clip_where_none_was_agreed_is_refused(federation, tmp_path):
    asked = Asked(agreed(federation, relaxed=True), federation, tmp_path)
    asked.sees_refused("contributions are not clipped", clip=1.0)
    vector(asked.ask())


@pytest.mark.parametrize("spread", [0.0, 0.1, 100.0, -1.0])
def test_another_spread_of_the_noise_than_the_agreed_is_refused(spread, asked):
    asked.sees_refused("spread", round=1, spread=spread)


def _first(change):
    """Changes the first tensor of a billboard."""

    def changed(board):
        name = next(iter(board))
        return board | {name: change(board[name])}

    return changed


BOARDS = {
    "another shape": (_first(lambda value: torch.zeros(len(value) + 1)), "expected"),
    "one more dimension": (_first(lambda value: value.unsqueeze(0)), "expected"),
    "another type": (_first(torch.Tensor.double), "torch.float64"),
    "whole numbers": (_first(torch.Tensor.int), "torch.int32"),
    "not a number": (_first(lambda value: value * torch.nan), "not finite"),
    "infinity": (_first(lambda value: value + torch.inf), "not finite"),
    "one tensor more": (lambda board: board | {"more": torch.zeros(1)}, "more, expected"),
    "other names": (lambda board: {f"x{name}": value for name, value in board.items()}, "has x"),
    "nothing": (lambda board: {}, "has nothing"),
}


@pytest.mark.parametrize("what", BOARDS)
@pytest.mark.parametrize("kind", ["train", "finish"])
def test_a_billboard_that_is_none_is_refused(what, kind, asked):
    change, words = BOARDS[what]
    request = asked.request(kind, 1)
    asked.sees_refused("the billboard", asked.request(kind, 1, tensors=change(request.tensors)))
    assert words in asked.log
    vector(asked.ask(round=1))


def test_scores_that_were_not_agreed_are_refused(asked):
    assert asked.ask(kind="finish", round=3).state == "done"
    asked.sees_refused("scores were asked for, which was not agreed", kind="measure", round=3)


def test_scores_before_the_end_are_refused(federation, tmp_path):
    asked = Asked(agreed(federation, metrics=True), federation, tmp_path)
    vector(asked.ask(round=0))
    asked.sees_refused("before the run was over", kind="measure", round=3)


def test_shares_without_servers_are_refused(asked):
    asked.sees_refused("shares were asked for", kind="share", round=1)


def test_an_answer_on_the_billboard_is_refused(asked):
    asked.sees_refused("no curator that answers", kind="receive", round=0)


@pytest.fixture
def exchanging(tmp_path):
    federation = headed()
    return Asked(agreed(federation, tacit.FedAMP(), relaxed=True), federation, tmp_path)


def test_an_answer_for_a_round_that_was_not_trained_is_refused(exchanging):
    answer = {"answer": torch.zeros(1, exchanging.coordination.course.contribution_size)}
    exchanging.sees_refused("nothing was sent in round 1", kind="receive", tensors=answer)
    vector(exchanging.ask(round=0))
    exchanging.sees_refused("nothing was sent in round 2", kind="receive", round=1, tensors=answer)


@pytest.mark.parametrize("what", ["shape", "type", "nan", "name", "nothing"])
def test_an_answer_that_is_none_is_refused(what, exchanging):
    vector(exchanging.ask(round=0))
    right = torch.zeros(1, exchanging.coordination.course.contribution_size)
    answers = {
        "shape": {"answer": right[:, 1:]}, "type": {"answer": right.double()},
        "nan": {"answer": right * torch.nan}, "name": {"x": right}, "nothing": {},
    }  # fmt: skip
    exchanging.sees_refused("the answer has", kind="receive", tensors=answers[what])
    assert exchanging.ask(kind="receive", tensors={"answer": right}).state == "done"


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"garbage" * 10, b"{}"])
def test_garbage_never_reaches_a_silo(content, asked):
    with pytest.raises(Unreadable):
        type(asked.request()).from_bytes(content)
    with pytest.raises(Unreadable):
        type(asked.request()).from_bytes(asked.request().to_bytes()[:-1])


def test_runs_beyond_the_allowed_number_are_refused(asked):
    asked.sees_refused("takes part in 1 run under these terms, and has", run=run_name(1))
    asked.reopened().sees_refused("takes part in 1 run", run=run_name(1))
    assert not (asked.folder / "runs" / run_name(1)).exists()


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (torch.zeros(4), "agreed were 3"),
        (torch.zeros(3, 1), "agreed were 3"),
        (torch.tensor([0.0, torch.nan, 0.0]), "not finite"),
        (torch.tensor([0.0, torch.inf, 0.0]), "not finite"),
        (torch.tensor([1.0, 0.01, 0.0]), "longer than the clip"),
    ],
)
def test_the_last_look_stops_what_must_not_leave(vector, words):
    with pytest.raises(Refused, match=words):
        check_leaving(vector, 3, bounded=True)


def test_the_last_look_lets_through_what_is_within_the_clip():
    vector = torch.tensor([0.6, 0.0, 0.8])
    assert check_leaving(vector, 3, bounded=True) is vector
    assert len(check_leaving(5 * vector, 3, bounded=False)) == 3


def test_a_run_that_promises_nothing_can_end(federation, tmp_path):
    terms = agreed(federation, privacy=tacit.Privacy(noise=0.0))
    asked = Asked(terms, federation, tmp_path)
    vector(asked.ask(round=0))
    assert asked.ask(kind="finish", round=3).state == "done"
    assert "ε=∞ of inf spent" in asked.log


def test_a_silo_that_is_drawn_in_every_round_of_a_sampled_run_refuses(federation, tmp_path):
    """Half of 40 rounds were agreed: 30 in a row have a chance below one in a thousand million."""
    terms = agreed(federation, cohort=0.5, rounds=40)
    always = Asked(terms, federation, tmp_path)
    states = [always.ask(round=round).state for round in range(30)]
    assert states == ["done"] * 29 + ["refused"]
    assert max(always.booked()) == 28
    assert "drawn in 30 of 30 rounds, but 0.5 of them were agreed" in always.log


def test_a_silo_contributes_in_its_own_turns_and_in_no_others(federation, tmp_path):
    privacy = dataclasses.replace(AGREED, sampling="in-turn")
    terms = agreed(federation, privacy=privacy, cohort=1 / 3, rounds=6, metrics=True)
    turns = []
    for task in range(3):
        asked = Asked(terms, federation, tmp_path, task=task)
        mine = [
            round for round in range(7) if task in asked.coordination.course.channel.cohort(round)
        ]
        for round in range(6):
            if round in mine:
                assert asked.ask(round=round).state == "done"
            else:
                asked.sees_refused("not this silo's turn", round=round)
        assert asked.booked() == list(range(max(set(mine) - {6}) + 1))
        assert asked.ask(kind="finish", round=6).state == "done"
        if 6 in mine:
            assert asked.ask(kind="measure", round=6).state == "done"
        else:
            asked.sees_refused("not this silo's turn", kind="measure", round=6)
        turns += mine
    assert sorted(turns) == list(range(7))


def test_a_silo_that_is_drawn_as_agreed_is_never_drawn_too_often():
    draw = np.random.default_rng(0)
    for rate in (0.1, 0.5, 0.9, 1.0):
        for _ in range(20):
            asked = 0
            for round in range(200):
                asked += draw.random() < rate
                if asked:
                    check_often(asked, round + 1, rate)
