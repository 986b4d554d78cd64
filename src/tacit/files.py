"""Files that must not be lost, seen by others, or written by two at once.

Whatever tacit keeps for itself (ledgers, checkpoints, models, reports, logs, keys) goes through
here: folders are made for their owner alone (0700), files as well (0600), a whole file is replaced
at once, and a folder that is in use has one process that uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tacit.errors import TacitError

LOCK = ".lock"
SHOWN = 120
"""Characters of an error, or of a lock, that are repeated in a sentence."""


class InUse(TacitError):
    """A folder that another process has."""


_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
"""Folders that are held by whoever called: new threads begin with none."""


def make_folder(folder: Path) -> None:
    """Make a folder that its owner alone can enter; one that is there stays as it is.

    What it holds is on disk after this.
    """
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
        if folder.is_dir():
            _settle_all(folder)
    except OSError as error:
        raise TacitError(f"{folder} cannot be made: {error.strerror}; name another") from error
    if not folder.is_dir():
        raise TacitError(f"{folder} is not a folder, but one is needed there: name another")


def _settle_all(folder: Path) -> None:
    """Have a folder, and those around it that tacit made, remember what they hold.

    Also what is not new: a process may have been killed before it did so, and whoever goes on from
    a file must find the same one after a loss of power.
    """
    for place in (folder, *folder.parents):
        with contextlib.suppress(PermissionError):
            settle(place)
        if place.stat().st_mode & 0o077:
            break  # somebody else made it, and sees to where it is


def close_folder(folder: Path) -> None:
    """Make a folder, and shut all others out of one that is there."""
    make_folder(folder)
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise TacitError(f"{folder} belongs to somebody else: {error.strerror}") from error


def create(path: Path) -> int:
    """A new file for its owner alone, open for writing; nothing that was there is followed."""
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def replace(path: Path, *content: bytes | memoryview) -> None:
    """Write a whole file so that a crash leaves either the old one or the new one.

    It may come in parts, which are written one after the other.
    """
    temporary = path.with_name(path.name + ".part")
    with writing(path):
        with open(create(temporary), "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        settle(path.parent)


def copy(source: Path, path: Path) -> None:
    """A copy that its owner alone can read."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise TacitError(f"{source} cannot be read: {error.strerror}; name another") from error
    replace(path, content)


def append(path: Path, text: str) -> None:
    """Lines at the end of a file that only its owner can read, and on disk after this.

    A line that was cut short, by a crash or a full disk, is ended first and spoils no other.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with writing(path), open(os.open(path, flags, 0o600), "ab") as file:
        size = os.fstat(file.fileno()).st_size
        cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write(b"\n" * cut + text.encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())
        if not size:
            settle(path.parent)


def settle(folder: Path) -> None:
    """Have a folder remember, even through a loss of power, which files it holds."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that is full, or a folder that is gone, ends in a sentence."""
    try:
        yield
    except OSError as error:
        raise TacitError(
            f"{path} cannot be written: {_short(error)}; make room or correct it, and start again"
        ) from error


@contextlib.contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Turn any error about the content of a file into one sentence."""
    try:
        yield
    except TacitError:
        raise
    except Exception as error:  # any kind: a disk or another program chose it
        raise TacitError(f"{path} cannot be read: {_short(error)}; {remedy}") from error


def _short(error: Exception) -> str:
    """In one line, whatever a library has to say."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split())[:SHOWN] or type(error).__name__


def read_json(path: Path, fields: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """A JSON object that has at least these fields, each of its type."""
    with reading(path, remedy):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds {type(found).__name__}, not an object")
        for name, kind in fields.items():
            if not isinstance(found.get(name), kind):
                raise TypeError(f"its {name} is {found.get(name)!r}")
        return found


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep every other process and thread out of a folder; the kernel lets go if this one dies.

    Whoever holds it may hold it once more, further inside.
    """
    make_folder(folder)
    place = folder.resolve()
    if place in _held.get():
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing(folder / LOCK):
        lock = os.open(place / LOCK, flags, 0o600)
    try:
        _take(lock, folder)
        before = _held.set(_held.get() | {place})
        try:
            yield
        finally:
            _held.reset(before)
            with contextlib.suppress(OSError):  # whose it was is said to nobody while it is free
                os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        said = os.pread(lock, SHOWN, 0).decode("utf-8", "replace")
        who = "".join(c for c in said if c.isprintable()) or "another process"
        raise InUse(
            f"{folder} is in use by {who}: wait until that is over, stop it, or choose another "
            "folder"
        ) from error
    except OSError as error:
        raise TacitError(
            f"{folder} cannot be locked ({error.strerror}), so two runs could mix there: choose a "
            "folder on another file system"
        ) from error
    who = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}"
    with writing(folder / LOCK):
        os.ftruncate(lock, 0)
        os.pwrite(lock, who.encode(), 0)
