"""The live page: what it shows of each kind of folder, and what it never hands out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import tacit
from tacit.deploy.conduct import RESULT, STATUS
from tacit.deploy.diary import Diary
from tacit.deploy.events import RunOver, ScoresWithheld, SiloDeclined
from tacit.errors import TacitError
from tacit.privacy import Ledger, Poisson, Release, spent
from tacit.privacy.guarantee import epsilon_up
from tacit.report.page import POLICY
from tacit.watch import Watch
from tacit.watch.folders import look
from tests.deploy.asked import Asked, agreed, federation_of
from tests.deploy.runs import run as run_silos
from tests.report.conftest import fake_result
from tests.test_cli import fail

RELEASE = Release(Poisson(0.5), 2.0)
HOSTILE = '<script>alert(1)</script>"&'
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TERMS = """
[consortium]
name = "<b>heart</b>"
silos = ["north", "east"]
[data]
target = "y"
kind = "binary"
labels = ["0", "1"]
[data.columns]
age = { range = [0, 120] }
[method]
name = "pmtl"
clip = 0.5
[privacy]
epsilon = 2.0
[run]
rounds = 30
"""


@contextlib.contextmanager
def serving(folder: Path):
    with Watch(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def status_of(server: Watch, path: str, host: str | None = None) -> int:
    """Of a path as it is: a library would tidy it up first."""
    named = "" if host is None else f"Host: {host}\r\n"
    with socket.create_connection(server.server_address, timeout=5) as visitor:
        visitor.sendall(f"GET {path} HTTP/1.0\r\n{named}\r\n".encode())
        return int(visitor.makefile("rb").readline().split()[1])


def shown(folder: Path) -> str:
    with serving(folder) as server:
        return get(server.url)


def book(folder: Path, rounds: int) -> None:
    for number in range(rounds):
        Ledger.at(folder / "ledger.jsonl").book(number, RELEASE, repeatable=False)


@pytest.fixture
def a_run(tmp_path):
    """A run at its third round of five, as a process would have left it."""
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    privacy = dataclasses.asdict(tacit.Privacy(epsilon=2.0))
    settings = {"method": "pmtl", "privacy": privacy, "rounds": 5, "seed": None}
    write(folder, settings)
    book(folder, 3)
    return folder


def write(folder, settings, **beside):
    content = {"settings": settings, "key": 1, "tasks": 40, **beside}
    (folder / "checkpoint" / "settings.json").write_text(json.dumps(content))


@pytest.fixture
def coordinator(tmp_path):
    folder = tmp_path / "coordinator"
    folder.mkdir()
    (folder / "consortium.toml").write_text(TERMS)
    book(folder, 4)
    silos = {
        "north": {"answered": 3, "excluded": None},
        "east": {"answered": None, "excluded": f"is {HOSTILE}"},
    }
    status = {"round": 4, "rounds": 30, "silos": silos, "over": False, "epsilon": 0.01}
    (folder / STATUS).write_text(json.dumps(status))
    (folder / "cohort.json").write_text(json.dumps({"round": 4, "tasks": [987654]}))
    Diary(folder).write(SiloDeclined("east", "refused", "train", 2, HOSTILE))
    return folder


@pytest.fixture
def silo(tmp_path):
    folder = tmp_path / "north"
    folder.mkdir()
    return as_silo(folder)


def as_silo(folder):
    (folder / "consortium.toml").write_text(TERMS)
    given = 'name = "north"\ndata = "rows.csv"\ncoordinator = "localhost:1"\n'
    (folder / "silo.toml").write_text(given)
    return folder


def epsilon(releases: int, tasks: int) -> str:
    delta = tacit.Privacy(epsilon=2.0).delta_for(tasks)
    return epsilon_up(spent({RELEASE: releases}, delta, "add-remove").epsilon)


def test_a_run_shows_its_round_and_epsilon_from_the_ledger(a_run):
    page = shown(a_run)
    assert "Round 3 of 5" in page and f"ε = {epsilon(3, 40)}" in page and "of 2<" in page
    assert "Add-remove, δ=0.001, Poisson cohorts q=0.5, PLD accountant; 3 releases" in page
    book_more = Ledger.at(a_run / "ledger.jsonl")
    book_more.book(2, RELEASE, repeatable=False)  # a crash after the booking: it counts
    assert f"ε = {epsilon(4, 40)}" in shown(a_run) and epsilon(4, 40) > epsilon(3, 40)


def test_a_run_can_be_watched_at_any_moment(tmp_path):
    """Ledger and checkpoint are written while they are read, and epsilon never shrinks."""
    folder, seen = tmp_path / "run", []
    training = threading.Thread(
        target=tacit.train,
        args=(federation_of(3), tacit.FedAvg(clip=0.5)),
        kwargs={
            "privacy": tacit.Privacy(noise=20.0),
            "rounds": 60,
            "baselines": False,
            "personalise": "none",
            "out": folder,
        },
    )
    training.start()
    while training.is_alive():
        if (folder / "checkpoint" / "settings.json").is_file():
            seen.append(look(folder))
        time.sleep(0.002)
    training.join()
    spending = [view.spent.epsilon for view in seen if view.spent is not None]
    assert len(spending) > 5 and spending == sorted(spending)
    assert [view.round for view in seen] == sorted(view.round for view in seen)


def test_what_is_spent_before_the_end_is_what_the_guarantee_says_then(tmp_path):
    run = tacit.train(
        federation_of(3),
        tacit.FedAvg(clip=0.5),
        privacy=tacit.Privacy(noise=4.0),
        rounds=2,
        baselines=False,
        personalise="none",
        out=tmp_path / "run",
    )
    (tmp_path / "run" / RESULT).unlink()
    view = look(tmp_path / "run")
    assert view.round == view.rounds == 2 and view.spent is not None
    assert (view.spent.epsilon, view.spent.delta) == (run.guarantee.epsilon, run.guarantee.delta)


def test_a_run_that_began_before_tasks_were_noted_shows_no_smaller_epsilon(a_run):
    path = a_run / "checkpoint" / "settings.json"
    content = json.loads(path.read_text())
    del content["tasks"]
    path.write_text(json.dumps(content))
    page = shown(a_run)
    assert "ε = " not in page and "said at the end" in page


def test_a_seeded_run_is_marked_and_its_epsilon_struck_out(a_run):
    path = a_run / "checkpoint" / "settings.json"
    content = json.loads(path.read_text())
    content["settings"]["seed"] = 0
    path.write_text(json.dumps(content))
    page = shown(a_run)
    assert "Reproducible, not private" in page and 'class="figures void"' in page


def test_a_broken_ledger_shows_no_epsilon_and_says_so(a_run):
    path = a_run / "ledger.jsonl"
    with serving(a_run) as server:
        path.write_text(path.read_text().replace('"round": 1', '"round": 9'))
        page = get(server.url)
        assert "cannot be shown now" in page and "ε = " not in page
        path.unlink()
        (a_run / "checkpoint" / "settings.json").write_text("{")
        assert "cannot be shown now" in get(server.url)


def test_a_finished_run_shows_verdict_and_guarantee_and_links_the_report(a_run):
    result = fake_result(tasks=5)
    words = "Taking part helped: most tasks are better."
    result["verdict"] = {"sentences": [words], "colour": "green", "label": "not covered"}
    result["stopped"] = f"the budget is spent {HOSTILE}"
    (a_run / RESULT).write_text(json.dumps(result))
    assert "report.html" not in shown(a_run)
    (a_run / "report.html").write_text("the report")
    with serving(a_run) as server:
        page = get(server.url)
        assert "Taking part helped" in page and '<span class="tag">not covered<' in page
        assert "Over after 3 rounds" in page and "Stopped early: the budget is spent &lt;" in page
        assert "ε = 1.98" in page and 'href="report.html"' in page
        assert get(server.url + "report.html") == "the report"


def test_a_coordinator_shows_who_answered_and_never_who_was_drawn(coordinator):
    page = shown(coordinator)
    assert "Round 4 of 30" in page and f"ε = {epsilon(4, 2)}" in page and "= 0.01" not in page
    assert "<td>north</td><td>round 4</td>" in page
    assert "1 × declined" in page and "987654" not in page
    assert "<script>alert" not in page and "<b>heart" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_silo_shows_what_left_and_what_it_spent(tmp_path):
    federation = federation_of(2)
    asked = Asked(agreed(federation), federation, tmp_path)
    assert asked.ask().state == "done"
    assert asked.ask(round=1, clip=3.0).state == "refused"
    folder = as_silo(asked.folder)
    page = shown(folder)
    assert "Round 1 of 30" in page and "1; the last of 5 numbers, within a clip of 0.5" in page
    assert '<dd class="">1 request</dd>' in page and "as private as the rows" in page
    released = Ledger.at(folder / "runs" / asked.run / "ledger.jsonl").releases()
    delta = tacit.Privacy(epsilon=2.0).delta_for(2)
    assert f"ε = {epsilon_up(spent(released, delta, 'add-remove').epsilon)}" in page


def test_a_silo_that_is_done_shows_its_verdict_with_the_label(silo):
    verdict = {"sentences": [f"It helped: {HOSTILE}"], "colour": "green", "label": "not covered"}
    (silo / "report.json").write_text(json.dumps({"verdict": verdict}))
    assert "It helped" not in shown(silo)  # of an earlier run, perhaps
    Diary(silo).write(RunOver(None))
    page = shown(silo)
    assert "It helped" in page and '<span class="tag">not covered<' in page
    assert "<script>alert" not in page


def test_only_two_addresses_exist_and_only_with_the_token(coordinator):
    (coordinator / "report.html").symlink_to("/etc/hostname")
    with serving(coordinator) as server:
        token = server.token
        assert server.server_address[0] == "127.0.0.1" and len(token) >= 32
        assert status_of(server, f"/{token}/") == 200
        wrong = [
            "/",
            "//",
            "//[x",
            "/\x00/",
            "/x/",
            f"/{token[:-1]}/",
            f"/{token}x/",
            f"/?token={token}",
            "/é/",
        ]
        wrong += ["/../", "/consortium.toml", f"/%2e/{token}/", "*"]
        assert {path: status_of(server, path) for path in wrong} == dict.fromkeys(wrong, 403)
        names = ["consortium.toml", "cohort.json", "../north/silo.toml", "report.html/..", "./"]
        names += ["%2e%2e/north/silo.toml", "/etc/passwd", "report.html", "..%2freport.html"]
        for name in names:
            assert status_of(server, f"/{token}/{name}") == 404, name


def test_a_page_that_had_its_own_name_point_here_sees_nothing(coordinator):
    with serving(coordinator) as server:
        path, port = f"/{server.token}/", server.server_port
        for name in ("127.0.0.1", f"127.0.0.1:{port}", f"localhost:{port}", "localhost:9000"):
            assert status_of(server, path, name) == 200, name
        for name in (f"evil.example:{port}", "evil.example", "127.0.0.1.evil.example", "[::1]:1"):
            assert status_of(server, path, name) == 403, name


def test_the_page_may_run_its_own_script_and_nothing_else(coordinator):
    with serving(coordinator) as server:
        with urllib.request.urlopen(server.url, timeout=5) as answer:
            policy, page = answer.headers["Content-Security-Policy"], answer.read().decode()
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert policy.startswith(POLICY) and "script-src 'sha256-" in policy
        assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
        assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in page
        still = get(server.url + "?paused")
        assert "<script" not in still and "refresh" not in still and "Renew again" in still


def test_what_nothing_can_be_seen_of_is_refused(tmp_path, a_run):
    with pytest.raises(TacitError, match="holds no run, silo or coordinator"):
        Watch(tmp_path)
    assert "holds no run" in fail(["watch", str(tmp_path)])
    with serving(a_run) as server, pytest.raises(TacitError, match="--port"):
        Watch(a_run, server.server_port)


def test_looking_changes_nothing(coordinator):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in coordinator.iterdir()}
    shown(coordinator)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in coordinator.iterdir()}
    assert before == after


def test_a_whole_run_across_silos_ends_in_its_guarantee(tmp_path):
    federation = federation_of(3)
    run_silos(agreed(federation, rounds=1, metrics=True), federation, tmp_path)
    folder = tmp_path / "coordinator"
    (folder / "consortium.toml").write_text(TERMS.replace('["north", "east"]', '["a", "b", "c"]'))
    view = look(folder)
    assert view.over and view.guarantee is not None and view.releases == 2
    assert "Over after 1 round" in shown(folder)


def browse(server: Watch, profile: Path, *options: str) -> list[str]:
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    return [CHROMIUM, *flags, *options, server.url]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_with_scripts_sees_what_was_written_later(coordinator, tmp_path, monkeypatch):
    page, looks = Watch.page, []

    def then_written(self, paused):
        made = page(self, paused)
        if not looks:
            Diary(coordinator).write(ScoresWithheld("written later"))
        looks.append(made)
        return made

    monkeypatch.setattr(Watch, "page", then_written)
    with serving(coordinator) as server:
        command = browse(server, tmp_path, "--virtual-time-budget=9000", "--dump-dom")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert b"written later" not in looks[0] and "written later" in done.stdout, done.stderr
    assert 'role="alert" hidden' in done.stdout  # it was reached all the time


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_without_scripts_asks_again(coordinator, tmp_path, monkeypatch):
    page, looks, again = Watch.page, [], threading.Event()

    def counted(self, paused):
        looks.append(paused)
        if len(looks) > 1:
            again.set()
        return page(self, paused)

    monkeypatch.setattr(Watch, "page", counted)
    with serving(coordinator) as server:
        off = "--blink-settings=scriptEnabled=false"
        command = browse(server, tmp_path, off, "--remote-debugging-port=0")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as browser:
            try:
                assert again.wait(30)
            finally:
                browser.terminate()
                browser.communicate(timeout=20)


def test_an_unknown_method_of_http_is_refused(coordinator):
    with serving(coordinator) as server:
        asked = urllib.request.Request(server.url, data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=5)
        assert refused.value.code == 501
        refused.value.close()
