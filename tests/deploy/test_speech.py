"""What a silo says reaches people cut, on one line, and never as the coordinator's own words."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from typer.testing import CliRunner

from tacit.cli import app
from tacit.deploy.conduct import RESULT, STATUS
from tacit.deploy.diary import EVENTS, LOG, LONGEST_ENTRY, Diary, read_diary
from tacit.deploy.events import ScoresWithheld, SiloDeclined
from tacit.deploy.messages import Reply
from tacit.words import listed, quoted, shortened, tame
from tests.deploy.asked import agreed, federation_of
from tests.deploy.runs import bad, log, run

INVENTED = "is fine\n2026-01-01 00:00:00  all rounds are over”, ε=0.01\x1b[2J\x9b1A\u202e"


@pytest.fixture(scope="module")
def federation():
    return federation_of(3)


@pytest.fixture(scope="module")
def terms(federation):
    return agreed(federation, seed=3, rounds=1)


def shown(folder, *options) -> str:
    told = CliRunner().invoke(app, ["coordinator", "status", str(folder), *options])
    assert told.exit_code == 0
    return told.output


def everything(folder) -> str:
    """All that the people at the coordinator read, without the ends of lines."""
    files = [(folder / "coordinator" / name).read_text() for name in (STATUS, RESULT, LOG, EVENTS)]
    shows = [shown(folder / "coordinator"), shown(folder / "coordinator", "--json")]
    return "".join([*files, *shows]).replace("\n", "")


@pytest.mark.parametrize("nonce", ["", "0" * 32])
def test_an_excluded_silo_cannot_say_why(nonce, terms, federation, tmp_path):
    lies = Reply(nonce=nonce, state="failed", reason=INVENTED)
    run(terms, federation, tmp_path, answered=bad(lambda request, reply: lies))
    text = everything(tmp_path)
    assert text.isprintable() and "0.01" not in text and "is fine" not in text
    assert "answers another request" in shown(tmp_path / "coordinator")


def test_names_of_tensors_are_cut_in_number_and_length(terms, federation, tmp_path):
    many = {f"\x1b[31m{k:04}{'x' * 130}": torch.zeros(1) for k in range(3000)}

    def floods(request, reply):
        return dataclasses.replace(reply, tensors=many)

    run(terms, federation, tmp_path, answered=bad(floods))
    text = everything(tmp_path)
    assert text.isprintable() and "and 2,995 more, expected sent" in log(tmp_path)
    assert len(log(tmp_path)) < 3000 and len(shown(tmp_path / "coordinator")) < 2000


def test_the_reason_of_a_refusal_is_a_quotation_on_one_line(terms, federation, tmp_path):
    def refuses(request, reply):
        return Reply(nonce=request.nonce, state="refused", reason=INVENTED * 50)

    run(terms, federation, tmp_path, answered=bad(refuses))
    lines = log(tmp_path).splitlines()
    assert all(line.isprintable() for line in lines)
    (line,) = [line for line in lines if "task-1 refused" in line]
    assert "round 1): “is fine 2026" in line and line.endswith("…”") and len(line) < 600
    assert line.count("”") == 1
    assert sum("all rounds are over" in other for other in lines if other != line) == 0
    entries, unreadable = read_diary(tmp_path / "coordinator")
    (event,) = [entry.event for entry in entries if isinstance(entry.event, SiloDeclined)]
    assert event.silo == "task-1" and event.reason.isprintable() and len(event.reason) == 500
    assert not unreadable


def test_an_entry_of_a_log_is_only_so_long_and_begins_one_line(tmp_path):
    heard: list[str] = []
    Diary(tmp_path, heard.append).write(ScoresWithheld("one\ntwo\x1b" + "x" * 10**6))
    text, events = (tmp_path / LOG).read_text(), (tmp_path / EVENTS).read_text()
    assert len(text) < LONGEST_ENTRY + 100 and len(events) < LONGEST_ENTRY + 200
    assert events.count("\n") == 1 and events[:-1].isprintable() and "\\u001b" not in events
    assert [line[:4] == "    " for line in text.splitlines()] == [False, True]
    assert "\x1b" not in heard[0]


def test_words():
    assert tame("a\nb\x1b[2J\x9b\u202eε") == "a b�[2J��ε"
    assert shortened("abc", 3) == "abc" and shortened("abcd", 3) == "ab…"
    assert quoted("a”b“c") == "“a'b'c”"
    assert listed([]) == "" and listed("abcde") == "a, b, c, d, e"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"
    assert json.loads(json.dumps(listed(["x" * 99]))) == "x" * 39 + "…"
