"""One TLS connection to a party whose name is known, and frames on it.

    magic 4 │ job 16 │ number 8 │ bytes of label 2 │ bytes of payload 8 │ label │ payload

A reader says what it expects; anything else ends the round before the payload is read, so a wrong
length cannot make it reserve memory. Patience is for `STEP` bytes together, not for each byte: who
trickles is as late as who is silent. TLS already refuses bytes that were changed, left out or
replayed; job and number say the same once more, where a party itself mixes things up.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from tacit.secure.net.links import PartyError
from tacit.secure.net.sealed import SealedSocket
from tacit.words import LONGEST_NAME, shortened

MAGIC = b"tct1"
HEADER = struct.Struct("!4s16sQHQ")
NO_JOB = bytes(16)
"""Stands in frames that come before a job is agreed upon."""
LONGEST_LABEL = 1000
MOST_JSON = 1 << 22
"""Bytes of text, which is many times as large once it is read."""
SIGN_OF_LIFE = ""
STEP = 1 << 18
"""Bytes that must get through within the patience."""


CLOSED, BROKEN_OFF = ENDINGS = "closed the connection", "broke off TLS"
"""How the other side ends a connection, whatever its reason is."""


class Connection:
    """Frames to and from one party. Only one thread at a time may use it."""

    def __init__(self, sock: SealedSocket, peer: str) -> None:
        self.sock, self.peer = sock, peer
        self.job = NO_JOB
        self.signs_of_life = False
        """Whether the other side may say that it is still at work; only servers among them may."""
        self.on_close: Callable[[], None] = lambda: None
        self._sent = self._received = 0
        self._head = bytearray(HEADER.size)

    def write(self, label: str, raw: memoryview, patience: float | None) -> None:
        """Send one frame; every step of it must get through within the patience."""
        name = label.encode()
        head = HEADER.pack(MAGIC, self.job, self._sent, len(name), len(raw)) + name
        self._sent += 1
        try:
            self.sock.write((head, raw[:STEP]), _end_of(patience))
            for begin in range(STEP, len(raw), STEP):
                self.sock.write((raw[begin : begin + STEP],), _end_of(patience))
        except TimeoutError:
            raise PartyError(self.peer, f"did not take {label!r} within {patience:g} s") from None
        except (OSError, ValueError) as error:
            raise PartyError(self.peer, f"{_ending(error)} before it took {label!r}") from None

    def write_sign_of_life(self) -> None:
        """An empty frame, which readers pass over: what they wait for is still to come."""
        self.write(SIGN_OF_LIFE, memoryview(b""), None)

    def read_into(
        self,
        label: str,
        into: memoryview,
        patience: float | None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the payload of the next frame, which must have this label and length."""
        found, length = self._read_head(label, patience)
        progress()
        if found != label or length != len(into):
            told = f"sent {shortened(found, LONGEST_NAME)!r} of {length} bytes"
            expected = f"where {label!r} of {len(into)} was expected"
            raise PartyError(self.peer, f"{told} {expected}")
        for begin in range(0, len(into), STEP):
            self._fill(into[begin : begin + STEP], label, patience)
            progress()

    def write_json(self, label: str, content: dict[str, Any], patience: float | None) -> None:
        self.write(label, memoryview(json.dumps(content).encode()), patience)

    def read_json(
        self, label: str, patience: float | None, most: int = MOST_JSON
    ) -> dict[str, Any]:
        """The next frame, which must have this label and hold a JSON object of at most `most`."""
        found, length = self._read_head(label, patience)
        if found != label or length > most:
            told = f"sent {shortened(found, LONGEST_NAME)!r} of {length} bytes"
            expected = f"where {label!r} of at most {most} was expected"
            raise PartyError(self.peer, f"{told} {expected}")
        raw = bytearray(length)
        for begin in range(0, length, STEP):
            self._fill(memoryview(raw)[begin : begin + STEP], label, patience)
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise PartyError(self.peer, f"sent a {label!r} that is not a JSON object")
        return content

    def cut(self) -> None:
        """End the connection; whoever waits on it, here or there, notices at once."""
        with contextlib.suppress(OSError):
            self.sock.cut()

    def close(self) -> None:
        self.sock.close()
        self.on_close()

    def _read_head(self, label: str, patience: float | None) -> tuple[str, int]:
        """Label and length of the next frame that is not a mere sign of life."""
        while True:
            found = self._read_any_head(label, patience)
            if found != (SIGN_OF_LIFE, 0) or not self.signs_of_life:
                return found

    def _read_any_head(self, label: str, patience: float | None) -> tuple[str, int]:
        head, end = self._head, _end_of(patience)
        self._fill(memoryview(head), label, patience, end)
        magic, job, number, label_length, length = HEADER.unpack(head)
        expected = f"where {label!r} was expected"
        if magic != MAGIC:
            raise PartyError(self.peer, f"sent bytes that are not a message {expected}")
        if job != self.job:
            raise PartyError(self.peer, f"sent a message of another job {expected}")
        if number != self._received:
            count = f"message number {number} in place of {self._received}"
            raise PartyError(self.peer, f"sent {count} {expected}")
        if label_length > LONGEST_LABEL:
            raise PartyError(self.peer, f"sent a label of {label_length} bytes {expected}")
        self._received += 1
        found = bytearray(label_length)
        self._fill(memoryview(found), label, patience, end)
        return found.decode(errors="replace"), length

    def _fill(
        self, into: memoryview, label: str, patience: float | None, end: float | None = None
    ) -> None:
        """Read until this is full: within the patience, or until `end` where reading has begun."""
        done, end = 0, end or _end_of(patience)
        try:
            while done < len(into):
                count = self.sock.read_into(into[done:], end)
                if not count:
                    raise EOFError
                done += count
        except TimeoutError:
            sent = "too little" if done else "nothing"
            late = f"sent {sent} for {patience:g} s where {label!r} was expected"
            raise PartyError(self.peer, late) from None
        except (OSError, ValueError, EOFError) as error:
            raise PartyError(self.peer, f"{_ending(error)} where {label!r} was expected") from None


def _end_of(patience: float | None) -> float | None:
    return None if patience is None else time.monotonic() + patience


def _ending(error: Exception) -> str:
    """How a connection ended, in words."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        reason = reason_of(error)
        if "bad record mac" in reason and "alert" not in reason:
            return f"sent bytes that were changed on the way ({reason})"
        return f"{BROKEN_OFF} ({reason})"
    return CLOSED


def reason_of(error: ssl.SSLError) -> str:
    return (error.reason or "no reason given").lower().replace("_", " ")
