"""The real ports of a coordinator and of a server, and first bytes that somebody may send there."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.channel import HEADER, MAGIC, NO_JOB
from tacit.secure.net.daemon import Daemon
from tacit.secure.net.local import free_ports
from tacit.secure.net.tls import Identity
from tests.fuzz.net_changes import changed, changed_json
from tests.fuzz.net_hunt import Hunted, hunt
from tests.fuzz.net_readers import SUM

if TYPE_CHECKING:
    from tests.deploy.flower.port import Port


@dataclass
class Open:
    """A port: what to send, how, and whether it is still there for those who belong to it."""

    make: Callable[[Random], bytes]
    connect: Callable[[], socket.socket]
    works: Callable[[], bool]

    def send(self, content: bytes) -> None:
        """Send it, stop sending, and wait until the port hangs up."""
        with contextlib.suppress(OSError), self.connect() as sock:
            sock.sendall(content)
            socket.socket.shutdown(sock, socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of an honest client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def coordinator_hello(folder: Path) -> Iterator[Open]:
    with _coordinator(folder) as (port, works):
        first = client_hello(port.trusting)
        yield Open(lambda random: changed(first, random), lambda: _plain(port.number), works)


@contextlib.contextmanager
def coordinator_head(folder: Path) -> Iterator[Open]:
    """Requests over TLS, with the signature of a silo and without."""
    with _coordinator(folder) as (port, works):
        plain = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        plain += b"Content-Type: application/protobuf\r\n"
        samples = [plain + b"\r\nbody", plain + port.signature("a") + b"\r\nbody"]
        yield Open(lambda random: changed(random.choice(samples), random), port.raw, works)


@contextlib.contextmanager
def _coordinator(folder: Path) -> Iterator[tuple[Port, Callable[[], bool]]]:
    from tests.deploy.flower.port import Port, works  # needs tacit[flower]; servers do not

    began = time.monotonic()
    with Port(folder).open() as port:
        assert works(port)
        yield port, lambda: works(port)
        _check_log(port.said, time.monotonic() - began)


def _check_log(lines: list[str], seconds: float) -> None:
    """Nobody fills it, and nothing in it steers a terminal."""
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    assert len(lines) < 70 * (1 + seconds / 60), f"{len(lines)} lines in {seconds:.0f} s"


@contextlib.contextmanager
def server_hello(folder: Path) -> Iterator[Open]:
    with _server(folder) as (identity, number, lets_in):
        first = client_hello(identity._outgoing)
        yield Open(lambda random: changed(first, random), lambda: _plain(number), lets_in)


@contextlib.contextmanager
def server_frames(folder: Path) -> Iterator[Open]:
    """A certified coordinator that sends anything in the place of greetings and jobs."""

    def frame(number: int, label: bytes, text: bytes) -> bytes:
        return HEADER.pack(MAGIC, NO_JOB, number, len(label), len(text)) + label + text

    def make(random: Random) -> bytes:
        hello = json.dumps({"role": random.choice(("job", "link")), "job": "0" * 32}).encode()
        job = json.dumps(SUM.to_json()).encode()
        if random.random() < 0.3:
            hello = changed_json(hello, random)
        if random.random() < 0.7:
            job = changed_json(job, random)
        sent = frame(0, b"hello", hello) + frame(1, b"job", job) + frame(2, b"start", b"{}")
        return changed(sent, random) if random.random() < 0.3 else sent

    with _server(folder) as (identity, number, lets_in):
        connect = lambda: identity._outgoing.wrap_socket(_plain(number))  # noqa: E731
        yield Open(make, connect, lets_in)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[Identity, int, Callable[[], bool]]]:
    make_certificates(folder, 3, ["ann"])
    number, lines, began = free_ports(1)[0], [], time.monotonic()
    addresses = Addresses((f"127.0.0.1:{number}", "127.0.0.1:1", "127.0.0.1:2"))
    daemon = Daemon("server-0", addresses, folder, patience=1.0, log=lines.append)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    while not lines:
        time.sleep(0.01)
    identity = Identity(folder, "coordinator")

    def lets_in() -> bool:
        channel = identity.connect(addresses.servers[0], "server-0", {"role": "job"}, 5.0)
        channel.close()
        return True

    try:
        assert lets_in()
        yield identity, number, lets_in
    finally:
        daemon.stop()
        thread.join(10)
    assert not thread.is_alive()
    _check_log(lines, time.monotonic() - began)


def _plain(number: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", number), timeout=10)


PORTS = {
    "coordinator-tls": coordinator_hello,
    "coordinator-requests": coordinator_head,
    "server-tls": server_hello,
    "server-frames": server_frames,
}


def hunt_port(
    name: str, folder: Path, *, cases: int | None = None, seconds: float = 1e9, seed: int = 0
) -> Hunted:
    """Send what nobody would; the port is there afterwards for those who belong to it."""
    with PORTS[name](folder) as port:
        found = hunt(name, port.make, port.send, (), cases=cases, seconds=seconds, seed=seed)
        assert port.works(), f"{name}, seed {seed}: nobody is let in after {found}"
    return found
