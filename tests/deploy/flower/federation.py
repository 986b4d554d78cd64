"""An unmodified Flower federation on the loopback address: Flower's own commands, TLS and keys."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen

from tacit.deploy.keys import make_keys
from tacit.secure.net.local import free_ports

BIN = Path(sys.executable).parent
SRC = Path(__file__).resolve().parents[3] / "src"
OFF = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "OMP_NUM_THREADS": "1",
}


class Federation:
    """A SuperLink, and a SuperNode for each silo that has a folder; `with` ends them all."""

    def __init__(self, folder: Path, silos: dict[str, Path]) -> None:
        self.folder, self.silos = folder, silos
        self.keys, self.home = folder / "keys", folder / "home"
        make_keys(self.keys, list(silos))
        (self.home / ".flwr").mkdir(parents=True)
        self.port, *self._ports = free_ports(1 + len(silos))
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(self.home), "FLWR_HOME": str(self.home / ".flwr")}
        self.env = os.environ | OFF | own | {"PYTHONPATH": str(SRC)}
        (self.home / ".flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "ours"\n[superlink.ours]\n'
            f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.keys / "ca.pem"}"\n'
        )
        self.processes: dict[str, Popen[bytes]] = {}

    def __enter__(self) -> Federation:
        place = self.keys / "coordinator"
        self._start(
            "superlink", "flower-superlink", "--enable-supernode-auth",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-certfile", place / "server.pem", "--ssl-keyfile", place / "server.key",
            "--ssl-ca-certfile", place / "ca.pem",
        )  # fmt: skip
        self._until_there()
        for name in self.silos:
            self.command("supernode", "register", self.keys / name / "node.pub", "ours")
        for name in self.silos:
            self.start_node(name)
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def start_node(self, name: str) -> None:
        port = self._ports[list(self.silos).index(name)]
        self._start(
            name, "flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
            "--root-certificates", self.keys / "ca.pem", "--port", str(port),
            "--auth-supernode-private-key", self.keys / name / "node.key",
            "--node-config", f'tacit-silo="{self.silos[name]}"',
        )  # fmt: skip

    def _start(self, name: str, *words: object) -> None:
        with (self.folder / f"{name}.txt").open("ab") as output:
            self.processes[name] = Popen(
                [str(BIN / str(words[0])), *map(str, words[1:])],
                stdin=DEVNULL, stdout=output, stderr=STDOUT, env=self.env, cwd=self.folder,
            )  # fmt: skip

    def _until_there(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.command("supernode", "list", "ours")
                return
            time.sleep(0.5)
        raise AssertionError(self.said("superlink"))

    def command(self, *words: object) -> str:
        """What `flwr` says to this."""
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, words)],
            stdin=DEVNULL, capture_output=True, text=True, env=self.env, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def run(self, app: Path, until: Path, seconds: float = 300.0) -> None:
        """Run a project; `until` is the file that it ends with."""
        self.command("run", app, "ours")
        end = time.monotonic() + seconds
        while not until.exists():
            assert time.monotonic() < end, "\n".join(map(self.said, self.processes))
            time.sleep(0.5)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8")
