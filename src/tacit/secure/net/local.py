"""Servers as processes of this machine: for the demo, benchmarks and fault tests."""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired

from tacit.errors import TacitError
from tacit.secure.jobs.job import DEALER
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.links import PATIENCE
from tacit.secure.net.remote import Remote

STARTING = 60.0
"""Seconds in which a process must be ready."""


class LocalServers:
    """`with LocalServers(3, clients) as servers: servers.remote.run(job, secrets)`."""

    def __init__(
        self,
        servers: int,
        clients: Sequence[str],
        *,
        dealer: bool = False,
        patience: float = PATIENCE,
        command: Sequence[str] = (sys.executable, "-m", "tacit.cli", "server"),
    ) -> None:
        """`command` starts one server; it is given the options of `tacit server`."""
        self._clients, self._patience, self._command = clients, patience, command
        ports = free_ports(servers + dealer)
        local = [f"127.0.0.1:{port}" for port in ports]
        self.addresses = Addresses(tuple(local[:servers]), local[servers] if dealer else None)
        self.processes: dict[str, Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> LocalServers:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-")))
            stack.callback(self._stop)
            make_certificates(self.folder, len(self.addresses.servers), self._clients)
            for name in self.addresses.names:
                self._start(name)
            for name in self.addresses.names:
                self._wait_for(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def remote(self) -> Remote:
        servers, dealer = self.addresses.servers, self.addresses.dealer
        return Remote(servers, dealer, self.folder, self._patience)

    def restart(self, name: str) -> None:
        """End this server, if it is still there, and start it again."""
        self._kill(name)
        self._start(name)
        self._wait_for(name)

    def log(self, name: str) -> str:
        """What a server has printed since it was started."""
        return (self.folder / f"{name}.log").read_text()

    def peers_of(self, name: str) -> Addresses:
        """Where a server finds the others; a test may lead it through something else."""
        return self.addresses

    def _start(self, name: str) -> None:
        peers = self.peers_of(name)
        party = name if name == DEALER else name.removeprefix("server-")
        options = ["--party", party, "--peers", ",".join(peers.servers)]
        options += ["--dealer", peers.dealer] if peers.dealer else []
        options += ["--certificates", str(self.folder), "--patience", str(self._patience)]
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [*self._command, *options]
            self.processes[name] = Popen(command, stdin=DEVNULL, stdout=log, stderr=STDOUT)

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + STARTING
        while f"{name} listens on" not in self.log(name):
            if self.processes[name].poll() is not None or time.monotonic() > until:
                said = self.log(name).strip() or "it said nothing"
                raise TacitError(f"{name} did not start: {said}")
            time.sleep(0.02)

    def _stop(self) -> None:
        end_all(self.processes.values(), 2)

    def _kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()  # also ends a process that is stopped
        process.wait()


def end_all(processes: Collection[Popen[bytes]], seconds: float) -> None:
    """Ask these processes to end, and end those that have not done so after so many seconds."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + seconds
    for process in processes:
        with contextlib.suppress(TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()  # also ends a process that is stopped
        process.wait()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in found]
