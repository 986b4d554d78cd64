"""A run under a schedule, started again as its people would, and what must hold meanwhile.

* Released ≤ booked at every party, whenever something leaves it: counted in the file, by round; at
  whoever publishes also what a crash kept from everybody.
* No two different releases for one booking.
* Equal models where the seed is equal, the run finished, and nobody's contribution was missing.
* Every end is a sentence. Where nothing but stops, refusals and losses happened, it is a good one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tacit.engine.store import LEDGER, Store
from tacit.errors import TacitError
from tacit.privacy import accounting
from tacit.privacy.channel import Collection
from tests.faults.disk import Disk, Killed
from tests.faults.schedule import DAMAGE, Schedule
from tests.fuzz.hunt import Hangs

SECONDS = 60.0
"""What takes longer hangs: a run here takes one."""
STARTS = 12
"""More often nobody starts a run again."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    """A ledger as whoever has nothing but the file reads it."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict)]


@dataclass
class Trial(ABC):
    """One schedule; `party` is whoever releases."""

    folder: Path
    schedule: Schedule
    party: str
    violations: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    finished: bool = False
    expected: Any = None
    """What an undisturbed run ends in."""
    _made: dict[int, set[bytes]] = field(default_factory=dict)
    """Releases by round, also those that a crash kept from everybody."""
    _pending: list[tuple[int, bytes]] = field(default_factory=list)
    """Those that nobody has seen yet."""
    _shown: set[tuple[int, bytes]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.disk = Disk(self.folder, self.schedule)

    # What the kind of run says.

    @abstractmethod
    def once(self) -> int:
        """Start it, or go on; returns how many releases are promised to be all."""

    @abstractmethod
    def outcome(self) -> Any:
        """What equals that of an undisturbed run; None where nothing has to."""

    # What all kinds have in common.

    def run(self) -> Trial:
        """All of it; nothing is raised, whatever happens."""
        handler = signal.signal(signal.SIGALRM, _hangs)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with self._everything():
                self._start_until_over()
        except Hangs:
            self.wrong(f"hangs: {traceback.format_exc()}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        return self

    def _start_until_over(self) -> None:
        for _ in range(STARTS):
            before = len(self.schedule.happened)
            self._pending.clear()
            try:
                promised = self.once()
            except Killed as death:
                self.disk.revive(death.party)
                continue
            except TacitError as error:
                self.sentences.append(str(error))
                if "\n" in str(error):
                    self.wrong(f"several lines: {error}")
                if len(self.schedule.happened) > before:  # people do as it says, and start again
                    continue
                if not self.schedule.had(DAMAGE):
                    self.wrong(f"cannot go on, though nothing is damaged: {error}")
                return
            except Exception:
                self.wrong(f"no sentence: {traceback.format_exc()}")
                return
            self.finished = True
            self.publish()
            if promised < len(self._shown):
                self.wrong(f"{promised} releases are promised, {len(self._shown)} were shown")
            found = self.outcome()
            if self.expected is not None and found not in (None, self.expected):
                self.wrong("ended in other models than the undisturbed run")
            return
        self.wrong(f"not over after {STARTS} starts: {self.sentences[-1:]}")

    def wrong(self, what: str) -> None:
        self.violations.append(f"{self.schedule.seed}: {what}")

    def booked(self, party: str) -> Counter[int]:
        """Entries of this party's ledger, by round."""
        return Counter(entry.get("round") for entry in lines_of(self.ledger(party)))

    def ledger(self, party: str) -> Path:
        return self.folder / party / LEDGER

    def released(self, round: int, value: bytes) -> None:
        """A noisy sum was made, and is not out yet."""
        self._pending.append((round, value))
        made = self._made.setdefault(round, set())
        made.add(value)
        booked = self.booked(self.party)[round]
        if booked < len(made) and not self.schedule.had(DAMAGE, self.party):
            self.wrong(f"round {round}: {len(made)} releases were made, and {booked} are booked")

    def publish(self) -> None:
        """What was made last is seen by others from now on."""
        if self.party in self.disk.dead or not self._pending:
            return
        self._shown |= set(self._pending)
        self._pending.clear()
        booked = self.booked(self.party)
        if self.schedule.had(DAMAGE, self.party):  # a line that says something else counts as one
            lines = len(self.ledger(self.party).read_bytes().splitlines())
            if lines < len(self._shown):
                self.wrong(f"{len(self._shown)} were shown, and {lines} lines are there")
            return
        for round, shown in Counter(round for round, _ in self._shown).items():
            if booked[round] < shown:
                self.wrong(f"round {round}: {shown} were shown, and {booked[round]} are booked")

    @contextlib.contextmanager
    def _everything(self) -> Iterator[None]:
        """All seams, and ears where something is released or saved."""
        opened, journal = Collection._Collection__opened, Store._journal  # type: ignore
        trial, started = self, time.monotonic

        def heard(collection: Collection, size: int) -> Any:
            total = opened(collection, size)
            trial.released(collection._Collection__round, total.numpy().tobytes())  # type: ignore
            return total

        def saved(store: Store, *given: Any) -> None:
            journal(store, *given)
            if trial.disk.party_of(store.journal) == trial.party:
                trial.publish()

        with (
            mock.patch.object(Collection, "_Collection__opened", heard),
            mock.patch.object(Store, "_journal", saved),
            mock.patch.object(time, "sleep", lambda seconds: None),
            mock.patch.object(time, "monotonic", lambda: started() + trial._ahead()),
            mock.patch.object(accounting, "_interval", lambda *given: 1e-2),
            mock.patch("tacit.report.page.svg", lambda *given: "<svg></svg>"),
            self.disk.watched(),
        ):
            yield

    def _ahead(self) -> float:
        """A machine that slept for a day, as often as the schedule says."""
        return 86400.0 * sum(fault.kind == "clock" for fault in self.schedule.happened)


def _hangs(number: int, frame: object) -> None:
    raise Hangs
