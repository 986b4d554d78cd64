"""tacit beside its peers: three works, one table with ratios.

    benchmarks/peers/make_environments.sh
    python benchmarks/peers/run.py [--works cnn linear table] [--turns 3] [--threads 2]

Every run is a process of its own in the peer's own environment, and peers take turns. What counts
is the call (rows are there, libraries are imported) for `cnn` and `linear`, and for `table` all
from the command on. Peers that need seconds for a round make a few, and their call is scaled up.
Processor time is measured beside the clock: on a busy machine it is what can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from works import WORKS, write_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import kept

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "build" / "peers"
PEERS = ("tacit", "loop", "pfl", "flower", "jax")
SLOW = {("linear", "loop"), ("linear", "pfl"), ("linear", "flower"), ("cnn", "flower")}
TICKS = os.sysconf("SC_CLK_TCK")


class Figures(NamedTuple):
    """One run."""

    seconds: float
    cpu: float
    """Of processor time, in the call; for `table`, and for peers with workers, in all of it."""
    a_round: float
    cpu_round: float
    peak_mib: float
    accuracy: float


def python_of(peer: str) -> Path | None:
    """The interpreter that a peer runs in; None where it could not be installed."""
    if peer == "tacit":
        return Path(sys.executable)
    place = ENVIRONMENTS / peer / "bin" / "python"
    return place if place.exists() else None


def run(peer: str, name: str, table: Path, threads: int) -> Figures | str:
    """The figures of one run, or what went wrong."""
    python, work = python_of(peer), WORKS[name]
    if python is None:
        return "not installed"
    rounds = work.few if (name, peer) in SLOW else work.rounds
    mark = uuid.uuid4().hex
    words = [python, HERE / f"with_{peer}.py", name, rounds, *([table] if name == "table" else [])]
    paths = [str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths if peer == "tacit" else paths[:1]),
        "OMP_NUM_THREADS": str(threads),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false" if threads == 1 else "",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PEERS_MARK": mark,
    }
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([*map(str, words)], env=environment, stdout=out, stderr=err)
        watch = Watch(mark)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        cpu, peak = watch.end()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            return (err.read().strip().splitlines() or ["it failed"])[-1]
        found = json.loads(out.read().strip().splitlines()[-1])
    cpu, peak = max(cpu, used.ru_utime + used.ru_stime), max(peak, used.ru_maxrss / 2**10)
    every = found["rounds"] or [found["seconds"] / rounds]
    cpus = found["cpu_rounds"] or [found["cpu"] / rounds]
    a_round, cpu_round = statistics.median(every), statistics.median(cpus)
    if peer == "flower":  # its workers are processes, whose time has no rounds
        found["cpu"], cpu_round = cpu, cpu / rounds
    if name == "table":
        return Figures(seconds, cpu, a_round, cpu_round, peak, found["accuracy"])
    rest = work.rounds - rounds
    return Figures(
        found["seconds"] + rest * a_round,
        found["cpu"] + rest * cpu_round,
        a_round,
        cpu_round,
        peak,
        found["accuracy"],
    )


class Watch:
    """Looks at all processes of a run: together, their memory and the time that they took."""

    def __init__(self, mark: str) -> None:
        self._mark, self._peak, self._over = f"PEERS_MARK={mark}".encode(), 0.0, threading.Event()
        self._cpu: dict[int, float] = {}
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def end(self) -> tuple[float, float]:
        """Seconds of processor time, and MiB."""
        self._over.set()
        self._thread.join()
        return sum(self._cpu.values()), self._peak

    def _look(self) -> None:
        while not self._over.wait(0.3):
            there = list(self._processes())
            self._cpu |= {pid: cpu for pid, cpu, _ in there}
            self._peak = max(self._peak, sum(memory for _, _, memory in there))

    def _processes(self) -> Iterator[tuple[int, float, float]]:
        """Number, processor time and share of memory (pages of several are divided among them)."""
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark not in (place / "environ").read_bytes():
                    continue
                times = (place / "stat").read_text().rpartition(")")[2].split()
                lines = (place / "smaps_rollup").read_text().splitlines()
            except OSError:  # it has ended
                continue
            memory = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
            yield int(place.name), (int(times[11]) + int(times[12])) / TICKS, memory / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description="tacit beside its peers.")
    parser.add_argument("--works", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        write_table(table)
        for name in given.works:
            found: dict[str, list[Figures]] = {peer: [] for peer in given.peers}
            for _ in range(given.turns):
                for peer in given.peers:
                    one = run(peer, name, table, given.threads)
                    if isinstance(one, str):
                        print(f"{name}, {peer}: {one}", flush=True)
                    else:
                        found[peer].append(one)
            ratios = show(name, {peer: runs for peer, runs in found.items() if runs})
            kept.report(f"peers_{name}", ratios, turns=given.turns, threads=given.threads)


def show(name: str, found: dict[str, list[Figures]]) -> dict[str, float]:
    """Print the table of a work; the ratios to keep."""
    medians = {
        peer: Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))
        for peer, runs in found.items()
    }
    print(f"\n{name}: {WORKS[name]}")
    print(f"{'':8}{'call, s':>10}{'CPU s':>9}{'ms a round':>12}{'CPU ms':>9}{'MiB':>7}{'right':>8}")
    for peer, one in medians.items():
        print(
            f"{peer:8}{one.seconds:10.2f}{one.cpu:9.2f}{1e3 * one.a_round:12.1f}"
            f"{1e3 * one.cpu_round:9.1f}{one.peak_mib:7.0f}{one.accuracy:8.3f}"
        )
    ours, ratios = medians.get("tacit"), {}
    for peer, one in medians.items():
        if ours is not None and peer != "tacit":
            ratios[f"call, seconds: {peer} / tacit"] = one.seconds / ours.seconds
            ratios[f"call, processor time: {peer} / tacit"] = one.cpu / ours.cpu
            ratios[f"peak memory: tacit / {peer}"] = ours.peak_mib / one.peak_mib
    return ratios


if __name__ == "__main__":
    main()
