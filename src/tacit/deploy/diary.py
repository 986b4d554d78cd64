"""What happened at one party, for the people there; nothing of it is ever sent.

events.jsonl   an event on each line, as JSON: when, what kind, its fields
log.txt        the same in plain words

Both are for reading only. A party that finds them damaged, cut or gone works as before.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tacit.checks import annotations_of, fits
from tacit.deploy.events import KINDS, Event, Spending
from tacit.files import append
from tacit.words import tame

LOG, EVENTS = "log.txt", "events.jsonl"
LONGEST_ENTRY = 10_000
NO_EVENT = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a line that holds no event raises."""


@dataclass(frozen=True)
class Entry:
    """An event and when it happened."""

    time: str
    """ISO 8601, with the time zone."""
    event: Event

    @property
    def when(self) -> str:
        return datetime.fromisoformat(self.time).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def said(self) -> str:
        # Words of others may be in it: they begin no line, steer no terminal and fill no disk.
        return "\n    ".join(map(tame, str(self.event)[:LONGEST_ENTRY].split("\n")))

    def to_json(self) -> str:
        """One line, in ASCII: somebody may look at it in a terminal."""
        fields = dataclasses.asdict(self.event)
        return json.dumps({"time": self.time, "kind": self.event.kind, **fields})

    @classmethod
    def from_json(cls, line: str) -> Entry:
        plain = json.loads(line)
        time, kind = plain.pop("time"), KINDS[plain.pop("kind")]
        if plain.get("spent") is not None:
            plain["spent"] = _check(Spending, plain["spent"])
        datetime.fromisoformat(time)
        return cls(time, _check(kind, plain))


def _check(kind: type[Any], plain: dict[str, Any]) -> Any:
    made, kinds = kind(**plain), annotations_of(kind)
    if not all(fits(kinds[name], value) for name, value in vars(made).items()):
        raise TypeError("a field of another type")
    str(made)  # or it could not be shown
    return made


@dataclass(frozen=True)
class Diary:
    """Events at the end of a file, and beside it as lines with a time in front."""

    folder: Path | None
    also: Callable[[str], None] = lambda line: None
    """Sees every line too: a terminal, or a test."""

    def write(self, event: Event) -> None:
        entry = Entry(datetime.now().astimezone().isoformat(timespec="seconds"), _tame(event))
        self.also(entry.said)
        if self.folder is not None:
            append(self.folder / EVENTS, entry.to_json() + "\n")
            append(self.folder / LOG, f"{entry.when}  {entry.said}\n")


def _tame(event: Event) -> Event:
    """The event with tame texts that are too short to fill the disk."""
    texts = {
        name: "\n".join(map(tame, value[:LONGEST_ENTRY].split("\n")))
        for name, value in vars(event).items()
        if isinstance(value, str)
    }
    return dataclasses.replace(event, **texts)


def read_diary(folder: Path) -> tuple[Sequence[Entry], int]:
    """All that can be read of a diary, and how many lines cannot; never raises."""
    entries: list[Entry] = []
    try:
        content = (folder / EVENTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return entries, 0
    lines = [line for line in content.split("\n") if line]
    for line in lines:
        try:
            entries.append(Entry.from_json(line))
        except NO_EVENT:
            continue
    return entries, len(lines) - len(entries)
