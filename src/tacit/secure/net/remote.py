"""Jobs on servers that are processes elsewhere.

    1  the coordinator offers the job to all servers; nothing starts unless all accept
    2  clients and coordinator connect, upload, and read what they are answered
    3  every server says that it works, until it is done or failed

Clients and coordinator wait for answers as long as servers say that they work: how long a job takes
has no limit, only how long a server may be silent.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.secure.jobs.job import COORDINATOR, Job, Outcome, finish
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.blame import Reports
from tacit.secure.net.channel import Connection
from tacit.secure.net.links import PATIENCE, PartyError
from tacit.secure.net.tls import Identity, TlsLinks
from tacit.secure.settings import Secure
from tacit.words import quoted, shortened

THREADS = 4
"""For all clients: a thread for each would have them wait for each other in the interpreter."""
HEARING = 1.0
"""Seconds after the first failure in which other parties can say what they know."""


@dataclass
class Remote:
    """Servers at these addresses; this process has the certificates of coordinator and clients."""

    addresses: tuple[str, ...]
    dealer: str | None
    certificates: Path
    patience: float = PATIENCE
    _identities: dict[str, Identity] = field(default_factory=dict, repr=False)
    _kept: dict[tuple[str, str], Connection] = field(default_factory=dict, init=False, repr=False)
    """Of a client to a server, from a job that was done: the next one needs no handshakes."""

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self._kept)

    @classmethod
    def of(cls, curator: Secure) -> Remote:
        """The server processes at the curator's `peers`."""
        return cls(curator.peers, curator.dealer, Path(curator.certificates or ""))

    def run(
        self,
        job: Job,
        secret_of: Mapping[str, Any],
        elsewhere: Callable[[], None] | None = None,
    ) -> Outcome:
        """Do a job for clients with these secrets; raises what went wrong first.

        Clients without a secret here take part by themselves: `elsewhere` is called when servers
        wait for them, returns when they are done, and raises if one is not.
        """
        addresses = Addresses(tuple(self.addresses), self.dealer)
        if job.servers != len(addresses.servers):
            raise TacitError(
                f"the job is for {job.servers} servers, but {len(addresses.servers)} are given"
            )
        here = job.clients if elsewhere is None else tuple(secret_of)
        for name in (COORDINATOR, *here):
            if name not in self._identities:
                self._identities[name] = Identity(Path(self.certificates), name)
        with _Round(job, addresses, self._identities, self.patience, self._kept) as current:
            return current.run(here, secret_of, elsewhere)


@contextlib.contextmanager
def _link(
    job: Job, name: str, connect: Callable[[str], Connection], patience: float | None
) -> Iterator[TlsLinks]:
    """A party's links to all servers of a job."""
    connections = {}
    for server in job.names:
        connections[server] = connect(server)
        connections[server].job = job.tag
    links = TlsLinks(name, connections, connections, patience=patience)
    try:
        yield links
    except PartyError:
        raise  # servers may still find out who it was, if they are not disturbed
    except BaseException:
        for connection in connections.values():
            connection.cut()  # servers that wait for this party notice at once
        raise


def _close(kept: Mapping[tuple[str, str], Connection]) -> None:
    for connection in kept.values():
        connection.close()


def take_part(
    job: Job, secret: Any, identity: Identity, addresses: Addresses, patience: float
) -> Any:
    """One client's whole part, in a process of its own; returns what it is answered."""
    hello = {"role": "link", "job": job.digest}
    connections: list[Connection] = []

    def connect(server: str) -> Connection:
        connections.append(identity.connect(addresses.of(server), server, hello, patience))
        return connections[-1]

    try:
        with _link(job, identity.name, connect, patience) as links:
            return finish(job.take_part(links, secret))
    finally:
        for connection in connections:
            connection.close()


def _statistics(name: str, heard: Mapping[str, Any]) -> dict[str, Any]:
    """What a server tells of its part, which may be anything; see `session`."""
    sent = heard.get("sent_bytes")
    numbers = {key: heard.get(key) for key in ("sent_messages", "seconds", "peak_memory")}
    told = [*sent.values(), *numbers.values()] if isinstance(sent, dict) else [None]
    if not all(isinstance(number, int | float) and 0 <= number < 2**63 for number in told):
        raise PartyError(name, "told something else about its part than numbers")
    return {"sent_bytes": sent, **numbers}


def _groups(clients: Sequence[str]) -> list[Sequence[str]]:
    """Clients that share a thread: neighbours, because servers go through them in order."""
    size = max(1, -(-len(clients) // THREADS))
    return [clients[i : i + size] for i in range(0, len(clients), size)]


class _Round:
    """One job, with all connections and threads that it needs here."""

    def __init__(
        self,
        job: Job,
        addresses: Addresses,
        identities: Mapping[str, Identity],
        patience: float,
        kept: dict[tuple[str, str], Connection],
    ) -> None:
        self.job, self.patience = job, patience
        self._addresses, self._identities, self._kept = addresses, identities, kept
        self._connections: list[Connection] = []
        self._of_clients: dict[tuple[str, str], Connection] = {}
        self._threads: list[threading.Thread] = []
        self._running: set[str] = set()
        """Servers that have not reported an end, and `clients`' and coordinator's own threads."""
        self._reports = Reports(job.names)
        self._statistics: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}
        self._sent_by_clients = 0
        self._ended = False
        self._changed = threading.Condition()

    def __enter__(self) -> _Round:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing of a round stays behind, but connections of clients if it is done."""
        with self._changed:
            self._ended = True
            if exception == (None, None, None):
                self._kept.update(self._of_clients)
            ending = set(self._connections) - set(self._kept.values())
            for connection in ending:
                connection.cut()
        for thread in self._threads:
            thread.join()
        for connection in ending:
            connection.close()

    def run(
        self,
        here: Sequence[str],
        secret_of: Mapping[str, Any],
        elsewhere: Callable[[], None] | None,
    ) -> Outcome:
        opened: list[Any] = []
        self._start_servers()
        self._in_thread(COORDINATOR, lambda: opened.append(self._conclude()))
        if elsewhere is not None:
            self._in_thread("elsewhere", elsewhere)
        for number, names in enumerate(_groups(here)):
            work = lambda names=names: self._be_clients(names, secret_of)  # noqa: E731
            self._in_thread(f"clients {number}", work)
        with self._changed:
            self._changed.wait_for(lambda: self._reports.errors or not self._running)
            if self._reports.errors:
                servers = set(self.job.names)
                self._changed.wait_for(lambda: not self._running & servers, HEARING)
                raise self._reports.cause()
        sent = {name: sum(self._statistics[name]["sent_bytes"].values()) for name in self.job.names}
        sent["clients"] = self._sent_by_clients
        answers = {name: self._answers[name] for name in here}
        return Outcome(answers, opened[0], sent, self._statistics)

    def _start_servers(self) -> None:
        """Start the job everywhere, or nowhere."""
        controls = {name: self._connect(COORDINATOR, name, "job") for name in self.job.names}
        for connection in controls.values():
            connection.write_json("job", self.job.to_json(), self.patience)
        for name, connection in controls.items():
            answer = connection.read_json("answer", self.patience)
            if "refused" in answer:
                raise PartyError(name, f"refused the job: {quoted(answer['refused'])}")
        for connection in controls.values():
            connection.write_json("start", {}, self.patience)
        for name, connection in controls.items():
            self._in_thread(name, partial(self._follow, name, connection))

    def _follow(self, name: str, connection: Connection) -> None:
        """Listen to a server until it reports its end."""
        while True:
            try:
                heard = connection.read_json("state", self.patience)
            except PartyError as error:
                with self._changed:
                    self._reports.add(name, error, lost=True)
                return
            if heard.get("state") == "done":
                self._statistics[name] = _statistics(name, heard)
                return
            if heard.get("state") == "failed":
                party, known = heard.get("party"), (COORDINATOR, *self.job.names, *self.job.clients)
                blamed = party if isinstance(party, str) and party in known else name
                raise PartyError(blamed, shortened(str(heard.get("what"))))

    def _conclude(self) -> Any:
        with self._links(COORDINATOR) as links, self._heard_first(lambda: COORDINATOR):
            return self.job.conclude(links)

    def _be_clients(self, names: Sequence[str], secret_of: Mapping[str, Any]) -> None:
        """Take all steps of these clients, in turn."""
        name, links = names[0], {}
        try:
            with contextlib.ExitStack() as stack, self._heard_first(lambda: name):
                for name in names:
                    links[name] = stack.enter_context(self._links(name))
                parts = {one: self.job.take_part(links[one], secret_of[one]) for one in names}
                while parts:
                    for name in list(parts):
                        try:
                            next(parts[name])
                        except StopIteration as end:
                            self._answers[name] = end.value
                            del parts[name]
        except BaseException:  # which is among the reports
            return
        with self._changed:
            self._sent_by_clients += sum(one.sent_bytes.total() for one in links.values())

    @contextlib.contextmanager
    def _heard_first(self, who: Callable[[], str]) -> Iterator[None]:
        """What goes wrong for the party that is at work is reported before its connections are
        cut: servers notice that at once, and must not be heard instead."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._reports.add(who(), error)
            raise

    @contextlib.contextmanager
    def _links(self, name: str) -> Iterator[TlsLinks]:
        # Without patience: silent servers are noticed by `_follow`, which ends all connections.
        with _link(
            self.job, name, lambda server: self._connect(name, server, "link"), patience=None
        ) as links:
            yield links

    def _connect(self, name: str, server: str, role: str) -> Connection:
        hello = {"role": role, "job": self.job.digest}
        address = self._addresses.of(server)
        of_client = name != COORDINATOR
        kept = self._kept.pop((name, server), None) if of_client else None
        connection = self._identities[name].connect(address, server, hello, self.patience, kept)
        with self._changed:
            self._connections.append(connection)
            if of_client:
                self._of_clients[name, server] = connection
            if self._ended:
                connection.cut()
        return connection

    def _in_thread(self, name: str, work: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                with self._changed:
                    self._reports.add(name, error)
            finally:
                with self._changed:
                    self._running.discard(name)
                    self._changed.notify_all()

        self._running.add(name)
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
