"""Who may hold a connection: a few that have not said who they are, and a few of each party.

    accept ──► stranger: STRANGERS in all, EACH_ADDRESS of one address, for some seconds
                  │ shows a key or a certificate
                  ▼
               party: EACH_PARTY of one name

Where there are more, the one that is there for longest goes: of the same address, or of the address
with most strangers, where no party has come from it before. So a newcomer always has its chance,
even from an address that is full of strangers: a party needs a fraction of a second to say who it
is, and is pushed out only by hundreds that come within it. In all there are never more connections
than the process has handles for, less those that files need.

A handshake costs many times what hanging up costs. So of the connections of an address that no
party has come from, beyond `OFTEN` in `WHILE` seconds, only some are let in, by `CHANCE`: a party
that tries again gets in soon, however many strangers there are.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from tacit.errors import TacitError

STRANGERS, EACH_ADDRESS, EACH_PARTY = 512, 256, 32
OFTEN, WHILE, CHANCE = 32, 10.0, 0.2
FILES = 256
"""Handles that are left for ledgers, models, logs and whatever libraries open."""
AT_ONCE = 100
BACKLOG = 1024
"""Connections that wait in the kernel until somebody accepts them."""
MOST_HANDLES = 1 << 16
MOST_ADDRESSES = 1 << 12
"""So many are remembered, of parties and of others."""


@dataclass(eq=False)
class Visit:
    """One connection."""

    key: Hashable
    address: str
    cut: Callable[[], object]
    """Ends the connection, from any thread; whoever waits on it notices."""
    since: float
    party: str | None = None


class Door:
    """Counts connections, and ends those that are too many."""

    def __init__(self, seconds: float, parties: int = 1, handles: int | None = None) -> None:
        """A stranger may stay for so many seconds; there is room for all these parties."""
        handles = _handles() if handles is None else handles
        least = FILES + STRANGERS + 2 * parties
        if handles < least:
            raise TacitError(
                f"a process may have {handles} open files here, and {parties} parties need "
                f"{least}: raise the limit (ulimit -n {2 * least})"
            )
        self.most = handles - FILES
        self._seconds, self._each = seconds, min(EACH_PARTY, (self.most - STRANGERS) // parties)
        self._open: dict[Hashable, Visit] = {}
        """Every connection whose handle is not closed yet."""
        self._strangers: dict[Hashable, Visit] = {}
        self._crowd: Counter[str] = Counter()
        """How many strangers each address has."""
        self._homes: set[str] = set()
        """Where parties have come from."""
        self._arrivals: Counter[str] = Counter()
        self._counted_since = time.monotonic()
        self._parties: dict[str, dict[Hashable, Visit]] = {}
        self._known = 0
        self.left = 0
        """How many connections have ended."""
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether handles are short, until those that were cut are closed."""
        return len(self._open) >= self.most

    def refuses(self, host: str) -> bool:
        """Whether a new connection from this address gets no handshake."""
        address, now = _neighbourhood(host), time.monotonic()
        with self._lock:
            if now - self._counted_since > WHILE or len(self._arrivals) > MOST_ADDRESSES:
                self._arrivals.clear()
                self._counted_since = now
            self._arrivals[address] += 1
            often = self._arrivals[address] > OFTEN and address not in self._homes
        return often and random.random() > CHANCE

    def enter(self, key: Hashable, host: str, cut: Callable[[], object]) -> Visit:
        """Somebody has connected; `key` is what this connection is called from now on."""
        visit = Visit(key, _neighbourhood(host), cut, time.monotonic())
        with self._lock:
            if key in self._open:  # it left, and another has its address before the door was told
                self._forget(self._open[key])
            self._open[key] = self._strangers[key] = visit
            self._crowd[visit.address] += 1
            if self._crowd[visit.address] > EACH_ADDRESS:
                self._end_oldest(visit.address)
            elif len(self._strangers) > STRANGERS:
                elsewhere = self._crowd.keys() - self._homes
                self._end_oldest(max(elsewhere or self._crowd, key=self._crowd.__getitem__))
        self.sweep()
        return visit

    def know(self, key: Hashable, party: str) -> bool:
        """It has shown who it is; returns whether it may stay."""
        with self._lock:
            visit = self._strangers.get(key)
            if visit is None:
                return False
            same = self._parties.get(party, {})
            if len(same) >= self._each:
                self._end(next(iter(same.values())))
            elif self._known >= self.most - STRANGERS:
                self._end(visit)
                return False
            self._forget(visit)
            if len(self._homes) < MOST_ADDRESSES:
                self._homes.add(visit.address)
            visit.party = party
            self._parties.setdefault(party, same)[key] = visit
            self._known += 1
            return True

    def knows(self, key: Hashable) -> str | None:
        """Which party this connection is of, if it has said."""
        visit = self._open.get(key)
        return None if visit is None else visit.party

    def leave(self, visit: Visit) -> None:
        """Its handle is closed."""
        with self._lock:
            self._forget(visit)
            self.left += 1
            if self._open.get(visit.key) is visit:
                del self._open[visit.key]

    def sweep(self) -> None:
        """End strangers whose time is over."""
        late = time.monotonic() - self._seconds
        with self._lock:
            for visit in list(self._strangers.values()):
                if visit.since >= late:
                    break
                self._end(visit)

    def _end_oldest(self, address: str) -> None:
        self._end(next(one for one in self._strangers.values() if one.address == address))

    def _end(self, visit: Visit) -> None:
        self._forget(visit)
        with contextlib.suppress(OSError):  # it has left by itself
            visit.cut()

    def _forget(self, visit: Visit) -> None:
        """Count it no longer, except as an open handle."""
        if self._strangers.get(visit.key) is visit:
            del self._strangers[visit.key]
            self._crowd[visit.address] -= 1
            if not self._crowd[visit.address]:
                del self._crowd[visit.address]
        same = self._parties.get(visit.party or "", {})
        if same.get(visit.key) is visit:
            del same[visit.key]
            self._known -= 1
            if not same:
                del self._parties[visit.party or ""]


class Listener(socket.socket):
    """Listens for whoever accepts its connections by itself and closes them, as asyncio does."""

    door: Door

    def accept(self) -> tuple[Guest, Any]:
        for _ in range(AT_ONCE):
            if self.door.full:
                break
            plain, address = super().accept()
            if not self.door.refuses(address[0]):
                return self._let_in(plain, address), address
            plain.close()
        raise BlockingIOError  # as if there were no more: others have their turn now

    def _let_in(self, plain: socket.socket, address: Any) -> Guest:
        guest = Guest(fileno=plain.detach())
        guest.visit = self.door.enter(address[:2], address[0], guest.cut)
        guest.door = self.door
        return guest


class Guest(socket.socket):
    """A connection that the door is told of when it is closed."""

    door: Door | None = None
    visit: Visit

    def cut(self) -> None:
        self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        if self.door is not None:
            self.door.leave(self.visit)


def listen(host: str, port: int) -> socket.socket:
    """On this address; raises `OSError`."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


def listen_behind(door: Door, host: str, port: int) -> Listener:
    """The same, and only as many connections as the door lets in."""
    listener = Listener(fileno=listen(host, port).detach())
    listener.setblocking(False)
    listener.door = door
    return listener


def _neighbourhood(host: str) -> str:
    """One owner has many addresses of IPv6: those that begin alike count as one."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))


def _handles() -> int:
    """How many files this process may have open, once it has asked for all that it may."""
    limits = _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, most = (
        MOST_HANDLES if limit == resource.RLIM_INFINITY else min(limit, MOST_HANDLES)
        for limit in limits
    )
    if now < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return most
    return now
