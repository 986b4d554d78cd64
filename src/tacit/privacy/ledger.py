"""The ledger: every release, written and flushed to disk before the release is made.

One JSON object per line; the file only ever grows. A crash between writing and publishing leaves an
entry too many, never one too few. Entries of a seeded run carry the round and a hash of the noisy
sum as identity: when such a run is resumed it repeats the very same release (bit for bit on the
same kind of processor), and publishing the same number twice reveals nothing new. A sum that came
out otherwise, because a silo answered only this time, is booked again. Without a seed the repeated
round has fresh noise, and is booked again, too.

A tuning is one entry (`"kind": "tuning"`), written before its first run: what it costs depends on
how many runs are expected, not on how many were made.

**A chain.** Each line ends with a hash of itself and of all lines before (`chain`), so a line that
was changed, removed or added in between is found. That lines are missing at the end is found by the
checkpoint, which keeps how many there were and the last hash (`mark`, `confirm`): a ledger may have
grown since, and may never be less. Lines of before there was a chain are counted as they stand, and
later ones are chained to them.

| what happened to the file                | what is done                                          |
|------------------------------------------|-------------------------------------------------------|
| the last line is not whole               | it was never released: the next entry takes its place |
| the last line lost only its newline      | it counts; the next entry begins a line of its own    |
| a line changed, lost, moved or doubled   | an error: the chain is broken                         |
| deleted, cut at the end, an older copy   | an error, as soon as there is a checkpoint to compare |
| another process wrote meanwhile          | its entries are read before the next one is written   |
| the disk is full                         | an error, before the release is made                  |
| ledger and checkpoint, both older copies | nobody can tell: keep a folder whole, and one of it   |
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit import files
from tacit.errors import TacitError
from tacit.privacy.accounting import Booked, Release
from tacit.privacy.sampling import UNITS, sampler_from_json
from tacit.privacy.selection import Repeated

CHAIN = ', "chain": "'
REMEDY = (
    "put the whole ledger back from a backup; without one, count every release of this run as "
    "spent, and begin again in another folder"
)


@dataclass
class Ledger:
    """Releases booked so far; on disk when `path` is given, in memory otherwise."""

    path: Path | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    """A line for each release, as it is in the file."""
    _booked: list[Booked] = field(default_factory=list)
    _of_round: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    _heads: list[str] = field(default_factory=lambda: [""])
    """The hash after no line, after the first, …"""
    _lines: int = 0
    _read: int = 0
    """Bytes of the file that are in here."""
    _chained: bool = False

    @classmethod
    def at(cls, path: Path | None) -> Ledger:
        """Open a ledger, with the entries that are already there."""
        ledger = cls(path)
        ledger.catch_up()
        return ledger

    def catch_up(self) -> None:
        """Read what was written since, here or by another process; the file is left as it is."""
        if self.path is None or not (self._read or self.path.exists()):
            return
        known = self._read
        with files.reading(self.path, REMEDY), self.path.open("rb") as file:
            self._take_from(file.fileno())
            if self._read > known:  # whoever wrote it may have died before it was on disk
                os.fsync(file.fileno())

    def book(self, round: int, release: Booked, *, repeatable: bool, **details: Any) -> None:
        """Record a release that is about to be made; returns only when it is on disk."""
        entry = {"round": round, **release.to_json(), **details}
        if self.path is None:
            if not (repeatable and entry in self._of_round.get(round, ())):
                self._add(entry, release, _hash(self._heads[-1], json.dumps(entry)))
            return
        with _open(self.path) as file:
            self._take_from(file)
            if repeatable and entry in self._of_round.get(round, ()):
                return
            text = json.dumps(entry, allow_nan=False)
            head = _hash(self._heads[-1], text)
            line = f'{text[:-1]}{CHAIN}{head}"}}\n'.encode()
            whole = not self._read or os.pread(file, 1, self._read - 1) == b"\n"
            self._write(file, line if whole else b"\n" + line)
            self._add(entry, release, head)
            self._lines, self._chained = self._lines + 1, True

    def _write(self, file: int, line: bytes) -> None:
        """At the end of what was read: after that there is at most part of a line."""
        assert self.path is not None
        with files.writing(self.path):
            if not self._read:  # before the first line: a file with lines is known to be settled
                files.settle(self.path.parent)
            os.ftruncate(file, self._read)
            try:
                written = os.pwrite(file, line, self._read)
                if written < len(line):
                    raise OSError("the disk took only part of a line")
                os.fsync(file)
            except OSError:
                os.ftruncate(file, self._read)
                raise
        self._read += len(line)

    def _take_from(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size < self._read:
            raise TacitError(f"{self.path} was cut or replaced while it was in use; {REMEDY}")
        content = os.pread(file, size - self._read, self._read) if size > self._read else b""
        *lines, rest = content.split(b"\n")
        for line in lines:
            self._take(line)
            self._read += len(line) + 1
        if _is_whole(rest):
            self._take(rest)
            self._read += len(rest)

    def _take(self, line: bytes) -> None:
        if not line:
            return
        self._lines += 1
        with files.reading(Path(f"{self.path}, line {self._lines}"), REMEDY):
            text = line.decode("utf-8")
            body, chained, tail = text.rpartition(CHAIN)
            body = f"{body}}}" if chained else text
            head = _hash(self._heads[-1], body)
            if chained and tail != f'{head}"}}':
                raise ValueError("it was changed, or lines before it were")
            if self._chained and not chained:
                raise ValueError("it was not written by tacit")
            entry = json.loads(body, parse_constant=_refuse)
            self._add(entry, _booked(entry), head)
            self._chained = bool(chained)

    def _add(self, entry: dict[str, Any], booked: Booked, head: str) -> None:
        self.entries.append(entry)
        self._booked.append(booked)
        self._heads.append(head)
        self._of_round.setdefault(entry["round"], []).append(entry)

    @property
    def mark(self) -> dict[str, Any]:
        """What a checkpoint keeps, to know this ledger again."""
        return {"entries": len(self), "head": self._heads[-1]}

    def confirm(self, mark: Any, saved: Path) -> None:
        """Refuse to be less than the ledger that a checkpoint was saved with."""
        if not isinstance(mark, dict) or not isinstance(mark.get("entries"), int):
            raise TacitError(
                f"{saved} does not say how long its ledger was, as before tacit 0.1: finish the "
                "run with the version that began it, or begin again in another folder and add up "
                "what both cost"
            )
        least = mark["entries"]
        if len(self) < least:
            raise TacitError(
                f"{self.path} holds {len(self)} releases, but {least} were made when {saved} was "
                f"saved: put the whole ledger back from a backup; without one, count {least} "
                "releases as spent, and begin again in another folder"
            )
        if least < 0 or self._heads[least] != mark.get("head"):
            raise TacitError(f"{self.path} is not the ledger that {saved} was saved with; {REMEDY}")

    def releases(self) -> Counter[Booked]:
        """What was released, counted: all that an accountant needs."""
        return Counter(self._booked)

    def has(self, round: int) -> bool:
        """Whether a release of this round was booked."""
        return round in self._of_round

    def holds(self, round: int, release: Booked, details: dict[str, Any]) -> bool:
        """Whether this very release was booked."""
        entry = {"round": round, **release.to_json(), **details}
        return entry in self._of_round.get(round, ())

    def before(self, round: int) -> int:
        """Releases booked for earlier rounds (rounds that a crash cut off may lie ahead)."""
        ahead, number = 0, round
        while number in self._of_round:
            ahead, number = ahead + len(self._of_round[number]), number + 1
        return len(self.entries) - ahead

    def __len__(self) -> int:
        return len(self.entries)


def _is_whole(line: bytes) -> bool:
    """A write that a crash cut short is no whole object, and was never released."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _hash(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """The file for one writer at a time; several processes may take turns."""
    with files.writing(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _booked(entry: Any) -> Booked:
    if type(entry["round"]) is not int:
        raise TypeError(f"its round is {entry['round']!r}")
    if entry.get("kind") != "tuning":
        return _release(entry)
    run = frozenset((_release(inner), int(inner["count"])) for inner in entry["run"])
    return Repeated(run, _number(entry["mean"]), _number(entry["shape"]))


def _release(entry: dict[str, Any]) -> Release:
    try:
        sampler = sampler_from_json(entry["sampling"])
    except TacitError as error:
        raise LookupError(str(error)) from error  # the line is to be named, too
    noise, replaced = _number(entry["noise_multiplier"]), _number(entry.get("replaced", 2.0))
    unit = entry.get("unit", "task")
    if unit not in UNITS:
        raise ValueError(f"its unit of privacy is {unit!r}")
    task_clip = None if "task_clip" not in entry else _number(entry["task_clip"])
    return Release(sampler, noise, replaced, unit, task_clip)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a finite number that can be booked")
    return value


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a finite number that can be booked")
