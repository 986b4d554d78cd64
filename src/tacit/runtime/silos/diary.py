"""A log in plain words, for the people at one party; nothing of it is ever sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.files import append
from tacit.words import tame

LOG = "log.txt"
LONGEST_ENTRY = 10_000


@dataclass(frozen=True)
class Diary:
    """Lines with a time in front, at the end of a file."""

    folder: Path | None
    also: Callable[[str], None] = lambda line: None
    """Sees every line too: a terminal, or a test."""

    def write(self, line: str) -> None:
        # Words of others may be in it: they begin no line, steer no terminal and fill no disk.
        line = "\n    ".join(map(tame, line[:LONGEST_ENTRY].split("\n")))
        self.also(line)
        if self.folder is None:
            return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        append(self.folder / LOG, f"{stamp}  {line}\n")
