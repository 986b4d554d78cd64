"""A consortium on one machine: every party a process with a folder of its own, over TLS."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from types import MappingProxyType

from tacit.deploy.agreement import Agreement
from tacit.deploy.keys import make_keys
from tacit.deploy.site import AGREED, SETTINGS, write_settings
from tacit.errors import TacitError
from tacit.files import copy, replace
from tacit.secure.jobs.job import COORDINATOR
from tacit.secure.net.local import LocalServers, end_all, free_ports

COMMAND = (sys.executable, "-m", "tacit.cli")
OUTPUT = "output.txt"
CALM = {"OMP_NUM_THREADS": "1"}
"""Parties share one machine here; each of them taking all cores would slow all of them down."""


class Trial:
    """Folders and processes of one coordinator and its silos; `with` ends them all."""

    def __init__(
        self,
        folder: Path,
        consortium: str,
        tables: Mapping[str, Path],
        *,
        patience: float = 60.0,
        command: Sequence[str] = COMMAND,
        coordinator: Sequence[str] = (),
        silo: Mapping[str, str] = MappingProxyType({}),
        servers: LocalServers | None = None,
    ) -> None:
        """`consortium` is the text of consortium.toml, `tables` the file of each silo.

        The coordinator is given further options of `tacit coordinator run`, and silos further
        settings of silo.toml. All of them are told where the servers on shares are.
        """
        self.folder, self._patience, self._command = folder, patience, command
        self._coordinator = tuple(coordinator)
        where = None
        if servers is not None:
            where = servers.addresses.servers, servers.folder
            self._coordinator += ("--peers", ",".join(where[0]), "--certificates", str(where[1]))
        self.silos = tuple(tables)
        self.port = free_ports(1)[0]
        self.processes: dict[str, Popen[bytes]] = {}
        make_keys(folder, self.silos)
        for name in (COORDINATOR, *self.silos):
            replace(folder / name / AGREED, consortium.encode())
        self.terms = Agreement.read(folder / COORDINATOR / AGREED).terms
        for name, table in tables.items():
            if not (folder / name / SETTINGS).exists():
                data, coordinator = f"table{table.suffix}", f"127.0.0.1:{self.port}"
                copy(table, folder / name / data)
                given = {"name": name, "data": data, "coordinator": coordinator, **silo}
                write_settings(folder / name, servers=where, **given)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exception: object) -> None:
        end_all(self.processes.values(), 3)

    def start(self, *names: str) -> None:
        """Start these parties; all of them if none is named."""
        for name in names or (COORDINATOR, *self.silos):
            place = str(self.folder / name)
            if name == COORDINATOR:
                options = ["coordinator", "run", place, "--host", "127.0.0.1"]
                options += ["--port", str(self.port), "--patience", str(self._patience)]
                options += self._coordinator
            else:
                options = ["silo", "run", place, "--once"]
            with (self.folder / name / OUTPUT).open("ab") as output:
                command, env = [*self._command, *options], os.environ | CALM
                self.processes[name] = Popen(
                    command, stdin=DEVNULL, stdout=output, stderr=STDOUT, env=env
                )

    def kill(self, name: str) -> None:
        """As if the machine had lost its power."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def wait(self, *names: str, seconds: float = 120.0) -> None:
        """Until these parties are done, all of them if none is named."""
        until = time.monotonic() + seconds
        for name in names or tuple(self.processes):
            try:
                code = self.processes[name].wait(max(0.0, until - time.monotonic()))
            except TimeoutExpired:
                said = self.said(name)
                raise TacitError(f"{name} is not done after {seconds:g} s: {said}") from None
            if code:
                raise TacitError(f"{name} ended with {code}: {self.said(name)}")

    def said(self, name: str) -> str:
        """The end of what a party printed."""
        path = self.folder / name / OUTPUT
        return path.read_text(encoding="utf-8")[-2000:].strip() if path.exists() else "nothing"
