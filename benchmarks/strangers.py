"""A run of eight silos and three servers on shares, alone and among strangers: how much longer?

    python benchmarks/strangers.py                                  # 1000 on each of two ports
    python benchmarks/strangers.py --strangers 100 --rounds 5       # a small one

All parties are processes on loopback, over TLS with registered keys. Strangers have no key. They
connect to the coordinator's port and to that of the first server, as many to each, from twenty
addresses, among them that of the silos; as soon as they are cut off, they come again within three
seconds. A quarter each are idle, trickle a byte a second in place of TLS, go through TLS (where it
asks for no certificate) and send half a request, and send garbage. They are one process of low
priority: they should take the parties' attention, not their cores.

The time is that of the rounds after the first, from the coordinator's own status. A run that does
not end, or takes more than 1.5 times as long as before, ends this with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deploy_kills import COLUMNS, terms_text
from tacit.deploy.conduct import STATUS
from tacit.deploy.diary import read_diary
from tacit.deploy.events import PartyFailed, SiloSilent
from tacit.deploy.flower.trial import Trial
from tacit.secure.jobs.job import COORDINATOR
from tacit.secure.net.local import LocalServers

SILOS = tuple(f"silo-{k}" for k in range(8))
BAR = 1.5


def on_shares(folder: Path, text: str, at: LocalServers) -> Trial:
    """A trial whose parties know where the servers are."""
    return Trial(folder / "trial", text, tables_in(folder), servers=at)


def tables_in(folder: Path) -> dict[str, Path]:
    draw, tables = np.random.default_rng(0), {}
    truth = draw.normal(size=COLUMNS)
    for silo in SILOS:
        x = draw.normal(size=(60, COLUMNS))
        y = (x @ truth > 0).astype(int)
        lines = [",".join([*(f"x{k}" for k in range(COLUMNS)), "y"])]
        lines += [",".join([*(f"{v:.4f}" for v in row), str(one)]) for row, one in zip(x, y)]
        tables[silo] = folder / f"{silo}.csv"
        tables[silo].write_text("\n".join(lines))
    return tables


def agreed(rounds: int) -> str:
    text = terms_text(rounds, seeded=False)
    return text.replace('["north", "east", "south", "west"]', json.dumps(SILOS)) + "[curator]\n"


@contextlib.contextmanager
def crowd(ports: list[int], number: int) -> Iterator[None]:
    """So many strangers on each of these ports."""
    command = [sys.executable, __file__, "--attack", ",".join(map(str, ports))]
    process = subprocess.Popen([*command, "--strangers", str(number)])
    try:
        time.sleep(3 if number else 0)
        yield
        if process.poll() is not None:
            raise SystemExit("the strangers left before the run was over")
    finally:
        process.terminate()
        process.wait()


def timed(folder: Path, rounds: int, strangers: int) -> float:
    """Seconds from the end of the first round to the end of the last."""
    folder.mkdir()
    with (
        LocalServers(3, SILOS) as servers,
        on_shares(folder, agreed(rounds), servers) as trial,
    ):
        first = int(servers.addresses.servers[0].rpartition(":")[2])
        with crowd([trial.port, first], strangers) if strangers else contextlib.nullcontext():
            trial.start()
            path = trial.folder / COORDINATOR / STATUS
            began = _wait(trial, path, 1)
            ended = _wait(trial, path, rounds)
            trial.wait(seconds=120)
        finished = json.loads((trial.folder / COORDINATOR / "result.json").read_text())["finished"]
        entries, _ = read_diary(trial.folder / COORDINATOR)
    late = sum(isinstance(entry.event, SiloSilent | PartyFailed) for entry in entries)
    print(f"  {len(finished)} of {len(SILOS)} silos finished, {late} late answers", flush=True)
    if len(finished) < len(SILOS):
        raise SystemExit("some silos did not finish")
    return ended - began


def _wait(trial: Trial, path: Path, round: int) -> float:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if path.exists() and json.loads(path.read_text())["round"] >= round:
            return time.monotonic()
        if trial.processes[COORDINATOR].poll():
            raise SystemExit(f"the coordinator ended: {trial.said(COORDINATOR)}")
        time.sleep(0.02)
    raise SystemExit(f"round {round} was not over after 600 s: {trial.said(COORDINATOR)}")


async def attack(ports: list[int], number: int) -> None:
    """Never returns."""
    await asyncio.gather(*(stranger(port, k) for port in ports for k in range(number)))


async def stranger(port: int, k: int) -> None:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    secure = {"ssl": trusting, "server_hostname": "x"} if k % 4 == 2 else {}
    address = (f"127.0.0.{1 + k % 20}", 0)
    while True:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection("127.0.0.1", port, local_addr=address, **secure), 30
            )
            if k % 4 == 2:
                writer.write(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\n")
            if k % 4 == 3:
                writer.write(b"\x16\x03\x01" + random.randbytes(200))
            while not reader.at_eof():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(1000), 1.0 if k % 4 == 1 else 60.0)
                if k % 4 == 1:
                    writer.write(b"\x16")
            writer.transport.abort()
        await asyncio.sleep(random.uniform(0.0, 3.0))


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--strangers", type=int, default=1000, help="on each port")
    given.add_argument("--rounds", type=int, default=20)
    given.add_argument("--turns", type=int, default=1, help="medians of so many are compared")
    given.add_argument("--attack", help=argparse.SUPPRESS)
    settings = given.parse_args()
    if settings.attack:
        os.nice(15)
        asyncio.run(attack([int(port) for port in settings.attack.split(",")], settings.strangers))
    calm, among = [], []
    for _ in range(settings.turns):
        with tempfile.TemporaryDirectory() as name:
            calm.append(timed(Path(name) / "calm", settings.rounds, 0))
            print(f"undisturbed      {calm[-1]:.1f} s for {settings.rounds - 1} rounds", flush=True)
            among.append(timed(Path(name) / "among", settings.rounds, settings.strangers))
            print(f"among strangers  {among[-1]:.1f} s, {settings.strangers} on each of two ports")
    ratio = statistics.median(among) / statistics.median(calm)
    print(f"ratio            {ratio:.2f} (at most {BAR})")
    if ratio > BAR:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
