"""Links between processes: TLS 1.3, both sides show certificates of the same authority.

    server ──► server   one connection for each direction: the two may send at the same time
    client ◄─► server   one connection, first for what it uploads, then for what it is answered

A party is who its certificate says, and host names do not matter: a connection to somebody else
than expected is refused.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tacit.checks import host_and_port
from tacit.errors import TacitError
from tacit.secure.net.channel import NO_JOB, Connection, reason_of
from tacit.secure.net.links import PATIENCE, Links, PartyError
from tacit.secure.net.sealed import SealedSocket
from tacit.words import quoted

QUEUED = 64 << 20
"""Bytes that may wait for one server before the sender has to wait as well."""
MOST_GREETING = 1 << 14
TRYING, PAUSE = 5.0, 0.1
"""Seconds in which one tries to be let in, and between two attempts; see `door`."""


class NotAdmitted(Exception):
    """Whoever connected is not let in; says why."""


class Identity:
    """Who a party is: its certificate and key, and the authority that it trusts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._outgoing = _context(ssl.PROTOCOL_TLS_CLIENT, folder, name)
        self._incoming = _context(ssl.PROTOCOL_TLS_SERVER, folder, name)
        # Nothing is resumed. Tickets that a mere sender leaves unread could cost data on closing.
        self._incoming.num_tickets = 0

    def connect(
        self,
        address: str,
        peer: str,
        hello: dict[str, Any],
        patience: float = PATIENCE,
        kept: Connection | None = None,
    ) -> Connection:
        """A connection to this party, which has to let us in: the one `kept` if it still serves."""
        if kept is not None:
            kept.job = NO_JOB
            with contextlib.suppress(PartyError):  # which a new one may do better
                self._greet(kept, hello, patience)
                return kept
            kept.close()
        until = time.monotonic() + min(patience, TRYING)
        while (sock := self._reach(address, peer, patience)) is None:
            if time.monotonic() > until:
                raise PartyError(peer, f"did not begin TLS at {address}")
            time.sleep(PAUSE)
        connection = Connection(sock, peer)
        try:
            found = certified_name(connection.sock)
            if found != peer:
                raise PartyError(peer, f"is not at {address}, but {found}: check the addresses")
            self._greet(connection, hello, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reach(self, address: str, peer: str, patience: float) -> SealedSocket | None:
        """TLS with whoever is there; None if it hung up, as it does now and then in a crowd."""
        try:
            plain = socket.create_connection(host_and_port(address), timeout=patience)
        except OSError as error:
            reason = error.strerror or "no answer"
            raise PartyError(peer, f"cannot be reached at {address} ({reason.lower()})") from None
        try:
            sock = _prepare(self._outgoing, plain)
            _shake_hands(sock, patience)
        except NotAdmitted as refused:
            raise PartyError(peer, f"cannot be trusted at {address}: {refused}") from None
        except ConnectionError:
            return None
        except OSError:
            raise PartyError(peer, f"did not begin TLS at {address}") from None
        return sock

    def _greet(self, connection: Connection, hello: dict[str, Any], patience: float) -> None:
        try:
            connection.write_json("hello", hello, patience)
            answer = connection.read_json("welcome", patience, MOST_GREETING)
        except PartyError as error:
            # In TLS 1.3 one learns only here that the other side did not like our certificate.
            what = f"did not let {self.name} in (it {error.what})"
            raise PartyError(connection.peer, what) from None
        if "refused" in answer:
            raise PartyError(connection.peer, f"refused {self.name}: {quoted(answer['refused'])}")

    def begin(self, plain: socket.socket) -> SealedSocket:
        """What `accept` takes: TLS will be spoken here; nothing is sent or waited for yet."""
        return _prepare(self._incoming, plain)

    def accept(self, sock: SealedSocket, patience: float) -> Connection:
        """The other side of `connect`, up to the greeting; raises `NotAdmitted`."""
        try:
            _shake_hands(sock, patience)
        except TimeoutError:
            raise NotAdmitted(f"it did not begin TLS within {patience:g} s") from None
        except OSError:
            raise NotAdmitted("it left before TLS began") from None
        return Connection(sock, certified_name(sock))


def _context(protocol: int, folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    for path in (folder / "ca.pem", folder / f"{name}.pem"):
        if not path.is_file():
            raise TacitError(f"{path} is missing: make it with `tacit certificates {folder}`")
    try:
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / f"{name}.pem")
    except (ssl.SSLError, OSError) as error:
        raise TacitError(
            f"the certificates of {name} in {folder} cannot be read ({error}): "
            "make them with `tacit certificates`"
        ) from None
    return context


def _prepare(context: ssl.SSLContext, plain: socket.socket) -> SealedSocket:
    """TLS on top of this connection, before the handshake; closed if that fails."""
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SealedSocket(context, plain)
    except BaseException:
        plain.close()
        raise


def _shake_hands(sock: SealedSocket, patience: float) -> None:
    """The whole handshake within the patience; the connection is closed if it fails."""
    try:
        sock.shake_hands(time.monotonic() + patience)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        reason = error.verify_message
        if "expired" in reason:
            raise NotAdmitted("its certificate has expired") from None
        if "purpose" in reason:
            raise NotAdmitted("its certificate is that of a client") from None
        sentence = f"its certificate was not signed by this consortium's authority ({reason})"
        raise NotAdmitted(sentence) from None
    except ssl.SSLEOFError:
        sock.close()
        raise ConnectionResetError from None
    except ssl.SSLError as error:
        sock.close()
        raise NotAdmitted(f"it does not speak TLS as it should ({reason_of(error)})") from None
    except BaseException:
        sock.close()
        raise


def certified_name(sock: SealedSocket) -> str:
    """The party that the other side's certificate, which is already verified, stands for."""
    entries: Any = sock.certificate.get("subjectAltName", ())
    return next((value for kind, value in entries if kind == "DNS"), "")


class Sender:
    """Sends to one server in a thread, so that two servers can send to each other at once."""

    def __init__(self, connection: Connection, beat: float, lives: Callable[[], bool]) -> None:
        """After `beat` seconds with nothing to send, sends a sign of life while `lives` says so."""
        self._connection, self._beat, self._lives = connection, beat, lives
        self._queue: deque[tuple[str, memoryview]] = deque()
        self._waiting = 0
        self._failed: PartyError | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, label: str, raw: memoryview) -> None:
        # No limit of time: the receiver may have to wait for others before it reads. If it is dead
        # the connection ends; if it is silent, the coordinator notices, and ends the job.
        with self._changed:
            while self._queue and self._waiting + len(raw) > QUEUED and not self._failed:
                self._changed.wait()
            if self._failed:
                raise self._failed
            self._queue.append((label, raw))
            self._waiting += len(raw)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is sent."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue or self._failed)
            if self._failed:
                raise self._failed

    def end(self) -> None:
        """Drop what was not sent; the connection must have been flushed or cut before."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended, self._beat)
                if self._ended:
                    return
                label, raw = self._queue[0] if self._queue else (None, memoryview(b""))
            try:
                if label is not None:
                    self._connection.write(label, raw, None)
                elif self._lives():
                    # A receiver that needs nothing more may be gone, which is no failure.
                    with contextlib.suppress(PartyError):
                        self._connection.write_sign_of_life()
            except PartyError as error:
                with self._changed:
                    self._failed = error
                    self._changed.notify_all()
                return
            if label is None:
                continue
            with self._changed:
                self._queue.popleft()  # only now: `flush` waits for an empty queue
                self._waiting -= len(raw)
                self._changed.notify_all()


class TlsLinks(Links):
    """Links over connections that are open already."""

    def __init__(
        self,
        name: str,
        outgoing: Mapping[str, Connection],
        incoming: Mapping[str, Connection],
        patience: float | None = PATIENCE,
        through_threads: Collection[str] = (),
    ) -> None:
        """`through_threads`: the servers among the receivers, whose links have two connections."""
        super().__init__(name)
        self.patience = patience
        self._outgoing, self._incoming = dict(outgoing), dict(incoming)
        self._waits_since: float | None = None
        beat = (PATIENCE if patience is None else patience) / 4
        self._senders = {to: Sender(outgoing[to], beat, self._lives) for to in through_threads}

    def flush(self) -> None:
        """Wait until everything is on its way; raises what went wrong meanwhile."""
        for sender in self._senders.values():
            sender.flush()

    def close(self) -> None:
        """End the threads, and what they send on; whoever opened the connections closes them."""
        for to, sender in self._senders.items():
            self._outgoing[to].cut()
            sender.end()

    def _put(self, to: str, label: str, raw: memoryview) -> None:
        if to in self._senders:
            self._senders[to].put(label, raw)
        else:
            self._outgoing[to].write(label, raw, self.patience)

    def _get(self, sender: str, label: str, into: memoryview) -> None:
        self._progress()
        self._incoming[sender].read_into(label, into, self.patience, self._progress)
        self._waits_since = None

    def _progress(self) -> None:
        self._waits_since = time.monotonic()

    def _lives(self) -> bool:
        """Whether it computes, or has not waited for a message longer than anybody should.

        Others wait for this party as long as that holds, so a slow client's upload to one server
        does not make the rest lose patience with that server.
        """
        since = self._waits_since
        return since is None or self.patience is None or time.monotonic() - since < self.patience
