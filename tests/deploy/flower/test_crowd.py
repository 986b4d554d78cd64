"""Crowds on the real port of the coordinator: few connections, for a short time, for nothing."""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import select
import socket
import ssl
import time

import pytest

from tacit.deploy.events import StrangerTurnedAway
from tacit.deploy.flower.limits import MOST_NAMED, Strangers
from tacit.secure.net import door
from tacit.secure.net.door import EACH_PARTY
from tests.deploy.flower.port import Port, works

HEAD = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\n"


EACH_ADDRESS = 32


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "EACH_ADDRESS", EACH_ADDRESS)  # fewer, so that few are enough
        with Port(tmp_path_factory.mktemp("port")).open() as made:
            assert works(made)
            yield made


def test_a_silo_gets_in_where_nobody_but_strangers_came_from(port, crowd, monkeypatch):
    monkeypatch.setattr(port.link.door, "_homes", set())
    monkeypatch.setattr(door, "CHANCE", 0.5)  # so that it does not take long
    connections = crowd(200, lambda: plain(port))
    assert works(port) and "127.0.0.1" in port.link.door._homes
    assert held(connections, EACH_ADDRESS) <= EACH_ADDRESS


def test_failed_handshakes_are_not_remembered(port, monkeypatch):
    """Python's own collector comes for them after some hundred thousand."""
    from tacit.deploy.flower import link

    monkeypatch.setattr(link, "CLEAR_AFTER", 100)
    monkeypatch.setattr(link, "CLEAR_EVERY", 0.5)
    gc.collect()
    gc.disable()  # so that nothing clears by chance
    try:
        before, until = _tls_objects(), time.monotonic() + 10
        for _ in range(400):
            with plain(port) as connection, contextlib.suppress(OSError):
                connection.sendall(b"not a handshake")
                connection.recv(1)
        while not port.link._cleared and time.monotonic() < until:  # looking would hold them
            time.sleep(0.2)
        time.sleep(2.5)
        assert _tls_objects() <= before + 150
    finally:
        gc.enable()


def _tls_objects() -> int:
    return sum(issubclass(type(one), ssl.SSLObject) for one in gc.get_objects())


@pytest.fixture
def crowd(port):
    """`crowd(number, make)`: so many connections."""
    with contextlib.ExitStack() as stack:
        yield lambda number, make: [stack.enter_context(make()) for _ in range(number)]


def plain(port) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port.number), timeout=10)


def held(connections, most: int, seconds: float = 5.0) -> int:
    """How many the port still holds, once it has ended all but so many."""
    poller, still = select.poll(), {one.fileno() for one in connections}
    for one in still:
        poller.register(one, select.POLLIN | select.POLLRDHUP)
    until = time.monotonic() + seconds
    while len(still) > most and time.monotonic() < until:
        for number, event in poller.poll(100):
            if event & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
                poller.unregister(number)
                still.discard(number)
    return len(still)


def test_idle_connections_are_few_and_a_silo_is_heard_all_the_same(port, crowd):
    connections = crowd(200, lambda: plain(port))
    assert works(port)
    assert held(connections, EACH_ADDRESS) <= EACH_ADDRESS
    assert works(port)


def test_so_are_those_that_get_as_far_as_tls(port, crowd):
    connections = crowd(3 * EACH_ADDRESS, port.raw)
    assert held(connections, EACH_ADDRESS) <= EACH_ADDRESS
    assert works(port)


def test_and_those_of_a_silo_with_a_key(port, crowd):
    signed = port.signature("a")

    def known():
        raw = port.raw()
        raw.sendall(HEAD + signed + b"Content-Length: 1000\r\n\r\nbegun")
        return raw

    connections = crowd(EACH_PARTY + 20, known)
    assert EACH_PARTY - 1 <= held(connections, EACH_PARTY) <= EACH_PARTY
    assert works(port)


@pytest.mark.parametrize("begin", [b"", HEAD], ids=["TLS", "a head"])
def test_trickled_bytes_buy_no_time(begin, port, monkeypatch):
    monkeypatch.setattr(port.link.door, "_seconds", 0.5)
    with contextlib.suppress(OSError), port.raw() if begin else plain(port) as one:
        one.sendall(begin or b"\x16\x03\x01\x02\x00")
        began = time.monotonic()
        while time.monotonic() - began < 10:
            one.sendall(b"\x01")
            if held([one], 0, 0.1) == 0:
                break
    assert time.monotonic() - began < 4


def test_a_head_without_end_is_cut_off(port):
    before = memory()
    with port.raw() as raw, contextlib.suppress(OSError):
        raw.sendall(HEAD)
        for number in range(500):
            raw.sendall(b"x-%d: " % number + b"y" * 100_000 + b"\r\n")
        pytest.fail("50 MB of a head were read")
    assert memory() - before < 20
    assert works(port)


def test_the_body_of_a_stranger_is_not_read(port):
    with port.raw() as raw:
        raw.sendall(HEAD + b"Content-Length: 5000000\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 401 ")


def memory() -> float:
    """What this process holds, in MB."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def test_a_log_is_flooded_neither_by_sizes_nor_by_senders(port):
    said = len(port.said)
    for size in range(10**9, 10**9 + 50):
        with port.raw() as raw:
            raw.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
            assert b" 413 " in raw.recv(1000)
    assert len(port.said) <= said + 1
    events: list[StrangerTurnedAway] = []
    strangers = Strangers(events.append)
    for number in range(1000):
        strangers.turn_away("a thing", f"10.0.{number // 256}.{number % 256}")
    assert len(events) == MOST_NAMED + 1 and "no more of them are named" in str(events[-1])


def test_what_a_silo_sends_does_not_reach_the_terminal(port):
    """Flower would write a line with it for each request."""
    lines: list[logging.LogRecord] = []
    listening = logging.Handler()
    listening.emit = lines.append
    logging.getLogger("flwr").addHandler(listening)
    with port.raw() as raw:
        signed = port.signature("a") + b"Content-Type: invented\x9b\r\n"
        raw.sendall(HEAD + signed + b"Content-Length: 4\r\nConnection: close\r\n\r\nbody")
        assert raw.recv(1000).startswith(b"HTTP/1.1 4")
    logging.getLogger("flwr").removeHandler(listening)
    assert lines == []
