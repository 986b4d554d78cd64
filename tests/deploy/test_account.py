"""A silo's own budget holds over all that it takes part in, whatever a coordinator asks for."""

from __future__ import annotations

import pytest

import tacit
from tacit.privacy import Release
from tacit.privacy.accounting import affordable, spent
from tacit.privacy.ledger import Ledger
from tests.deploy.asked import Asked, agreed, federation_of, run_name, vector


@pytest.fixture(scope="module")
def federation():
    return federation_of()


def room(terms, noise, budget, before=()):
    """What the accountant says that a budget allows."""
    release = Release(terms.sampler(), noise)
    counted = {release: len(before)} if before else {}
    delta = terms.make_privacy().delta_for(len(terms.silos))
    return affordable(counted, [release] * terms.rounds, budget, delta, "add-remove")


def test_a_silos_own_budget_stops_it_exactly_where_the_accountant_says(federation, tmp_path):
    terms = agreed(federation, rounds=6)
    budget = 1.6
    allowed = room(terms, 2.0, budget)
    assert 1 < allowed < 5  # otherwise this test says nothing
    asked = Asked(terms, federation, tmp_path, budget=budget)
    for round in range(allowed):
        vector(asked.ask(round=round))
    words = f"release {allowed + 1} would pass this silo's own budget of ε=1.6"
    asked.sees_refused(words, round=allowed)
    asked.reopened().sees_refused(words, round=allowed)
    asked.sees_refused(words, round=allowed, takes_part=False)  # alike, so nobody can tell
    asked.sees_refused("would pass this silo's own budget", round=5)
    assert asked.booked() == list(range(allowed))
    ledger = Ledger.at(asked.folder / "runs" / asked.run / "ledger.jsonl")
    delta = terms.make_privacy().delta_for(3)
    assert spent(ledger.releases(), delta, "add-remove").epsilon <= budget


def test_a_silo_whose_budget_is_spent_still_takes_the_last_billboard(federation, tmp_path):
    terms = agreed(federation, rounds=6)
    asked = Asked(terms, federation, tmp_path, budget=1.6)
    vector(asked.ask(round=0))
    assert asked.ask(kind="finish", round=6).state == "done"
    assert asked.booked() == list(range(room(terms, 2.0, 1.6)))


def test_rounds_before_the_first_can_be_too_much_already(federation, tmp_path):
    asked = Asked(agreed(federation), federation, tmp_path, budget=0.01)
    asked.sees_refused("which allows 0 of this run", round=0)
    assert not asked.booked()


def test_without_a_budget_of_its_own_a_silo_spends_what_was_agreed(federation, tmp_path):
    privacy = tacit.Privacy(epsilon=3.0)
    asked = Asked(agreed(federation, privacy=privacy), federation, tmp_path, runs=2)
    for round in range(3):
        vector(asked.ask(round=round))
    assert asked.ask(kind="finish", round=3).state == "done"
    reply = asked.ask(round=0, run=run_name(2))
    assert "would pass this silo's own budget of ε=3" in reply.reason
    assert not asked.booked(run_name(2))


@pytest.mark.parametrize("restarts", [False, True])
def test_one_budget_holds_over_two_runs(restarts, federation, tmp_path):
    terms = agreed(federation)
    asked = Asked(terms, federation, tmp_path, budget=1.6, runs=2)
    for round in range(2):
        vector(asked.ask(round=round))
    allowed = room(terms, 2.0, 1.6, before=range(2))
    assert 0 < allowed < 3
    second = run_name(2)
    for round in range(allowed):
        vector(asked.ask(round=round, run=second))
        if restarts:
            asked.reopened()
    assert "own budget" in asked.ask(round=allowed, run=second).reason
    assert asked.booked(second) == list(range(allowed))
    asked.sees_refused("takes part in 2 runs under these terms, and has", run=run_name(3))


def test_two_runs_at_the_same_time_share_the_budget(federation, tmp_path):
    terms = agreed(federation, rounds=6)
    asked = Asked(terms, federation, tmp_path, budget=1.6, runs=2)
    runs = [asked.run, run_name(2)]
    for round in range(6):
        for run in runs:
            asked.ask(round=round, run=run)
    booked = sum(len(asked.booked(run)) for run in runs)
    assert booked == room(terms, 2.0, 1.6)


def test_looking_at_the_last_run_lifts_no_budget(federation, tmp_path):
    asked = Asked(agreed(federation, metrics=True), federation, tmp_path, budget=1.2)
    vector(asked.ask(round=0))
    assert asked.ask(kind="finish", round=3).state == "done"
    assert asked.reopened().silo.latest() is not None
    asked.sees_refused("own budget of ε=1.2", kind="measure", round=3)
