"""One round of FedMTL's curator on secret shares: server processes over TLS on this machine.

    python benchmarks/secure.py                      # P = 3, N = 80, K = 8, LeNet; all settings
    python benchmarks/secure.py --grid               # P = 2, 3, 4 and N = 20, 40, 80
    python benchmarks/secure.py --peers PYTHON       # beside CrypTen and SPU, where that Python has
                                                     # them (`secure_peers.py`)

Made-up models of LeNet's size (1 628 210 shared numbers, 8 task layers of 2 505). Time runs from
the moment the coordinator announces the job until the last client has its answer, in the second of
two rounds: connections of clients stay open from the first one, as in a training. The dealer works
at the same time on the same cores, so its time is inside. Peak memory is that of a server process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tacit.secure.jobs.fedmtl import FedMTLAnswer, FedMTLJob, Secret
from tacit.secure.net.local import LocalServers
from tacit.secure.net.process import speed_up_process

SHARED, LAYER, HEADS = 1_628_210, 2_505, 8
STEPS = ("upload", "map", "similarity", "assignment", "weights", "shared layers", "task layers")
LEAST = 0.43
"""Away from similarities of these clients, which lie near 0.8 · k / m: no pair is on the edge."""


def clients(count: int) -> dict[str, Secret]:
    """Clients with two to eight of the heads, in groups that are alike."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(4, HEADS, LAYER))
    found = {}
    for i in range(count):
        heads = rng.choice(HEADS, rng.integers(2, HEADS + 1), replace=False).tolist()
        layers = {h: 0.02 * (groups[i % 4, h] + 0.5 * rng.normal(size=LAYER)) for h in heads}
        start = {h: np.zeros(LAYER) for h in heads}
        rows = np.float32(0.02) * rng.standard_normal(SHARED, dtype=np.float32)
        found[f"client-{i}"] = Secret(rows, layers, start, int(rng.integers(50, 500)), LEAST)
    return found


def plain(secrets: dict[str, Secret]) -> dict[str, np.ndarray]:
    """Shared layers as the plain curator would mix them, in double precision."""
    import torch

    from tacit.exchange import guarded, normalised, similarity

    heads = torch.zeros(len(secrets), HEADS, LAYER, dtype=torch.float64)
    holds = torch.zeros(len(secrets), HEADS, dtype=torch.bool)
    for i, secret in enumerate(secrets.values()):
        for h, layer in secret.layers.items():
            heads[i, h], holds[i, h] = torch.from_numpy(layer), True
    alike = similarity(heads, holds)
    sizes = torch.tensor([float(s.size) for s in secrets.values()], dtype=torch.float64)
    scores = torch.where(alike >= LEAST, alike, 0.0) * sizes
    weights = guarded(normalised(scores).unsqueeze(0), 2)[0].numpy()
    rows = np.stack([secret.rows for secret in secrets.values()])
    return dict(zip(secrets, weights @ rows))


def processor(running: LocalServers) -> float:
    """Seconds that servers, dealer and clients have computed: Linux knows."""
    pids = [os.getpid(), *(process.pid for process in running.processes.values())]
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(found[11]) + int(found[12]) for found in stats) / os.sysconf("SC_CLK_TCK")


def measure(trust: str, servers: int, bits: int, secrets: dict[str, Secret]) -> dict:
    job_settings = {"trust": trust, "bits": bits, "columns": SHARED, "heads": HEADS}
    with LocalServers(servers, list(secrets), dealer=trust == "dealer") as running:
        remote = running.remote
        for last in (False, True):  # the first is given its memory, and connects
            job = FedMTLJob(
                servers=servers, clients=tuple(secrets), slots=HEADS, length=LAYER, **job_settings
            )
            computed, begun = processor(running), time.perf_counter()
            outcome = remote.run(job, secrets)
            seconds, computed = time.perf_counter() - begun, processor(running) - computed
            if not last:
                del outcome  # its memory is used again
    wanted = plain(secrets)
    error = max(
        float(np.linalg.norm(answer.rows - wanted[name]) / np.linalg.norm(wanted[name]))
        for name, answer in outcome.answers.items()
        if isinstance(answer, FedMTLAnswer)
    )
    reports = list(outcome.opened.values())
    return {
        "trust": trust, "servers": servers, "bits": bits, "clients": len(secrets),
        "seconds": seconds, "processor": computed, "error": error,
        "steps": {s: max(r["seconds"].get(s, 0.0) for r in reports) for s in STEPS},
        "rounds": max(r["rounds"] for r in reports),
        "client_mb": outcome.sent["clients"] / len(secrets) / 1e6,
        "server_mb": max(v for k, v in outcome.sent.items() if k.startswith("server")) / 1e6,
        "memory_mb": max(s["peak_memory"] for s in outcome.statistics.values()) / 2**20,
    }  # fmt: skip


def show(console: Console, results: list[dict]) -> None:
    table = Table(title="secure FedMTL, one round")
    for name in ("trust", "P", "N", "bits", "seconds", "processor", *STEPS, "rounds",
                 "MB / client", "MB / server", "peak MB", "error"):  # fmt: skip
        table.add_column(name, justify="left" if name == "trust" else "right")
    for r in results:
        table.add_row(
            r["trust"], str(r["servers"]), str(r["clients"]), str(r["bits"]), f"{r['seconds']:.2f}",
            f"{r['processor']:.1f}", *(f"{r['steps'][s]:.2f}" for s in STEPS), str(r["rounds"]),
            f"{r['client_mb']:.2f}", f"{r['server_mb']:.0f}", f"{r['memory_mb']:.0f}",
            f"{r['error']:.0e}",
        )  # fmt: skip
    console.print(table)


def main() -> None:
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--trust", choices=("dealer", "replicated"))
    parser.add_argument("--bits", type=int, choices=(32, 64))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--peers", help="a Python that has crypten or spu installed")
    parser.add_argument(
        "--peer-columns", default="162821", help="of their products: a tenth of ours"
    )
    chosen = parser.parse_args()
    console = Console(width=200)
    speed_up_process()  # all clients are here, and are given fresh memory otherwise
    cells = [(t, 3, 80, b) for t in ("replicated", "dealer") for b in (32, 64)]
    if chosen.grid:
        cells = [("dealer", p, n, 32) for p in (2, 3, 4) for n in (20, 40, 80)]
        cells += [("replicated", 3, n, 32) for n in (20, 40, 80)]
    cells = [c for c in cells if chosen.trust in (None, c[0]) and chosen.bits in (None, c[3])]
    everyone, results = clients(80), []
    for trust, servers, count, bits in cells * chosen.repeats:
        some = dict(list(everyone.items())[:count])
        with console.status(f"{trust}, {servers} servers, {count} clients, {bits} bits"):
            results.append(measure(trust, servers, bits, some))
    show(console, results)
    if chosen.peers:
        script = Path(__file__).with_name("secure_peers.py")
        subprocess.run([chosen.peers, str(script), "--columns", chosen.peer_columns], check=False)


if __name__ == "__main__":
    main()
