"""No file, however damaged, ends in a traceback, a hang or a full memory."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tacit import TacitError
from tacit.data import from_table
from tacit.data.schema import Schema
from tacit.experiment import toml as config
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


def test_what_long_hunts_found(tmp_path):
    """Each ended in a traceback, or in several lines, after minutes of changed files."""
    huge = tmp_path / "huge.toml"
    huge.write_text(f"[run]\nrounds = {10**400}\n", encoding="utf-8")
    table = tmp_path / "table.csv"
    table.write_text('"si\nte",age,outcome\na,1,2\n', encoding="utf-8")
    sentences = [
        (lambda: config.read(huge), "more than 64 bits"),
        (lambda: Schema.from_json('{"columns": [], "target": [{"name": ["y"]}]}'), "cannot be"),
        (lambda: Schema.from_json('{"version": [1], "columns": []}'), "cannot be read"),
        (lambda: from_table(table, task="site", target="outcome"), "no column 'site'"),
    ]
    for read, words in sentences:
        with pytest.raises(TacitError, match=words) as found:
            read()
        assert "\n" not in str(found.value)
