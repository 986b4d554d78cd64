"""TLS on top of a socket, many records at a time.

`ssl.SSLSocket` asks the kernel twice for every record of 16 kB, and may wait for each of them by
itself, which costs more than decrypting it. Here the kernel is asked for all that it has, and TLS
takes its records from memory.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
A_RECORD, AT_ONCE = 1 << 14, 1 << 18
"""Bytes that the kernel is asked for, of a stranger and of a party."""


class SealedSocket:
    """A connection that speaks TLS, and has no way to speak without it.

    Whoever waits says until when: the whole of what is asked for has to get through by then.
    """

    def __init__(self, context: ssl.SSLContext, plain: socket.socket) -> None:
        self.plain, self._most = plain, A_RECORD
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.protocol == ssl.PROTOCOL_TLS_SERVER
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)

    def shake_hands(self, end: float | None) -> None:
        try:
            self._until(end, self._tls.do_handshake)
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # the other side is told why, if it still listens
                self._flush(end)
            raise
        self._flush(end)
        self._most = AT_ONCE

    @property
    def certificate(self) -> dict[str, Any]:
        """The other side's, which is verified."""
        return self._tls.getpeercert() or {}

    def write(self, parts: tuple[bytes | memoryview, ...], end: float | None) -> None:
        """Send all of these."""
        for part in parts:
            if part:
                self._tls.write(part)
        self._flush(end)

    def read_into(self, into: memoryview, end: float | None) -> int:
        """How many bytes were read: at least one, or 0 if the other side has ended."""
        return self._until(end, lambda: self._tls.read(len(into), into))  # type: ignore[arg-type]

    def cut(self) -> None:
        """End it, from any thread; whoever waits on it, here or there, notices at once."""
        self.plain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.plain.close()

    def fileno(self) -> int:
        return self.plain.fileno()

    def _until(self, end: float | None, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._flush(end)
                self._wait_until(end)
                if found := self.plain.recv(self._most):
                    self._incoming.write(found)
                else:
                    self._incoming.write_eof()

    def _flush(self, end: float | None) -> None:
        if self._outgoing.pending:
            self._wait_until(end)
            self.plain.sendall(self._outgoing.read())

    def _wait_until(self, end: float | None) -> None:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self.plain.settimeout(left)
