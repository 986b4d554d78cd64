"""What tacit keeps is for its owner only, whole or not there, and written by one at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

import tacit
from tacit import PMTL, Privacy, TacitError, files
from tests.deploy.asked import Asked, agreed, federation_of


@pytest.fixture
def open_hearted():
    """Whoever forgets a mode shows it to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    every = [folder, *folder.rglob("*")]
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in every if not path.is_symlink()}


def private(folder):
    shown = {
        str(path.relative_to(folder)): oct(mode)
        for path, mode in modes(folder).items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }
    return not shown, shown


def test_a_run_leaves_nothing_that_others_can_read(make_federation, tmp_path, open_hearted):
    tacit.train(
        make_federation(tasks=4), PMTL(batch=4, local_steps=1), privacy=Privacy(noise=9.0),
        rounds=1, baselines=False, store="disk", personalise="mean", out=tmp_path / "runs" / "one",
    )  # fmt: skip
    assert private(tmp_path / "runs") == (True, {})


def test_a_silo_leaves_nothing_that_others_can_read(tmp_path, open_hearted):
    federation = federation_of()
    asked = Asked(agreed(federation), federation, tmp_path)
    assert asked.ask(round=0).state == "done"
    assert asked.ask(kind="finish", round=3).state == "done"
    found = modes(asked.folder)
    found.pop(asked.folder)  # made by the test
    assert len(found) > 5
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}


def test_a_folder_is_closed_with_all_that_had_to_be_made_above_it(tmp_path, open_hearted):
    files.make_folder(tmp_path / "a" / "b")
    assert modes(tmp_path / "a") == {tmp_path / "a": 0o700, tmp_path / "a" / "b": 0o700}
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    files.make_folder(there)
    assert modes(there)[there] == 0o755  # it may be anything: a home, a mount
    files.close_folder(there)
    assert modes(there)[there] == 0o700


def test_nothing_is_written_through_a_link(tmp_path):
    """Somebody who can write to the folder could otherwise have any file overwritten."""
    other = tmp_path / "other"
    for name in ("result.json", "result.json.part"):
        other.write_text("untouched")
        (tmp_path / name).symlink_to(other)
        files.replace(tmp_path / "result.json", b"new")
        assert other.read_text() == "untouched"
        assert (tmp_path / "result.json").read_bytes() == b"new"
        assert not (tmp_path / "result.json").is_symlink()


def test_a_file_in_the_place_of_a_folder_is_a_sentence(make_federation, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TacitError, match=r"is not a folder|cannot be made"):
            tacit.train(make_federation(tasks=3), PMTL(), rounds=1, seed=0, out=out)


def test_the_second_in_a_folder_hears_who_is_there(tmp_path):
    with files.hold(tmp_path), files.hold(tmp_path / "." / "..") as _:
        with files.hold(tmp_path):  # once more, further inside
            pass
        heard = []

        def second():
            try:
                with files.hold(tmp_path):
                    heard.append("nothing")
            except TacitError as error:
                heard.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert f"in use by process {os.getpid()} on" in heard[0]
    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert heard[1] == "nothing"


@pytest.fixture
def held(tmp_path):
    """A folder that somebody else is at work in."""
    begun, over = threading.Event(), threading.Event()

    def work():
        with files.hold(tmp_path):
            begun.set()
            over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    yield tmp_path
    over.set()
    thread.join()


def test_a_run_keeps_out_of_a_folder_that_is_in_use(make_federation, held):
    """Two ledgers in one file would each count half of what was released."""
    privacy = Privacy(noise=9.0)
    with pytest.raises(TacitError, match="in use by process"):
        tacit.train(make_federation(tasks=3), PMTL(), privacy=privacy, rounds=1, out=held)
    assert not (held / "ledger.jsonl").exists()


HOLDER = """
import sys, time
from pathlib import Path
from tacit import files
with files.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_the_kernel_lets_go_of_what_a_killed_process_held(make_federation, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        settings = {"rounds": 1, "seed": 0, "out": tmp_path, "baselines": False}
        with pytest.raises(TacitError, match=f"in use by process {other.pid} on"):
            tacit.train(make_federation(tasks=3), PMTL(), **settings)
        other.kill()
    tacit.train(make_federation(tasks=3), PMTL(), **settings)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"key": 1}', b'{"key": "1", "noise": 1.0}', b"[" * 100_000],
)
def test_damaged_json_is_a_sentence(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(TacitError, match=r"run.json cannot be read: .*; put it back"):
        files.read_json(path, {"key": int, "noise": float}, "put it back")
    with pytest.raises(TacitError, match="cannot be read"):
        files.read_json(tmp_path / "none.json", {}, "put it back")


def test_a_full_disk_is_a_sentence_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    files.replace(path, b"old")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TacitError, match="cannot be written: No space left on device"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"
