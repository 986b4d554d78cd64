"""Nothing that arrives ends in a traceback, a hang or a full memory."""

from __future__ import annotations

import pytest

from tests.fuzz.net_hunt import hunt
from tests.fuzz.net_readers import READERS

FEW = {"silo": 60}


@pytest.mark.parametrize("name", READERS)
def test_some_changed_messages(name, tmp_path):
    with READERS[name](tmp_path) as reader:
        cases = FEW.get(name, 300)
        found = hunt(name, reader.make, reader.read, reader.words, cases=cases)
    assert found.refused > cases / 5, found


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_minute_of_changed_messages(name, tmp_path):
    with READERS[name](tmp_path) as reader:
        print(name, hunt(name, reader.make, reader.read, reader.words, seconds=60, seed=1))


def test_the_hunt_finds_what_is_wrong():
    with pytest.raises(AssertionError, match="seed 0, case 0"):
        hunt("wrong", lambda random: b"x", lambda content: int(content), KeyError, cases=3)
    with pytest.raises(AssertionError, match="a refusal of"):
        hunt("long", lambda random: b"x" * 5000, _refuse, KeyError, cases=3)


def _refuse(content: bytes) -> None:
    raise KeyError(content)
