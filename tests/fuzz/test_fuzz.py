"""No file, however damaged, ends in a traceback, a hang or a full memory."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.fuzz.hunt import hunt
from tests.fuzz.parsers import PARSERS


@pytest.mark.parametrize("parser", PARSERS)
def test_some_damaged_files(parser, tmp_path):
    found = hunt(parser, tmp_path, cases=60)
    assert not found.problems, found.problems[0]
    assert found.sentences > 10, found


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
def test_a_minute_of_damaged_files(parser, tmp_path):
    found = hunt(parser, tmp_path, seed=1, seconds=60)
    print(found)
    assert not found.problems, found.problems[0]


def test_the_hunt_finds_what_is_wrong(tmp_path, monkeypatch):
    """It would be no use if it did not."""
    monkeypatch.setattr("tacit.data.npz.reading", lambda *given: nullcontext())
    assert hunt("npz", tmp_path, cases=60).problems
