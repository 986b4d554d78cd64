"""Events say everything that pages need, and nothing that goes wrong with them changes a run."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from pathlib import Path
from random import Random

import pytest

import tacit
from tacit.deploy import events
from tacit.deploy.conduct import RESULT, STATUS
from tacit.deploy.diary import EVENTS, LOG, Diary, Entry, read_diary
from tacit.deploy.events import KINDS, Contributed, Event, Spending
from tacit.deploy.personal import keep_personal
from tacit.engine.progress import silent as no_progress
from tacit.report import silo as silo_page
from tests.deploy.asked import Asked, agreed, federation_of, vector
from tests.deploy.runs import run
from tests.fuzz.mutate import mutated

SPENT = Spending(0.5, None, "add-remove", 0.001, "Poisson cohorts q=0.5", "PLD")
SAMPLES = [
    events.Contributed(2, True, 5, 0.25, 0.5, False, SPENT),
    events.Contributed(2, False, 5, 0.25, None, True, dataclasses.replace(SPENT, accountant=None)),
    events.SharesHanded(0, None, 3, None),
    events.AnswerTaken(1),
    events.RunOver(SPENT),
    events.ScoresSent(False, SPENT),
    events.RequestRefused("train", 0, "too much"),
    events.RequestFailed("finish", 3, "ValueError", "no rows", "a\nb"),
    events.ModelKept("trained alone"),
    events.SiloSilent("north", "train", 0),
    events.SiloDeclined("north", "refused", "train", 0, "no”"),
    events.SiloExcluded("north", "is too long"),
    events.SiloLeftOut("north", 9),
    events.PartyFailed("server-1", "left", 0),
    events.RoundFailed(0, "nobody came", kept=True),
    events.RoundsOver(3, None),
    events.ScoresWithheld("the budget is spent"),
    events.GuaranteeGiven(None, None, "no privacy (ε=∞)"),
    events.StrangerTurnedAway("a message without end", "10.0.0.1"),
]


@pytest.fixture(scope="module")
def federation():
    return federation_of(3)


@pytest.fixture(scope="module")
def terms(federation):
    return agreed(federation, seed=3, rounds=2, metrics=True)


def diary_of(folder):
    entries, unreadable = read_diary(folder)
    assert not unreadable
    return entries


def said(folder):
    return "".join(f"{entry.when}  {entry.said}\n" for entry in diary_of(folder))


def spoiled(folder, change):
    for path in folder.rglob(EVENTS):
        path.write_bytes(change(path.read_bytes()))


def test_every_kind_is_known_and_comes_back_as_it_was(tmp_path):
    assert {type(sample) for sample in SAMPLES} == set(KINDS.values()) == set(every(Event))
    for sample in SAMPLES:
        Diary(tmp_path).write(sample)
    assert [entry.event for entry in diary_of(tmp_path)] == SAMPLES
    assert (tmp_path / LOG).read_text() == said(tmp_path)
    for name in (LOG, EVENTS):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def every(kind):
    return [one for child in kind.__subclasses__() for one in (child, *every(child))]


def test_what_a_run_across_silos_writes_down(terms, federation, tmp_path):
    done, _ = run(terms, federation, tmp_path)
    for name in ("coordinator", "silo-0", "silo-1", "silo-2"):
        assert (tmp_path / name / LOG).read_text() == said(tmp_path / name)
    lines = (tmp_path / "silo-0" / EVENTS).read_text().splitlines()
    names = [json.loads(line)["kind"] for line in lines]
    assert names == ["contributed", "contributed", "run over", "scores sent"]
    first = diary_of(tmp_path / "silo-0")[0].event
    assert isinstance(first, Contributed) and (first.round, first.takes_part) == (0, True)
    assert first.numbers == 5 and 0 < first.length <= 1 and first.clip == 0.5 and first.spent
    last = diary_of(tmp_path / "coordinator")[-1].event
    assert last == events.GuaranteeGiven(
        done.guarantee.epsilon, done.guarantee.delta, str(done.guarantee)
    )


@pytest.mark.parametrize(
    "change",
    [lambda content: content[:-9], lambda content: b"", lambda content: b"[" * 99_999],
    ids=["cut", "emptied", "nested"],
)
def test_a_damaged_diary_changes_no_answer_and_no_epsilon(change, terms, federation, tmp_path):
    calm, asked = (Asked(terms, federation, tmp_path / name) for name in ("calm", "damaged"))
    for one in (calm, asked):
        vector(one.ask(round=0))
    spoiled(tmp_path / "damaged", change)
    for one in (calm, asked):
        assert vector(one.reopened().ask(round=1)).any()
        assert one.ask(kind="finish", round=2).state == "done"
    reports = []
    for one in (calm, asked):
        work = one.silo.latest()
        assert work is not None
        reports.append(keep_personal(work, one.silo.own, "none", one.folder, no_progress))
    assert reports[0]["spent"] == reports[1]["spent"] and reports[0]["spent"]["epsilon"] > 0
    assert reports[0]["guarantee"] == reports[1]["guarantee"]
    assert (reports[0]["contributions"], reports[0]["unreadable_events"]) == (2, 0)
    log = [(entry.when, entry.said) for entry in read_diary(asked.folder)[0]]
    text = silo_page.page(reports[1], log)
    assert ("so there may have been more" in text) == bool(reports[1]["unreadable_events"])


def test_a_coordinator_goes_on_beside_a_damaged_diary(terms, federation, tmp_path):
    first, _ = run(terms, federation, tmp_path)
    kept, random = shown(tmp_path), Random(0)
    spoiled(tmp_path, lambda content: mutated(content, random))
    again, _ = run(terms, federation, tmp_path)
    assert str(again.guarantee) == str(first.guarantee)
    assert shown(tmp_path) == kept


def shown(folder):
    """What the coordinator says was spent."""
    status, result = (
        json.loads((folder / "coordinator" / name).read_text()) for name in (STATUS, RESULT)
    )
    return status["epsilon"], result["guarantee"]


def test_a_silo_answers_when_no_event_can_be_written(terms, federation, tmp_path):
    """`answer` never raises, and what is not written down does not leave."""
    asked = Asked(terms, federation, tmp_path)
    vector(asked.ask(round=0))
    (asked.folder / EVENTS).unlink()
    (asked.folder / EVENTS).mkdir()
    assert asked.ask(round=0, noise=1e-9).state == "refused"
    reply = asked.ask(round=1)
    assert reply.state == "failed" and not reply.tensors
    assert asked.booked() == [0, 1]


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    Diary(tmp_path).write(SAMPLES[0])
    path = tmp_path / EVENTS
    path.write_bytes(path.read_bytes()[:-30])
    Diary(tmp_path).write(SAMPLES[1])
    entries, unreadable = read_diary(tmp_path)
    assert [entry.event for entry in entries] == [SAMPLES[1]] and unreadable == 1


def test_an_event_is_on_disk_before_anything_is_sent(tmp_path, monkeypatch):
    safe: dict[str, bytes] = {}

    def fsync(file):
        path = os.readlink(f"/proc/self/fd/{file}")
        safe[path] = b"" if os.path.isdir(path) else Path(path).read_bytes()

    monkeypatch.setattr(os, "fsync", fsync)
    Diary(tmp_path).write(SAMPLES[0])
    assert safe[str(tmp_path / EVENTS)] == (tmp_path / EVENTS).read_bytes() != b""
    assert str(tmp_path) in safe  # the folder knows of the new file


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", '"a"', "{}", '{"time": "2026-01-01T00:00:00+00:00"}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": "invented"}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": "answer taken", "round": true}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": "answer taken", "round": 1, "more": 1}',
        '{"time": "yesterday", "kind": "answer taken", "round": 1}',
        '{"time": 7, "kind": "answer taken", "round": 1}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": ["answer taken"], "round": 1}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": "run over", "spent": {"epsilon": 1}}',
        '{"time": "2026-01-01T00:00:00+00:00", "kind": "run over", "spent": 3}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_event_is_passed_over(line, tmp_path):
    good = Entry("2026-01-01T00:00:00+00:00", SAMPLES[3]).to_json()
    (tmp_path / EVENTS).write_text(f"{good}\n{line}\n{good}\n")
    entries, unreadable = read_diary(tmp_path)
    assert len(entries) == 2 and unreadable == bool(line)


def test_the_page_of_a_silo_reads_fields_and_no_sentences(terms, federation, tmp_path):
    asked = Asked(terms, federation, tmp_path)
    vector(asked.ask(round=0))
    asked.ask(kind="finish", round=2)
    liar = events.RequestRefused(
        "train", 1, "contribution of round 9: 5 numbers; ε=0.01 of 1 spent ()"
    )
    asked.silo.diary.write(liar)
    work = asked.silo.latest()
    assert work is not None
    report = keep_personal(work, asked.silo.own, "best", asked.folder, no_progress)
    assert report["contributions"] == 1
    text = html.unescape(silo_page.page(report, []))
    assert "1 contribution of up to 5 numbers of length 0.5 at most, by this silo's own log" in text
    assert f"{report['spent']['in_words']}, over all runs in this folder" in text
    assert "any one silo added or removed" in text and "stay with their silos" in text
    assert report["ended"]["start"] in ("alone", "billboard", "own")
    assert silo_page.ENDED[report["ended"]["start"], report["ended"]["trained"]] in text
    older = {name: report[name] for name in report if name not in ("contributions", "ended")}
    older |= {"spent": "ε=1.00 of 2 spent (add-remove)"}
    text = html.unescape(silo_page.page(older, []))
    assert "log.txt says how many" in text and report["chosen"] in text
    assert "ε=1.00 of 2 spent (add-remove), over all runs" in text


def test_without_privacy_nothing_is_spent(federation, tmp_path):
    asked = Asked(agreed(federation, tacit.FedAvg(), relaxed=True), federation, tmp_path)
    vector(asked.ask(round=0))
    assert "sent to the coordinator; nothing is booked: this run has no ε" in asked.log
    event = diary_of(asked.folder)[0].event
    assert isinstance(event, Contributed) and event.spent is None
