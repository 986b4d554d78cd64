"""A ledger that lost something, or was changed, is never read as a smaller one."""

from __future__ import annotations

import json
import os
import stat

import pytest

from tacit import TacitError
from tacit.privacy import InTurn, Ledger, Poisson, Release

ONE = Release(Poisson(0.5), 4.0)


@pytest.fixture
def path(tmp_path):
    """Five releases."""
    place = tmp_path / "ledger.jsonl"
    ledger = Ledger.at(place)
    for round in range(5):
        ledger.book(round, ONE, repeatable=False, clip=1.0)
    return place


def test_every_single_bit_of_it_counts(path):
    """Whatever bit a disk flips: an error, or the same releases; never fewer, and never others."""
    whole, booked = path.read_bytes(), Ledger.at(path).releases()
    refused = 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        try:
            found = Ledger.at(path)
        except TacitError as error:
            assert "ledger" in str(error) and "backup" in str(error)
            refused += 1
        else:  # the very last line may have lost its newline, and be no line any more
            assert place >= whole.rstrip().rindex(b"\n") and found.releases() <= booked
            with pytest.raises(TacitError):
                found.confirm(mark_of(whole), path)
    assert refused > 0.8 * len(whole)


def mark_of(content):
    last = json.loads(content.splitlines()[-1])
    return {"entries": len(content.splitlines()), "head": last["chain"]}


@pytest.mark.parametrize("how", ["removed", "doubled", "swapped", "first"])
def test_lines_cannot_be_moved(path, how):
    lines = path.read_text().splitlines(keepends=True)
    changed = {
        "removed": [*lines[:2], *lines[3:]],
        "doubled": [*lines[:3], *lines[2:]],
        "swapped": [lines[1], lines[0], *lines[2:]],
        "first": lines[1:],
    }[how]
    path.write_text("".join(changed))
    with pytest.raises(TacitError, match=r"cannot be read.*put the whole ledger back"):
        Ledger.at(path)


def test_a_checkpoint_finds_what_is_missing_at_the_end_and_allows_what_is_more(path):
    mark, whole = Ledger.at(path).mark, path.read_text()
    Ledger.at(path).book(5, ONE, repeatable=False)
    Ledger.at(path).confirm(mark, path)
    path.write_text("".join(whole.splitlines(keepends=True)[:3]))
    with pytest.raises(TacitError, match=r"holds 3 releases, but 5 were made.*count 5 releases"):
        Ledger.at(path).confirm(mark, path)
    path.unlink()
    with pytest.raises(TacitError, match="holds 0 releases, but 5 were made"):
        Ledger.at(path).confirm(mark, path)
    other = Ledger.at(path)
    for round in range(6):  # longer, but another one
        other.book(round, ONE, repeatable=False)
    with pytest.raises(TacitError, match="is not the ledger that"):
        Ledger.at(path).confirm(mark, path)


@pytest.mark.parametrize("mark", [None, 3, {}, {"entries": "5"}, {"entries": -1, "head": ""}])
def test_a_checkpoint_that_does_not_say_confirms_nothing(path, mark):
    with pytest.raises(TacitError):
        Ledger.at(path).confirm(mark, path)


def test_a_line_that_lost_only_its_newline_counts_and_the_next_stands_below_it(path):
    path.write_text(path.read_text().rstrip("\n"))
    ledger = Ledger.at(path)
    assert len(ledger) == 5
    ledger.book(5, ONE, repeatable=False)
    assert len(path.read_text().splitlines()) == len(Ledger.at(path)) == 6


def test_lines_of_before_there_was_a_chain_count_and_are_chained_from_then_on(tmp_path):
    path = tmp_path / "ledger.jsonl"
    old = [json.dumps({"round": t, **ONE.to_json()}) + "\n" for t in range(3)]
    path.write_text("".join(old))
    ledger = Ledger.at(path)
    ledger.book(3, ONE, repeatable=False)
    assert Ledger.at(path).releases()[ONE] == 4
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(TacitError, match="line 3 cannot be read"):
        Ledger.at(path)
    path.write_text(old[0])
    Ledger.at(path).book(1, ONE, repeatable=False)
    path.write_text(path.read_text() + old[1])
    with pytest.raises(TacitError, match="not written by tacit"):
        Ledger.at(path)


def test_two_writers_take_turns_and_see_each_other(tmp_path):
    path = tmp_path / "ledger.jsonl"
    one, other = Ledger.at(path), Ledger.at(path)
    for round in range(3):
        one.book(round, ONE, repeatable=True)
        other.book(round, ONE, repeatable=True)
        other.book(10 + round, ONE, repeatable=False)
    assert len(Ledger.at(path)) == len(other) == 6
    one.catch_up()
    assert one.mark == other.mark


def test_a_ledger_that_is_cut_or_removed_while_a_run_goes_on_stops_it(path):
    ledger = Ledger.at(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(TacitError, match="cut or replaced while it was in use"):
        ledger.book(5, ONE, repeatable=False)
    path.unlink()
    with pytest.raises(TacitError, match="cannot be read"):
        ledger.catch_up()
    with pytest.raises(TacitError, match="cut or replaced while it was in use"):
        ledger.book(5, ONE, repeatable=False)


def test_a_full_disk_is_a_sentence_before_the_release_and_leaves_the_ledger_whole(
    path, monkeypatch
):
    ledger, before = Ledger.at(path), path.read_bytes()

    def full(file, content, place):
        write(file, content[: len(content) // 2], place)
        raise OSError(28, "No space left on device")

    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(TacitError, match="cannot be written: No space left on device"):
        ledger.book(5, ONE, repeatable=False)
    monkeypatch.undo()
    assert path.read_bytes() == before and len(ledger) == 5
    ledger.book(5, ONE, repeatable=False)
    assert len(Ledger.at(path)) == 6


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b'{"round": 0, "noise_multiplier": NaN, "sampling": {"name": "everyone"}}',
        b'{"round": 0, "noise_multiplier": 1e999, "sampling": {"name": "everyone"}}',
        b'{"round": 0, "noise_multiplier": -4.0, "sampling": {"name": "everyone"}}',
        b'{"round": 0, "noise_multiplier": true, "sampling": {"name": "everyone"}}',
        b'{"round": 0.5, "noise_multiplier": 4.0, "sampling": {"name": "everyone"}}',
        b'{"round": 0, "noise_multiplier": 4.0, "sampling": {"name": "dice"}}',
        b'{"round": 0, "noise_multiplier": 4.0, "sampling": {"name": "poisson", "rate": "x"}}',
        b'{"round": 0, "noise_multiplier": 4.0}',
        b'[{"round": 0}]',
        b"17",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_release_is_a_sentence(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(TacitError, match="line 1 cannot be read"):
        Ledger.at(path)


def test_it_is_for_its_owner_only(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_kept_of_cohorts_in_turn_comes_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    release = Release(InTurn(3, 9).at(1, key=2**47), 4.0, 1.5)
    Ledger.at(path).book(0, release, repeatable=False)
    assert dict(Ledger.at(path).releases()) == {release: 1}
