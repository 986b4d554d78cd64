"""The seam of files: every write below a folder, by whatever module, passes here.

The first part of a path below the folder names the party whose disk it is on. A party that is
killed writes nothing more until it is started again; what it did meanwhile in its `finally` clauses
never happened.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tacit.engine import store
from tests.faults.schedule import DAMAGE, Schedule

WRITES = os.O_WRONLY | os.O_RDWR
MODES = {"w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
_real_open = builtins.open


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Killed(BaseException):
    """A party is gone; no `except Exception` hears of it."""

    def __init__(self, party: str) -> None:
        super().__init__(party)
        self.party = party


class _Raw(io.FileIO):
    """A file whose writes pass the seam."""

    disk: Disk
    path: Path
    _full = False

    def write(self, content: Any) -> int:
        if self._full:  # whoever tries once more, if only to close it, hears the same
            raise full()
        whole = bytes(content)
        try:
            return self.disk.put(self.path, whole, super().write)
        except OSError:
            self._full = True
            raise

    def truncate(self, size: int | None = None) -> int:
        return self.disk.do(self.path, lambda: io.FileIO.truncate(self, size), 0)


class Disk:
    """All parties' disks, below `root`."""

    def __init__(self, root: Path, schedule: Schedule) -> None:
        self.root, self.schedule = root.resolve(), schedule
        self.dead: set[str] = set()
        self._passes = True
        self._ends: dict[str, str] = {}
        """How a party that is down came to it."""
        self._maps: dict[int, Path] = {}
        self._numbers = itertools.count()
        self._names: dict[int, int] = {}
        """Files by inode; inodes are used again, and numbers are not."""
        self._flushed: dict[int, bytes] = {}
        """What of a file, by number, is safe from a loss of power."""
        self._listed: dict[Path, dict[str, int]] = {}
        """Which names of a folder are."""
        self._older: dict[Path, list[bytes]] = {}

    def keep(self, folder: Path) -> None:
        """What is there was there for long, and no loss of power takes it away."""
        for path in (folder, *folder.rglob("*")):
            self._flush(path)

    def party_of(self, path: Any) -> str | None:
        """Whose it is; None if it is not below the root."""
        try:
            place = Path(os.path.abspath(path))
        except TypeError:
            return None
        below = self._passes and self.root in place.parents
        return place.parts[len(self.root.parts)] if below else None

    # What happens at one step.

    def do(self, path: Path, act: Callable[[], Any], otherwise: Any = None) -> Any:
        """A step that writes no content; the dead do not take it."""
        party = self.party_of(path)
        assert party is not None
        if party in self.dead:
            return otherwise
        kind = self.schedule.due(party, "disk")
        if kind in ("full", "part", "short", "flip", "double"):
            raise full()
        if kind in ("kill", "torn", "power"):
            self.die(party, kind)
        done = act()
        if kind is not None and kind != "clock":
            self.die(party, kind)
        return done

    def put(self, path: Path, content: bytes, write: Callable[[bytes], int]) -> int:
        """A step that writes content; returns how much of it."""
        party = self.party_of(path)
        assert party is not None
        if party in self.dead:
            return len(content)
        kind = self.schedule.due(party, "disk")
        half = content[: len(content) // 2]
        if kind == "full":
            raise full()
        if kind in ("kill", "rot", "lose", "back"):
            self.die(party, kind)
        if kind in ("part", "torn", "power"):
            write(half)
            if kind == "part":
                raise full()
            self.die(party, kind)
        if kind == "short" and half:
            return write(half)
        if kind == "flip" and content:
            changed = bytearray(content)
            changed[self.schedule.random.randrange(len(changed))] ^= 1 << 3
            write(bytes(changed))
            return len(content)
        done = write(content)
        if kind == "double":
            write(content)
        if kind == "after":
            self.die(party, kind)
        return done

    def die(self, party: str, kind: str) -> None:
        self.dead.add(party)
        self._ends[party] = kind
        raise Killed(party)

    def revive(self, party: str) -> None:
        """Start this party's machine again, with the disk as its end left it."""
        kind = self._ends.pop(party, "kill")
        place = self.root / party
        self._passes = False  # what follows is no doing of a party
        if kind == "power":
            self._lose_power(place)
        elif kind in DAMAGE:
            self._damage(place, kind)
        self._passes = True
        self.dead.discard(party)

    # What a loss of power leaves, and what a bad disk makes.

    def _number(self, path: Path) -> int:
        inode = os.lstat(path).st_ino
        if inode not in self._names:
            self._names[inode] = next(self._numbers)
        return self._names[inode]

    def _flush(self, path: Path) -> None:
        """Remember what is safe now: the content of a file, or the names of a folder."""
        if path.is_dir():
            self._listed[path] = {entry.name: self._number(entry) for entry in path.iterdir()}
        elif path.exists():
            content = path.read_bytes()
            self._flushed[self._number(path)] = content
            self._older.setdefault(path, []).append(content)

    def _lose_power(self, folder: Path) -> None:
        safe = self._listed.get(folder, {})
        for entry in list(folder.iterdir()) if folder.exists() else []:
            if safe.get(entry.name) == self._number(entry):
                if entry.is_dir():
                    self._lose_power(entry)
                else:
                    entry.write_bytes(self._flushed.get(self._number(entry), b""))
            elif entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for name, number in safe.items():
            if not (folder / name).exists() and number in self._flushed:
                (folder / name).write_bytes(self._flushed[number])
                self._names[os.lstat(folder / name).st_ino] = number

    def _damage(self, folder: Path, kind: str) -> None:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        if not files:
            return
        path = self.schedule.random.choice(files)
        content = path.read_bytes()
        if kind == "rot":
            changed = bytearray(content)
            changed[self.schedule.random.randrange(len(changed))] ^= (
                1 << self.schedule.random.randrange(8)
            )
            path.write_bytes(bytes(changed))
        elif kind == "lose":
            path.unlink()
        elif older := self._older.get(path):
            path.write_bytes(self.schedule.random.choice(older))

    # The calls of the operating system.

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Everything below the root passes here meanwhile."""
        real = {name: getattr(os, name) for name in _CALLS}
        with contextlib.ExitStack() as patches:
            for name in _CALLS:
                made = getattr(self, f"_{name}")
                patches.enter_context(mock.patch.object(os, name, made(real[name])))
            for place in ("builtins.open", "io.open"):
                patches.enter_context(mock.patch(place, self._opened))
            flush, mapped = np.memmap.flush, store._mapped
            patches.enter_context(mock.patch.object(np.memmap, "flush", self._mapped_flush(flush)))

            def noted(path: Path, *given: Any, **named: Any) -> np.memmap:
                table = mapped(path, *given, **named)
                self._maps[id(table)] = path
                return table

            patches.enter_context(mock.patch.object(store, "_mapped", noted))
            yield

    def _opened(self, file: Any, mode: str = "r", *given: Any, opener: Any = None, **named: Any):
        path = _path_of(file) if isinstance(file, int) else file
        writes = any(letter in mode for letter in "wxa+")
        if not writes or path is None or self.party_of(path) is None:
            return _real_open(file, mode, *given, opener=opener, **named)
        if not isinstance(file, int):
            flags = next((flag for letter, flag in MODES.items() if letter in mode), 0)
            flags |= os.O_CLOEXEC | (os.O_RDWR if "+" in mode else os.O_WRONLY)
            file = os.open(file, flags, 0o666) if opener is None else opener(file, flags)
        raw = _Raw(file, mode.replace("b", "").replace("x", "w"))
        raw.disk, raw.path = self, Path(path)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **named)

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def open_(path: Any, flags: int, *given: Any, **named: Any) -> int:
            party = self.party_of(path)
            if party is None:
                return real(path, flags, *given, **named)
            place = Path(os.path.abspath(path))
            if not flags & WRITES:
                file = real(path, flags, *given, **named)
            else:
                if party in self.dead:
                    raise Killed(party)
                new = not os.path.lexists(place)
                file = self.do(place, lambda: real(path, flags, *given, **named))
                if new:
                    self._names[os.fstat(file).st_ino] = next(self._numbers)
            return file

        return open_

    def _pwrite(self, real: Callable[..., int]) -> Callable[..., int]:
        def pwrite(file: int, content: bytes, offset: int) -> int:
            path = _path_of(file)
            if self.party_of(path) is None:
                return real(file, content, offset)
            done = [0]

            def write(part: bytes) -> int:
                written = real(file, part, offset + done[0])
                done[0] += written
                return written

            return self.put(path, bytes(content), write)

        return pwrite

    def _fsync(self, real: Callable[..., None]) -> Callable[..., None]:
        def fsync(file: int) -> None:
            path = _path_of(file)
            if self.party_of(path) is None:
                return

            def act() -> None:  # the real one is slow, and power is lost in this process only
                self._flush(path)

            self.do(path, act)

        return fsync

    def _ftruncate(self, real: Callable[..., None]) -> Callable[..., None]:
        def ftruncate(file: int, size: int) -> None:
            path = _path_of(file)
            if self.party_of(path) is None:
                return real(file, size)
            return self.do(path, lambda: real(file, size))

        return ftruncate

    def _on_path(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(path: Any, *given: Any, **named: Any) -> Any:
            place = given[0] if given and isinstance(given[0], str | Path) else path
            if named.get("dir_fd") is not None or self.party_of(place) is None:
                return real(path, *given, **named)
            return self.do(place, lambda: real(path, *given, **named))

        return act

    _replace = _rename = _link = _unlink = _on_path

    def _mkdir(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def mkdir(path: Any, *given: Any, **named: Any) -> Any:
            if self.party_of(path) is None:
                return real(path, *given, **named)

            def act() -> None:
                real(path, *given, **named)
                self._names[os.lstat(path).st_ino] = next(self._numbers)

            return self.do(path, act)

        return mkdir

    def _mapped_flush(self, real: Callable[..., None]) -> Callable[..., None]:
        def flush(table: np.memmap) -> None:
            path = getattr(table, "filename", None) or self._maps.get(id(table))
            if path is None or self.party_of(path) is None:
                return
            self.do(Path(path), lambda: self._flush(Path(path)))

        return flush


def _path_of(file: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file}"))


_CALLS = ["open", "pwrite", "fsync", "ftruncate", "replace", "rename", "link", "unlink", "mkdir"]
