"""Crowds at a server: few are held, newcomers have their chance, files keep their handles."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import threading
import time

import pytest

from tacit.errors import TacitError
from tacit.secure.net import door
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.daemon import LINES, Daemon, Seldom
from tacit.secure.net.door import EACH_PARTY, FILES, Door
from tacit.secure.net.links import PartyError
from tacit.secure.net.local import free_ports
from tacit.secure.net.remote import _Round, _statistics
from tacit.secure.net.tls import Identity
from tests.secure.adding import AddJob

STRANGERS, EACH_ADDRESS = 64, 32


@pytest.fixture(scope="module", autouse=True)
def small():
    """Fewer strangers, so that few are enough to be too many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "STRANGERS", STRANGERS)
        patch.setattr(door, "EACH_ADDRESS", EACH_ADDRESS)
        yield


class Arrivals:
    """Connections by number, and which of them were ended."""

    def __init__(self, **settings):
        self.door, self.ended = Door(**{"seconds": 60.0, "handles": 2000} | settings), []
        self.visits = {}

    def come(self, number, host="10.0.0.1"):
        self.visits[number] = self.door.enter(number, host, lambda: self.ended.append(number))

    def leave(self, number):
        self.door.leave(self.visits[number])


def test_of_one_address_the_oldest_strangers_go():
    at = Arrivals()
    for number in range(EACH_ADDRESS + 3):
        at.come(number)
    assert at.ended == [0, 1, 2]
    at.come("other", "10.0.0.2")
    assert at.ended == [0, 1, 2]


def test_in_all_the_oldest_of_the_address_with_most_goes():
    at = Arrivals()
    for number in range(20):
        at.come(f"first {number}", "10.0.0.1")
    for number in range(STRANGERS - 20):
        at.come(number, f"10.1.{number % 15}.1")
    assert at.ended == []
    at.come("newcomer", "10.2.0.1")
    assert at.ended == ["first 0"]


def test_strangers_elsewhere_do_not_push_out_those_where_parties_come_from():
    at = Arrivals()
    at.come("party", "10.0.0.1")
    assert at.door.know("party", "ann")
    for number in range(20):
        at.come(f"home {number}", "10.0.0.1")
    for number in range(500):
        at.come(number, f"10.1.{number % 250}.1")
    assert len(at.ended) == 20 + 500 - STRANGERS and not any("home" in str(n) for n in at.ended)


def test_who_comes_too_often_is_mostly_hung_up_on_unless_parties_come_from_there(monkeypatch):
    at = Arrivals()
    assert not any(at.door.refuses("10.0.0.1") for _ in range(door.OFTEN))
    refused = sum(at.door.refuses("10.0.0.1") for _ in range(1000))
    assert 700 < refused < 900  # now and then one is let in, so that no party is kept out
    assert not at.door.refuses("10.0.0.2")
    at.come("party", "10.0.0.1")
    assert at.door.know("party", "ann")
    assert not any(at.door.refuses("10.0.0.1") for _ in range(100))
    for number in range(2 * door.MOST_ADDRESSES):
        at.door.refuses(f"10.1.{number >> 8}.{number & 255}")
    assert len(at.door._arrivals) <= door.MOST_ADDRESSES + 1
    monkeypatch.setattr(door, "WHILE", 0.0)
    assert not any(at.door.refuses("10.0.0.3") for _ in range(2 * door.OFTEN))


def test_one_network_of_ipv6_counts_as_one_address():
    at = Arrivals()
    for number in range(EACH_ADDRESS + 1):
        at.come(number, f"2001:db8::{number + 1:x}")
    at.come("other", "2001:db8:0:1::1")
    assert at.ended == [0]


def test_a_stranger_has_so_much_time_and_a_party_has_all():
    at = Arrivals(seconds=0.05)
    at.come("stranger")
    at.come("party")
    assert at.door.know("party", "ann") and at.door.knows("party") == "ann"
    time.sleep(0.06)
    at.door.sweep()
    assert at.ended == ["stranger"] and not at.door.know("stranger", "bob")


def test_a_party_has_few_connections_and_takes_nobody_elses():
    at = Arrivals()
    at.come("bob")
    assert at.door.know("bob", "bob")
    for number in range(EACH_PARTY + 2):
        at.come(number)
        assert at.door.know(number, "ann")
    assert at.ended == [0, 1]
    for number in range(EACH_PARTY + 2):
        at.leave(number)
    assert at.door._known == 1 and list(at.door._parties) == ["bob"]


def test_handles_are_left_for_files_and_for_strangers():
    at = Arrivals(handles=FILES + STRANGERS + 10)
    for number in range(20):
        at.come(number)
        assert at.door.know(number, f"party {number}") is (number < 10)
    assert at.ended == list(range(10, 20)) and not at.door.full
    for number in range(20, 100):
        at.come(number)
    assert at.door.full  # those that were cut have not closed their handles yet
    for number in range(10, 90):
        at.leave(number)
    assert not at.door.full


def test_a_closed_connection_does_not_take_the_place_of_one_by_the_same_name():
    at = Arrivals()
    at.come("same")
    first = at.visits["same"]
    at.come("same")
    at.door.leave(first)
    assert at.door.know("same", "ann")
    at.leave("same")
    assert not at.door._crowd and not at.door._open and not at.door._parties


def test_too_few_handles_are_a_sentence():
    with pytest.raises(TacitError, match="500 parties need 1320: raise the limit"):  # ulimit -n
        Door(1.0, 500, handles=1024)


def test_a_process_asks_for_the_handles_that_it_may_have():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
    try:
        assert Door(1.0).most == min(before[1], 1 << 16) - FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# A real server.

PATIENCE = 3.0


class Running:
    def __init__(self, folder):
        make_certificates(folder, 1, ["ann"])
        self.folder, self.lines = folder, []
        self.address = ("127.0.0.1", free_ports(1)[0])
        self.daemon = Daemon(
            "server-0", Addresses((f"127.0.0.1:{self.address[1]}",)), folder,
            patience=PATIENCE, log=self.lines.append,
        )  # fmt: skip

    def lets_in(self) -> bool:
        """Whether a certified client is heard, though there is no job for it."""
        hello = {"role": "link", "job": "0" * 32}
        with pytest.raises(PartyError) as caught:
            Identity(self.folder, "ann").connect(f"127.0.0.1:{self.address[1]}", "server-0", hello)
        return "asks for a job that is not open here" in str(caught.value)

    def tls(self):
        plain = socket.create_connection(self.address, timeout=5)
        return Identity(self.folder, "ann")._outgoing.wrap_socket(plain)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Running(tmp_path_factory.mktemp("server"))
    thread = threading.Thread(target=made.daemon.run)
    thread.start()
    while not made.lines:
        time.sleep(0.01)
    assert made.lets_in()
    yield made
    made.daemon.stop()
    thread.join(5)
    assert not thread.is_alive()


def held(connections, most, seconds=3.0):
    """How many are still held, once all but so many were ended."""
    poller, still = select.poll(), {one.fileno() for one in connections}
    for one in still:
        poller.register(one, select.POLLRDHUP)
    until = time.monotonic() + seconds
    while len(still) > most and time.monotonic() < until:
        for number, _ in poller.poll(100):
            poller.unregister(number)
            still.discard(number)
    return len(still)


def test_idle_connections_are_few_and_a_client_is_heard_all_the_same(server):
    with contextlib.ExitStack() as stack:
        connect = lambda: stack.enter_context(socket.create_connection(server.address, 5))  # noqa: E731
        connections = [connect() for _ in range(150)]
        assert held(connections, EACH_ADDRESS, PATIENCE / 2) <= EACH_ADDRESS
        assert server.lets_in()
    assert sum("refused 127.0.0.1" in line for line in server.lines) <= LINES
    until = time.monotonic() + 5
    while server.daemon._door._open and time.monotonic() < until:
        time.sleep(0.02)
    assert not server.daemon._door._open  # nothing is counted that is gone


def test_a_party_that_says_nothing_holds_few(server):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.tls()) for _ in range(EACH_PARTY + 10)]
        assert held(connections, EACH_PARTY, PATIENCE / 2) <= EACH_PARTY
        assert server.lets_in()


@pytest.mark.parametrize("certified", [False, True], ids=["handshake", "hello"])
def test_trickled_bytes_buy_no_time(server, certified):
    with (
        contextlib.suppress(OSError),
        server.tls() if certified else socket.create_connection(server.address, 5) as one,
    ):
        one.sendall(b"tct1" if certified else b"\x16\x03\x01\x02\x00")
        began = time.monotonic()
        while held([one], 0, 0.1) and time.monotonic() - began < 6:
            one.sendall(b"\0")
    assert time.monotonic() - began < 2 * PATIENCE + 1


def test_a_log_says_how_many_lines_it_left_out():
    lines: list[str] = []
    seldom = Seldom(lines.append, 2, 0.05)
    for number in range(5):
        seldom(f"line {number}")
    assert lines == ["line 0", "line 1"]
    time.sleep(0.06)
    seldom("later")
    assert lines[2:] == ["3 more lines like these were left out", "later"]


# What a server may say to a coordinator.


class Says:
    def __init__(self, *heard):
        self._heard = list(heard)

    def read_json(self, label, patience):
        return self._heard.pop(0)


def followed(**heard):
    job = AddJob(servers=3, clients=("ann",))
    made = _Round(job, Addresses(("a:1", "b:2", "c:3")), {}, 1.0, {})
    with pytest.raises(PartyError) as caught:
        made._follow("server-1", Says({"state": "working"}, heard))
    return caught.value


def test_a_server_blames_parties_of_the_job_and_in_few_tame_words():
    error = followed(state="failed", party="ann", what="left\n\x1b[2J" + "x" * 10**5)
    assert error.party == "ann" and error.what.startswith("left �[2Jx") and len(error.what) <= 500
    for stranger in ("eve\x1b[2J", None, 7, ["ann"], {"a": 1}):
        assert followed(state="failed", party=stranger, what="left").party == "server-1"


@pytest.mark.parametrize("sent", [None, 7, {"a": "b"}, {"a": None}, []])
def test_statistics_that_are_none_are_the_servers_fault(sent):
    told = {"sent_messages": 1, "seconds": 1.0, "peak_memory": 1}
    assert _statistics("server-1", told | {"sent_bytes": {"ann": 3}})["sent_bytes"] == {"ann": 3}
    with pytest.raises(PartyError, match="server-1 told something else"):
        _statistics("server-1", told | {"sent_bytes": sent})
