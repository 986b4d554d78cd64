"""The ledger is written first, survives a torn write, and decides ε alone."""

from __future__ import annotations

import json
import math
import os

import pytest

from tacit import Privacy, TacitError
from tacit.privacy import Everyone, InTurn, Ledger, Poisson, Release, guarantee, spent
from tacit.privacy.guarantee import delta_up, epsilon_up


def test_entries_are_on_disk_when_book_returns_and_come_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.at(path)
    turn = InTurn(3, 9).at(1, key=2**47)
    for round, sampler in enumerate((Poisson(0.5), turn, Everyone(), Poisson(0.5))):
        ledger.book(round, Release(sampler, 4.0), repeatable=False, clip=1.0)
        assert len(path.read_text().splitlines()) == round + 1
    again = Ledger.at(path)
    assert again.releases() == ledger.releases()
    assert again.releases()[Release(Poisson(0.5), 4.0)] == 2


def test_an_entry_is_flushed_and_forced_to_disk_before_book_returns(tmp_path, monkeypatch):
    """A crash of the machine, not only of the process, must not lose what is about to be told."""
    path, forced = tmp_path / "ledger.jsonl", []
    sync = os.fsync
    monkeypatch.setattr("os.fsync", lambda file: (forced.append(path.read_text()), sync(file)))
    Ledger.at(path).book(0, Release(Poisson(0.5), 4.0), repeatable=False)
    assert len(forced[-1].splitlines()) == 1 and len(forced) == 2  # that it is there, and the entry
    path.write_text(path.read_text() + '{"round": 1')
    Ledger.at(path).book(1, Release(Poisson(0.5), 4.0), repeatable=False)
    assert len(forced[-1].splitlines()) == 2
    assert len(Ledger.at(path)) == 2


def test_figures_are_rounded_up_and_never_down():
    assert [epsilon_up(x) for x in (1.0, 1.001, 0.1, 0.09911, 0.00123, 0.0, math.inf)] == [
        "1.00", "1.01", "0.10", "0.0992", "0.00123", "0.00", "∞",
    ]  # fmt: skip
    assert [delta_up(x) for x in (0.001, 0.0012341, 1 / 3, 1e-7)] == [
        "0.001", "0.00124", "0.334", "1e-07",
    ]  # fmt: skip


def test_an_old_ledger_of_random_cohorts_of_exact_size_is_not_read_as_anything_cheaper(tmp_path):
    path = tmp_path / "ledger.jsonl"
    old = {"round": 0, "noise_multiplier": 4.0, "sampling": {"name": "fixed-size", "size": 3}}
    path.write_text(json.dumps(old) + "\n")
    with pytest.raises(TacitError, match="promised too small an ε"):
        Ledger.at(path).releases()


def test_a_torn_last_line_is_cut_off_and_a_damaged_middle_is_an_error(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.at(path)
    ledger.book(0, Release(Poisson(0.5), 4.0), repeatable=False)
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    torn = Ledger.at(path)
    assert len(torn) == 1 and path.read_text() != whole  # looking changes nothing
    torn.book(1, Release(Poisson(0.5), 4.0), repeatable=False)
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [0, 1]
    path.write_text("{broken\n" + whole)
    with pytest.raises(TacitError, match="line 1 cannot be read"):
        Ledger.at(path)


def test_only_a_seeded_round_may_repeat_without_being_booked_again():
    ledger = Ledger()
    for _ in range(2):
        ledger.book(0, Release(Poisson(0.5), 4.0), repeatable=True)
    assert len(ledger) == 1
    for _ in range(2):
        ledger.book(1, Release(Poisson(0.5), 4.0), repeatable=False)
    assert len(ledger) == 3


def test_releases_before_a_round_leave_out_what_a_crash_cut_off():
    """Rounds 2 and 3 were booked, the second one twice; the run goes on from round 2."""
    ledger = Ledger()
    for round in (-1, 0, 1, 2, 2, 3):
        ledger.book(round, Release(Poisson(0.5), 4.0), repeatable=False)
    assert [ledger.before(round) for round in range(5)] == [1, 2, 3, 5, 6]


def test_noise_for_replaced_tasks_pays_for_two_clips_unless_told_otherwise():
    """Who does not say how far a task moves the sum is charged for the whole way."""
    privacy = Privacy(epsilon=1.0, delta=1e-3, neighbours="replace")
    noise = privacy.noise_multiplier(Everyone(), 3, 10)
    assert 0.999 < spent({Release(Everyone(), noise): 3}, 1e-3, "replace").epsilon <= 1.0


def promise(**changes):
    settings = {
        "channel": "billboard",
        "privacy": Privacy(noise=10.0, delta=0.005),
        "tasks": 200,
        "sampler": Poisson(0.49),
        "clip": 0.2,
        "seeded": False,
    }
    return guarantee({Release(Poisson(0.49), 10.0): 1000}, **(settings | changes))


def test_the_guarantee_says_everything_in_words_and_as_json():
    text, data = str(promise()), promise().to_json()
    for words in (
        "ε=4.6",
        "δ=0.005",
        "any one task added or removed",
        "Poisson cohorts q=0.49",
        "1000 releases",
        "PLD accountant",
        "protects each task from all others together",
    ):
        assert words in text
    assert data["private"] is True
    assert data["epsilon"] == pytest.approx(4.62, abs=0.02)
    assert {"delta", "neighbours", "sampling", "accountant", "releases"} <= data.keys()


def test_epsilon_is_never_rounded_down_in_words():
    shown = float(str(promise()).split("ε=")[1].split(" ")[0])
    assert shown >= promise().epsilon


def test_what_voids_the_guarantee_is_said():
    seeded = promise(seeded=True)
    assert not seeded.private
    assert "reproducible, not private" in str(seeded)
    leaky = promise(leaks=("scaling was fitted over all tasks",))
    assert not leaky.private
    assert "not private: scaling was fitted over all tasks" in str(leaky)
    exact = promise(privacy=None)
    assert not exact.private
    assert exact.to_json()["epsilon"] is None
    assert "no privacy (ε=∞)" in str(exact)


def test_delta_defaults_to_a_tenth_of_a_task_and_to_a_thousandth_where_they_are_few():
    assert Privacy(epsilon=1.0).delta_for(200) == pytest.approx(1 / 2000)
    assert Privacy(epsilon=1.0).delta_for(4) == 1e-3


def test_a_delta_that_says_nothing_is_refused_or_called_not_private():
    """δ = 0.999 was accepted, and headed "Private": who shows everything keeps that promise."""
    with pytest.raises(TacitError, match=r"delta=0.999 is more than 1 / tasks, 0.1.*large_delta"):
        Privacy(noise=10.0, delta=0.999).delta_for(10)
    assert Privacy(noise=10.0, delta=0.1).delta_for(10) == 0.1
    asked = Privacy(noise=10.0, delta=0.999, large_delta=True)
    shown = promise(privacy=asked, tasks=10)
    assert shown.delta == 0.999 and not shown.private
    assert "not private: δ is 9.99 / tasks" in str(shown)
    assert promise().private


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "one of the two"),
        ({"epsilon": 1.0, "noise": 1.0}, "one of the two"),
        ({"epsilon": -1.0}, "positive"),
        ({"noise": -1.0}, "zero or a positive"),
        ({"epsilon": 1.0, "delta": 1.5}, "between 0 and 1"),
        ({"epsilon": 1.0, "neighbours": "near"}, "add-remove or replace"),
        ({"epsilon": 1.0, "sampling": "some"}, "choose one of"),
    ],
)
def test_impossible_promises_are_refused(wrong, words):
    with pytest.raises(TacitError, match=words):
        Privacy(**wrong)
