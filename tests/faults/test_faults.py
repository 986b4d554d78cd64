"""Whole runs under random schedules; `benchmarks/faults.py` makes hundreds of them."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from tacit import files
from tacit.privacy.ledger import Ledger
from tests.faults.kinds import TRIALS
from tests.faults.schedule import Fault, Schedule
from tests.faults.trains import TrainTrial


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


def held(kind, seeds, tmp_path, quiet):
    """No violation in any; returns what happened."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        trial = TRIALS[kind](f"test {seed}", folder, quiet)
        assert not trial.violations, trial.violations[0]
        happened.update(fault.kind for fault in trial.schedule.happened)
        happened["finished"] += trial.finished
    return happened


@pytest.mark.parametrize("kind", TRIALS)
def test_what_is_promised_holds_under_one_schedule(kind, tmp_path, quiet):
    assert held(kind, range(1), tmp_path, quiet).total() > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRIALS)
def test_what_is_promised_holds_under_many_schedules(kind, tmp_path, quiet):
    happened = held(kind, range(1, 31), tmp_path, quiet)
    assert happened["finished"] > 20 and len(happened) > 8


def tried(folder, *faults):
    schedule = Schedule("by hand", tuple(Fault("run", "disk", at, kind) for at, kind in faults))
    return TrainTrial(folder, schedule, seed=None).run()


def test_a_ledger_that_is_written_after_the_release_is_noticed(tmp_path):
    with mock.patch.object(Ledger, "book", lambda *given, **named: None):
        assert "are booked" in tried(tmp_path).violations[0]


def test_a_ledger_that_a_loss_of_power_takes_away_is_noticed(tmp_path):
    with mock.patch.object(files, "settle", lambda folder: None):
        trial = tried(tmp_path, (50, "power"))
    assert any("are booked" in violation for violation in trial.violations)


def test_an_end_without_a_sentence_is_noticed(tmp_path):
    with mock.patch.object(files, "_short", lambda error: 1 / 0):
        assert "ZeroDivisionError" in tried(tmp_path, (20, "full")).violations[0]
