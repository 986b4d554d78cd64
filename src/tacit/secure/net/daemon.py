"""A server, or the dealer, as a process of its own: `tacit server`.

    coordinator ──► job ──► accepted? ──► start ──► working … working ──► done, or failed and why

One job at a time. A job gets its connections after all servers have accepted it, and loses them
when it ends, so a party that waits for a failed one notices at once. No job ends the process, and
no crowd does: few strangers are held at a time, and few connections of each party (`door`).
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.checks import host_and_port
from tacit.errors import TacitError
from tacit.gauges import Gauge, write_gauges
from tacit.secure.jobs.job import COORDINATOR, DEALER, Job
from tacit.secure.jobs.kinds import JOBS, job_from_json
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.allowed import Allowed
from tacit.secure.net.channel import CLOSED, NO_JOB, Connection
from tacit.secure.net.door import Door, Visit, listen
from tacit.secure.net.links import PATIENCE, PartyError
from tacit.secure.net.memory import Begun, keep_secret
from tacit.secure.net.sealed import SealedSocket
from tacit.secure.net.session import Session
from tacit.secure.net.tls import MOST_GREETING, Identity, NotAdmitted
from tacit.words import tame

CLEARING = 1.0
"""Seconds that a new job waits for the end of one that its coordinator has given up."""
STOP, STAYS = b".", b"+"
"""What other threads say to the one that waits."""
BEAT = 0.5
"""Seconds between two signs of life, well below anybody's patience."""
LINES = 30
"""About so many refused or lost connections something is said in a minute."""


def _print(line: str) -> None:
    print(line, flush=True)


class Seldom:
    """Writes a limited number of lines in a while, and then how many it left out."""

    def __init__(self, say: Callable[[str], None], most: int, seconds: float) -> None:
        self._say, self._most, self._seconds = say, most, seconds
        self._since, self._said = time.monotonic(), 0
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock:
            if time.monotonic() - self._since > self._seconds:
                if self._said > self._most:
                    self._say(f"{self._said - self._most} more lines like these were left out")
                self._since, self._said = time.monotonic(), 0
            self._said += 1
            if self._said <= self._most:
                self._say(line)


class Daemon:
    """Listens, lets certified parties in, and does the jobs that the coordinator sends."""

    def __init__(
        self,
        name: str,
        addresses: Addresses,
        certificates: Path,
        *,
        patience: float = PATIENCE,
        registry: Mapping[str, str] = JOBS,
        allowed: Allowed | None = None,
        log: Callable[[str], None] = _print,
    ) -> None:
        self.name, self.addresses, self.patience = name, addresses, patience
        self._address = addresses.of(name)
        self._identity = Identity(certificates, name)
        self._allowed, self._registry = allowed, registry
        self._secret = keep_secret(certificates, name)
        self._begun = Begun(certificates, name, None if allowed is None else allowed.agreement)
        self._door, self._log = Door(patience), lambda line: log(tame(line))
        self._seldom = Seldom(self._log, LINES, 60.0)
        self._of_jobs = Seldom(self._log, LINES, 60.0)  # strangers must not silence these
        self._gauges = certificates / f"{name}.prom"
        self._ended: Counter[str] = Counter({"done": 0, "failed": 0, "refused": 0})
        self._counting = threading.Lock()
        self._session: Session | None = None
        self._between: dict[Connection, bool] = {}
        """Of clients whose job is done, and whether it is waited for what they say next."""
        self._changed = threading.Condition()
        self._woken, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until `stop`."""
        with (
            self._woken,
            self._waker,
            self._listener() as listener,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            self._log(f"{self.name} listens on {self._address}")
            self._count()
            while STOP not in self._wait(listener, selector):
                pass
        with self._changed:
            for connection in self._between:
                connection.close()
            if self._session is not None:
                self._session.cut()

    def _wait(self, listener: socket.socket, selector: selectors.BaseSelector) -> bytes:
        """Until somebody connects or speaks; returns what other threads say."""
        said = b""
        for key, _ in selector.select():
            try:
                if key.fileobj is self._woken:
                    said = self._woken.recv(1 << 12)
                elif key.fileobj is listener:
                    self._accept(listener)
                else:
                    selector.unregister(key.fileobj)
                    self._resume(key.data)
            except (OSError, RuntimeError) as error:  # no more files or threads, or it left
                self._seldom(f"could not accept a connection ({error})")
                time.sleep(0.01)
        with self._changed:
            for connection in [one for one, awaited in self._between.items() if not awaited]:
                selector.register(connection.sock, selectors.EVENT_READ, connection)
                self._between[connection] = True
        return said

    def stop(self) -> None:
        """End `run`; may be called by a signal handler."""
        self._wake(STOP)

    def _wake(self, why: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self._waker.send(why)

    def _listener(self) -> socket.socket:
        host, port = host_and_port(self._address)
        try:
            return listen(host, port)
        except OSError as error:
            raise TacitError(
                f"{self.name} cannot listen on {self._address} ({error.strerror}): "
                "its own address must be free and of this machine"
            ) from None

    def _accept(self, listener: socket.socket) -> None:
        if self._door.full:
            raise OSError("too many are still being closed")
        plain, (host, *_) = listener.accept()
        if self._door.refuses(host):
            plain.close()
            return
        sock = self._identity.begin(plain)
        visit = self._door.enter(sock, host, sock.cut)
        try:
            threading.Thread(target=self._receive, args=(sock, host, visit), daemon=True).start()
        except RuntimeError:
            sock.close()
            self._door.leave(visit)
            raise

    def _receive(self, sock: SealedSocket, host: str, visit: Visit) -> None:
        """A new connection, in its own thread; whatever happens stays here."""
        leave = functools.partial(self._door.leave, visit)
        try:
            connection = self._identity.accept(sock, self.patience)
        except Exception as error:
            known = isinstance(error, NotAdmitted)
            what = f"{error}" if known else f"{type(error).__name__}: {error}"
            self._seldom(f"{'refused' if known else 'ended the connection with'} {host}: {what}")
            leave()
            return
        connection.on_close = leave
        self._hear(connection, host)

    def _hear(self, connection: Connection, host: str, *, again: bool = False) -> None:
        """What a party wants: a new one, or a client that stayed and speaks `again`."""
        keep = False
        try:
            if not again and not self._door.know(connection.sock, connection.peer):
                raise NotAdmitted(f"{connection.peer} has too many connections, or was too slow")
            hello = connection.read_json("hello", self.patience, MOST_GREETING)
            if hello.get("role") == "job":
                self._coordinate(connection)
            else:
                self._admit(connection, hello)
                keep = True
        except NotAdmitted as refused:
            self._seldom(f"refused {host}: {refused}")
            with contextlib.suppress(PartyError):
                connection.write_json("welcome", {"refused": str(refused)}, self.patience)
        except PartyError as error:
            if not (again and error.what.startswith(CLOSED)):  # it may leave between jobs
                self._seldom(f"ended the connection with {host}: {error.party} {error.what}")
        except Exception as error:
            self._seldom(f"ended the connection with {host}: {type(error).__name__}: {error}")
        finally:
            if not keep:
                connection.close()

    def _stay(self, connections: list[Connection]) -> None:
        """Clients stay connected from job to job; what they say next is waited for in `run`."""
        with self._changed:
            for connection in connections:
                connection.job = NO_JOB
                self._between[connection] = False
        self._wake(STAYS)

    def _resume(self, connection: Connection) -> None:
        with self._changed:
            del self._between[connection]
        hear = functools.partial(self._hear, connection, connection.peer, again=True)
        try:
            threading.Thread(target=hear, daemon=True).start()
        except RuntimeError:
            connection.close()
            raise

    def _admit(self, connection: Connection, hello: dict[str, Any]) -> None:
        with self._changed:
            session = self._session
        if session is None or session.job.digest != hello.get("job"):
            raise NotAdmitted(
                f"{connection.peer} asks for a job that is not open here: it is over, or the "
                "coordinator told this server of another one"
            )
        session.admit(connection)

    def _coordinate(self, connection: Connection) -> None:
        """A connection that brings a job."""
        if connection.peer != COORDINATOR:
            raise NotAdmitted(f"{connection.peer} may not start jobs, only the coordinator may")
        connection.write_json("welcome", {}, self.patience)
        described = connection.read_json("job", self.patience)
        try:
            session = self._open(job_from_json(described, self._registry))
        except TacitError as refused:
            self._of_jobs(f"refused a job: {refused}")
            connection.write_json("answer", {"refused": str(refused)}, self.patience)
            self._count("refused")
            return
        try:
            connection.write_json("answer", {}, self.patience)
            connection.read_json("start", self.patience)
            end = self._attend(connection, session)
        except PartyError:  # the coordinator left
            self._count("failed")
            raise
        finally:
            session.cut()
            with self._changed:
                self._session = None
                self._changed.notify_all()
        self._stay(session.spared)
        # Only now: the coordinator may send its next job at once.
        connection.write_json("state", end, self.patience)
        self._count(end["state"])

    def _count(self, end: str | None = None) -> None:
        """Write for Prometheus how jobs ended; how long they took, and of whom, is not in it."""
        with self._counting:
            self._ended.update([end] if end else [])
            about = "Jobs that ended since this server was started."
            of = {"party": self.name}
            gauges = [
                Gauge("tacit_server_jobs_total", about, number, of | {"end": name}, counts=True)
                for name, number in self._ended.items()
            ]
            try:
                write_gauges(self._gauges, gauges)
            except TacitError as error:  # no job depends on it
                self._seldom(str(error))

    def _open(self, job: Job) -> Session:
        """From here on parties can connect for this job."""
        if job.servers != len(self.addresses.servers) or self.name not in job.names:
            raise TacitError(
                f"the job is for {job.servers} servers, "
                f"but {self.name} knows {len(self.addresses.servers)}: check --peers"
            )
        if job.dealer and self.addresses.dealer is None:
            raise TacitError(f"the job needs a {DEALER}: start servers with --dealer")
        if self._allowed is not None:
            self._allowed.check(job)
        session = Session(job, self._identity, self.addresses, self.patience, self._secret)
        with self._changed:
            self._changed.wait_for(lambda: self._session is None, CLEARING)
            if self._session is not None:
                raise TacitError(f"{self.name} is busy with another {self._session}: try later")
            self._begin(job)
            self._session = session
            for connection in self._between:  # so that nobody's rest takes the place of others
                if connection.peer not in job.clients:
                    connection.cut()
        return session

    def _begin(self, job: Job) -> None:
        """Remember a job that counts, or that must not come twice."""
        if job.digest in self._begun:
            if not job.repeatable:
                raise TacitError("this job was here before, and is not repeated: begin another")
            return
        if self._allowed is not None:
            self._allowed.check_count(self._begun.besides(job.digest))
        if self._allowed is not None or not job.repeatable:
            self._begun.add(job.digest)

    def _attend(self, connection: Connection, session: Session) -> dict[str, Any]:
        """Let the job work in a thread; tell the coordinator that it does, and notice if it left.

        This connection has no other reader or writer, whatever the job sends meanwhile.
        """
        ends: list[dict[str, Any]] = []
        ended, ending = socket.socketpair()

        def work() -> None:
            with ending:
                ends.append(session.work())

        with ended, selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            selector.register(connection.sock, selectors.EVENT_READ)
            threading.Thread(target=work, daemon=True).start()
            while True:
                beat = min(BEAT, self.patience / 4)
                ready = [key.fileobj for key, _ in selector.select(beat)]
                if ended in ready:
                    break
                if ready:
                    self._of_jobs(f"{session}: given up by the coordinator")
                    raise PartyError(COORDINATOR, "left its job")
                connection.write_json("state", {"state": "working"}, self.patience)
        end = ends[0]
        if end["state"] == "done":
            self._log(f"{session}: done in {end['seconds']:.2f} s")
        else:
            self._of_jobs(f"{session}: failed, {end['party']} {end['what']}")
        return end
