"""The demo across silos: real processes once, and what surrounds them without any."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
import threading
import time
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from typer.testing import CliRunner

from tacit.cli import app
from tacit.data.sets.heart import HOSPITALS
from tacit.demos import deploy as demo_deploy
from tacit.deploy.agreement import Agreement
from tacit.deploy.diary import read_diary
from tacit.deploy.flower.trial import Trial
from tacit.deploy.table import check, own_rows
from tacit.errors import TacitError
from tacit.report.silo import page

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
ASLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
FAILS = (sys.executable, "-c", "print('no such luck'); raise SystemExit(3)")


def cli(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)


@pytest.mark.slow
def test_the_whole_demo(stand_ins, tmp_path, capsys):
    out, began = tmp_path / "demo", time.strftime("%Y-%m-%d %H:%M:%S")
    demo_deploy.run_demo(out, rounds=3)
    shown = capsys.readouterr().out
    assert "STAND-IN data, made up here" in shown and "real data" not in shown
    processes = [int(number) for number in re.findall(r"process (\d+)", shown)]
    assert len(processes) == 5 and all(map(gone, processes))
    assert "no hospital sent them to anybody" in " ".join(shown.split())
    assert re.search(r"Guarantee +ε=4\.00 at δ=0\.000112, any one row added or removed", shown)

    status = json.loads(cli("coordinator", "status", out / "coordinator", "--json"))
    assert (status["round"], status["rounds"], status["over"]) == (3, 3, True)
    assert status["epsilon"] == pytest.approx(4.0, abs=0.01)
    assert {name: silo["excluded"] for name, silo in status["silos"].items()} == dict.fromkeys(
        HOSPITALS
    )
    said = cli("coordinator", "status", out / "coordinator")
    assert "round 3 of 3, over, ε=4.00 spent" in said
    assert said.count("has the last billboard") == 4 and "excluded" not in said

    seen = b"".join(p.read_bytes() for p in (out / "coordinator").rglob("*") if p.is_file())
    for name in HOSPITALS:
        report = json.loads((out / name / "report.json").read_text(encoding="utf-8"))
        row = next(line for line in shown.splitlines() if line.split()[:1] == [name])
        scores = (report["alone"]["accuracy"], report["personal"]["accuracy"])
        assert [f"{100 * score:.1f}" for score in scores] == re.findall(r"(\d+\.\d) %", row)
        assert "ε=4.00 of 4" in row and "spent" not in row
        log = (out / name / "log.txt").read_text(encoding="utf-8").splitlines()
        assert all(began <= line[:19] for line in log)
        sent = [line for line in log if "sent to the coordinator" in line]
        assert len(sent) == 3 and all("numbers, a sum over bounded rows" in line for line in sent)
        assert any("the run is over; ε=4.00 of 4 spent" in line for line in log)
        assert log[-1].endswith(f"the personal model is {report['chosen']}, kept in model/")
        looked = (out / name / "report.html").read_text(encoding="utf-8")
        title = f"<h1>{name}, a silo of heart (made-up patients)</h1>"
        assert title in looked and log[-1][21:] in looked
        assert 'class="box amber"' in looked  # ε = 4 is no strong promise
        entries, unreadable = read_diary(out / name)
        assert [f"{entry.when}  {entry.said}" for entry in entries] == log and not unreadable
        assert re.search(r"3 contributions, each of up to \d+ numbers that are sums", looked)
        assert "how much may be learned about any one row of this silo" in looked
        # What is the silo's own is nowhere at the coordinator: neither its model nor its rows.
        kept = safetensors.torch.load_file(out / name / "model" / "personal.safetensors")
        own = [number.numpy().tobytes() for number in kept.values() if number.numel() > 1]
        assert len(kept) == 2 and own and not any(one in seen for one in own)
        rows = (out / name / "table.csv").read_bytes().splitlines()
        assert len(rows) == 1 + demo_deploy.SIZES[name] and not any(r in seen for r in rows[1:])
        assert (out / name / "node.key").read_bytes() not in seen
    assert not (out / "coordinator" / "model").exists()

    told = re.search(r"Next +tacit (silo predict .*) --out predictions.csv", shown)
    assert told is not None
    made = tmp_path / "predictions.csv"
    cli(*told[1].split(), "--out", made)
    with made.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 5 and all(0 < float(line["probability of 1"]) < 1 for line in lines)

    assert "demo.json" in os.listdir(out)
    with demo_deploy._own_folder(out):
        assert os.listdir(out) == ["demo.json"]  # a finished demo makes room for the next


@pytest.mark.parametrize(
    ("command", "sent", "ends"),
    [
        (FAILS, None, TacitError),
        (ASLEEP, signal.SIGINT, KeyboardInterrupt),
        (ASLEEP, signal.SIGTERM, SystemExit),
    ],
    ids=["a party fails", "Ctrl-C", "terminated"],
)
def test_nothing_is_left_running(stand_ins, monkeypatch, tmp_path, command, sent, ends):
    started = []

    class Watched(Trial):
        def start(self, *names):
            super().start(*names)
            started.extend(self.processes[name] for name in names)
            if sent is not None and names == (self.silos[-1],):
                threading.Timer(0.2, os.kill, (os.getpid(), sent)).start()

    monkeypatch.setattr(demo_deploy, "Trial", partial(Watched, command=command))
    before = signal.getsignal(signal.SIGTERM)
    # As at a terminal: tests that were started in the background would ignore Ctrl-C.
    of_tests = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ends) as caught:
            demo_deploy.run_demo(tmp_path / "demo", rounds=3)
    finally:
        signal.signal(signal.SIGINT, of_tests)
    assert len(started) == 5 and all(gone(process.pid) for process in started)
    assert signal.getsignal(signal.SIGTERM) is before
    if ends is TacitError:
        assert "ended with 3: no such luck" in str(caught.value)
    with demo_deploy._own_folder(tmp_path / "demo"):  # what it left can be cleared as well
        pass


def test_who_is_stuck_is_named(stand_ins, monkeypatch, tmp_path):
    monkeypatch.setattr(demo_deploy, "Trial", partial(Trial, command=ASLEEP))
    monkeypatch.setattr(demo_deploy, "STUCK", 0.1)
    with pytest.raises(TacitError, match=r"nothing happened for 0.1 s; see coordinator/output.txt"):
        demo_deploy.run_demo(tmp_path / "demo", rounds=3)


def test_a_folder_with_other_things_is_left_alone(stand_ins, tmp_path):
    (tmp_path / "mine.txt").write_text("dear")
    with pytest.raises(TacitError, match=r"holds mine.txt, which no finished demo has made"):
        demo_deploy.run_demo(tmp_path, rounds=1)
    out = tmp_path / "demo"
    with demo_deploy._own_folder(out):
        (out / "va").mkdir()
        (out / "va" / "table.csv").write_text("made")
    (out / "va" / "mine.txt").write_text("dear")
    with pytest.raises(TacitError, match=r"holds va/mine.txt"), demo_deploy._own_folder(out):
        pass
    assert (out / "va" / "table.csv").exists() and (out / "va" / "mine.txt").exists()
    (out / "va" / "mine.txt").unlink()
    (out / "away").symlink_to(tmp_path)
    with pytest.raises(TacitError, match=r"holds away"), demo_deploy._own_folder(out):
        pass
    (out / "away").unlink()
    with demo_deploy._own_folder(out):
        assert os.listdir(out) == ["demo.json"]
    assert (tmp_path / "mine.txt").read_text() == "dear"
    with pytest.raises(TacitError, match="is a file"):
        demo_deploy.run_demo(tmp_path / "mine.txt", rounds=1)
    with pytest.raises(TacitError, match="at least 1"):
        demo_deploy.run_demo(out, rounds=0)


def fits(tables, folder: Path) -> dict[str, int]:
    """Rows of each hospital, once its table is what was agreed."""
    (folder / "consortium.toml").write_text(demo_deploy.agreed(7), encoding="utf-8")
    terms = Agreement.read(folder / "consortium.toml").terms
    assert (terms.rounds, terms.cohort, terms.model) == (7, 1.0, "linear")
    assert terms.privacy is not None and terms.privacy["epsilon"] == 4.0
    rows = {}
    for name in terms.silos:
        path = folder / f"{name}.csv"
        demo_deploy.write_table(path, tables[name])
        found = check(terms, name, path)
        assert not found.problems and not found.warnings
        own = own_rows(terms, name, path)
        for x, y in own.parts.values():
            assert x.isfinite().all() and set(y.tolist()) <= {0.0, 1.0}
        rows[name] = found.rows
    return rows


def test_stand_ins_fit_what_is_agreed_and_are_called_so(stand_ins, tmp_path):
    tables, words, _ = demo_deploy.demo_tables()
    assert words.startswith("STAND-IN data") and "TACIT_DATA" in words
    assert fits(tables, tmp_path) == demo_deploy.SIZES
    again, *_ = demo_deploy.demo_tables()
    assert np.array_equal(tables["va"]["age"], again["va"]["age"])


def test_damaged_files_do_not_pass_for_missing_ones(monkeypatch, tmp_path):
    (tmp_path / "heart").mkdir()
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(TacitError, match=r"processed.cleveland.data does not exist"):
        demo_deploy.demo_tables()


@pytest.mark.skipif(not (SHARED / "heart").is_dir(), reason="the hospitals' files are not here")
def test_real_hospitals_fit_too(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(SHARED))
    tables, words, _ = demo_deploy.demo_tables()
    assert words == "real data: 920 patients of four hospitals (UCI heart disease)"
    assert fits(tables, tmp_path) == demo_deploy.SIZES
    ill = {name: round(100 * table["disease"].mean()) for name, table in tables.items()}
    assert ill == {"cleveland": 46, "hungarian": 36, "switzerland": 93, "va": 74}
    lines = (tmp_path / "switzerland.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "age,sex,cp,trestbps,chol,fbs,thalach,restecg,disease"
    assert lines[1] == "32,1,typical,95,,,127,normal,1"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        for name, value in attrs:
            outside = name in ("href", "src") and not str(value).startswith("#")
            assert not outside and not name.startswith("on"), (tag, name, value)

    def handle_data(self, data):
        self.words.append(data)


EVIL = "<script>alert('x')</script>&$\\frac$"


def a_report(**changed) -> dict:
    promise = {
        "epsilon": 1.234, "delta": 0.025, "neighbours": "add-remove", "private": True,
        "channel": "billboard", "seeded": False, "clip": 0.5, "trusts": f"the machine {EVIL}",
        "tuning": EVIL, "assumptions": [EVIL], "leaks": [], "in_words": f"each {EVIL}",
        "party": "silo",
    }  # fmt: skip
    return {
        "silo": EVIL, "consortium": EVIL, "kind": "binary", "rounds": 2, "rows": 30,
        "measured_on": "test", "score": "accuracy", "higher_is_better": True, "chosen": EVIL,
        "personal": {"accuracy": 0.75, "loss": 0.5}, "alone": {"accuracy": 0.5, "loss": 0.625},
        "numbers": 19, "leaves": [EVIL], "guarantee": promise | changed.pop("guarantee", {}),
    } | changed  # fmt: skip


def test_the_page_escapes_everything():
    text = page(a_report(), [("2026-01-01 00:00:00", EVIL), (EVIL, "")])
    assert "<script" not in text
    found = Tags(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.seen)
    assert sum(EVIL in words for words in found.words) >= 9
    assert "all other silos see together" in text and "task" not in " ".join(found.words)
    for shown in ("ε = 1.24", "75.0 %", "50.0 %", "0.500", "0.625", "own 30 rows and chosen"):
        assert shown in text, shown


def test_the_page_says_what_left_and_what_was_spent():
    spent = {"in_words": "ε=1.90 of 2 spent (add-remove, δ=0.025)"}
    log = [
        ("2026-01-01 00:00:01", "the run is over; ε=1.30 of 2 spent (add-remove, δ=0.025)\nmore")
    ]
    text = page(a_report(contributions=1, spent=spent), log)
    assert "1 contribution of up to 19 numbers of length 0.5 at most" in text
    assert "ε=1.90 of 2 spent (add-remove, δ=0.025), over all runs" in text
    assert "the run is over; ε=1.30 of 2 spent (add-remove, δ=0.025)</td>" in text
    text = page(a_report(contributions=3, unreadable_events=2), [])
    assert "3 contributions, each of up to 19 numbers" in text
    assert "2 lines of events.jsonl cannot be read, so there may have been more" in text


def test_the_page_of_a_run_that_promises_nothing():
    nothing = {"epsilon": None, "delta": None, "private": False, "clip": None}
    text = page(a_report(guarantee=nothing, alone=None), [])
    assert "No privacy" in text and "ε = ∞" in text and 'class="box red"' in text
    assert "of any length" in text and "Nothing was booked" in text and "Its log" not in text
    assert "best alone" not in text
    seeded = page(a_report(guarantee={"private": False, "seeded": True}), [])
    assert 'class="figures void"' in seeded and "Reproducible, not private" in seeded
    for ended, words in (
        (("alone", "vanilla", True), "did not help here"),
        (("own", "vanilla", False), "is what the rounds left here"),
        (("own", "vanilla", True), "went on from what the rounds left here"),
        (("billboard", "mean", True), "went on from what was published"),
    ):
        known = dict(zip(("start", "objective", "trained"), ended, strict=True))
        assert words in page(a_report(ended=known), [])
    broken = page(a_report(personal={"accuracy": None, "loss": None}), [])
    assert "–" in broken
