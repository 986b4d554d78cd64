"""One job at one server: who has connected for it, the server's part, and what came of that."""

from __future__ import annotations

import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.secure.jobs.job import COORDINATOR, Job
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.channel import Connection
from tacit.secure.net.links import PartyError
from tacit.secure.net.tls import Identity, NotAdmitted, TlsLinks


class Session:
    """Collects the connections of a job, does the job, and ends the connections."""

    def __init__(
        self, job: Job, identity: Identity, addresses: Addresses, patience: float, secret: bytes
    ) -> None:
        self.job, self._identity, self._secret = job, identity, secret
        self._addresses, self._patience = addresses, patience
        self._others = [name for name in job.names if name != identity.name]
        """Servers and dealer: what is sent to them has a connection of its own."""
        self._incoming: dict[str, Connection] = {}
        self._outgoing: dict[str, Connection] = {}
        self.spared: list[Connection] = []
        """Clients' connections, once the job is done: the next one may come on them."""
        self._begun = self._ended = False
        self._changed = threading.Condition()

    def __str__(self) -> str:
        return f"job {self.job.id[:8]} ({self.job.kind})"

    def admit(self, connection: Connection) -> None:
        """Take a party's connection, and tell the party; raises `NotAdmitted`."""
        name = connection.peer
        with self._changed:
            if name not in (*self._others, *self.job.clients, COORDINATOR):
                raise NotAdmitted(f"{name} takes no part in this job")
            if name in self._incoming:
                raise NotAdmitted(f"{name} is connected already")
            if self._ended:
                raise NotAdmitted("this job has ended")
            # Nobody else may use the connection before the welcome is out.
            connection.write_json("welcome", {}, self._patience)
            connection.job = self.job.tag
            connection.signs_of_life = name in self._others
            self._incoming[name] = connection
            self._changed.notify_all()

    def work(self) -> dict[str, Any]:
        """Do the server's part; returns what the coordinator is told at the end."""
        begun = time.monotonic()
        self._begun = True
        try:
            links = self._work()
        except PartyError as error:
            return {"state": "failed", "party": error.party, "what": error.what}
        except Exception as error:
            known = isinstance(error, TacitError)
            what = str(error) if known else f"{type(error).__name__}: {error}"
            return {"state": "failed", "party": self._identity.name, "what": f"stopped: {what}"}
        finally:
            self.cut()
            self._close()
        return {
            "state": "done",
            "sent_bytes": dict(links.sent_bytes),
            "sent_messages": links.sent_messages.total(),
            "seconds": time.monotonic() - begun,
            "peak_memory": _peak_memory(),
        }

    def cut(self) -> None:
        """Make whoever waits for a message notice that the job is over."""
        with self._changed:
            self._ended = True
            for connection in (*self._incoming.values(), *self._outgoing.values()):
                connection.cut()
            self._changed.notify_all()
        if not self._begun:
            self._close()

    def _close(self) -> None:
        for connection in (*self._incoming.values(), *self._outgoing.values()):
            connection.close()

    def _spare_clients(self) -> None:
        with self._changed:
            if not self._ended:
                self.spared = [self._incoming.pop(name) for name in self.job.clients]

    def _work(self) -> TlsLinks:
        self._connect()
        self._wait_for_all()
        both_ways = {name: self._incoming[name] for name in (*self.job.clients, COORDINATOR)}
        connections = self._outgoing | both_ways, self._incoming
        name, servers = self._identity.name, self._others
        links = TlsLinks(name, *connections, self._patience, through_threads=servers)
        links.secret = self._secret
        try:
            self.job.work(links)
            links.flush()
        finally:
            links.close()
        self._spare_clients()
        return links

    def _connect(self) -> None:
        hello = {"role": "link", "job": self.job.digest}
        for name in self._others:
            address = self._addresses.of(name)
            connection = self._identity.connect(address, name, hello, self._patience)
            connection.job = self.job.tag
            with self._changed:
                self._outgoing[name] = connection
                if self._ended:
                    connection.cut()

    def _wait_for_all(self) -> None:
        expected = [*self._others, *self.job.clients, COORDINATOR]
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or len(self._incoming) == len(expected), self._patience
            )
            if self._ended:
                raise PartyError(COORDINATOR, "ended the job")
            for name in expected:
                if name not in self._incoming:
                    raise PartyError(name, f"did not connect within {self._patience:g} s")


def _peak_memory() -> int:
    """In bytes, of the whole process since it was started."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says there begins with the size of whoever started us
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
