"""Something in the middle of a connection that cuts it, changes bytes or keeps a copy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

Tamper = Callable[["Flow", bytes], bytes | None]


class Flow:
    """One direction of one connection."""

    def __init__(self, to_server: bool) -> None:
        self.to_server = to_server
        self.seen = bytearray()
        """What came before the piece that is looked at."""


def honest(flow: Flow, piece: bytes) -> bytes | None:
    return piece


def at(position: int, change: Callable[[bytes], bytes | None]) -> Tamper:
    """Change what clients or servers send, once this many bytes of a connection have passed."""

    def tamper(flow: Flow, piece: bytes) -> bytes | None:
        late = flow.to_server and len(flow.seen) + len(piece) > position
        return change(piece) if late else piece

    return tamper


class Proxy:
    """Passes bytes to an address; `tamper` may change a piece, or return None to cut."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._socks: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.tamper: Tamper = honest
        self.flows: list[Flow] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exception: object) -> None:
        for sock in (self._listener, *self._socks):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._socks += [near, far]
                for pair in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, to_server: bool) -> None:
        flow = Flow(to_server)
        self.flows.append(flow)
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                passed = self.tamper(flow, piece)
                flow.seen += piece
                if passed is None:
                    break
                to.sendall(passed)
        for sock in (source, to):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
