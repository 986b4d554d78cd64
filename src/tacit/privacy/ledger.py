"""The ledger: every release, written and flushed to disk before the release is made.

One JSON object per line; the file only ever grows. A crash between writing and publishing leaves an
entry too many, never one too few. Entries of a seeded run carry the round as identity: when such a
run is resumed it repeats the very same release (bit for bit on the same kind of processor), and
publishing the same number twice reveals nothing new. Without a seed the repeated round has fresh
noise, and is booked again.

A tuning is one entry (`"kind": "tuning"`), written before its first run: what it costs depends on
how many runs are expected, not on how many were made.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.privacy.accounting import Booked, Release
from tacit.privacy.sampling import sampler_from_json
from tacit.privacy.selection import Repeated


@dataclass
class Ledger:
    """Releases booked so far; on disk when `path` is given, in memory otherwise."""

    path: Path | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    _of_round: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path | None) -> Ledger:
        """Open a ledger, with the entries that are already there."""
        ledger = cls(path)
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8")
            lines = text.split("\n")
            for number, line in enumerate(lines, start=1):
                if not line:
                    continue
                try:
                    ledger._add(json.loads(line))
                except json.JSONDecodeError as error:
                    if number == len(lines):  # a write cut short by a crash: never released
                        _truncate(path, len(text.encode()) - len(line.encode()))
                        break
                    raise TacitError(f"{path}, line {number} is damaged: {error}") from error
        return ledger

    def book(self, round: int, release: Booked, *, repeatable: bool, **details: Any) -> None:
        """Record a release that is about to be made; returns only when it is on disk."""
        entry = {"round": round, **release.to_json(), **details}
        if repeatable and entry in self._of_round.get(round, ()):
            return
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        self._of_round.setdefault(entry["round"], []).append(entry)

    def releases(self) -> Counter[Booked]:
        """What was released, counted: all that an accountant needs."""
        return Counter(map(_booked, self.entries))

    def has(self, round: int) -> bool:
        """Whether a release of this round was booked."""
        return round in self._of_round

    def before(self, round: int) -> int:
        """Releases booked for earlier rounds (rounds that a crash cut off may lie ahead)."""
        ahead, number = 0, round
        while number in self._of_round:
            ahead, number = ahead + len(self._of_round[number]), number + 1
        return len(self.entries) - ahead

    def __len__(self) -> int:
        return len(self.entries)


def _booked(entry: dict[str, Any]) -> Booked:
    if entry.get("kind") != "tuning":
        return _release(entry)
    run = frozenset((_release(inner), inner["count"]) for inner in entry["run"])
    return Repeated(run, entry["mean"], entry["shape"])


def _release(entry: dict[str, Any]) -> Release:
    sampler = sampler_from_json(entry["sampling"])
    return Release(sampler, entry["noise_multiplier"], entry.get("replaced", 2.0))


def _truncate(path: Path, size: int) -> None:
    with path.open("rb+") as file:
        file.truncate(size)
        os.fsync(file.fileno())
