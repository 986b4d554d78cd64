"""The large products of FedMTL's curator in CrypTen and SPU, beside `secure.py`.

    python benchmarks/secure.py --peers PYTHON        # after our own figures
    PYTHON benchmarks/secure_peers.py                 # alone
    PYTHON benchmarks/secure_peers.py --clients 20 --columns 50000 --only aby3

PYTHON is an environment of its own that has CrypTen, SPU or both: neither is needed by tacit, and
tacit is not needed here. What is not installed is named and left out.

    pip install torch
    pip install "numpy<2" pyyaml omegaconf onnx tensorboard && pip install --no-deps crypten==0.4.1
    pip install spu==0.9.5                            # Python 3.10 or 3.11

CrypTen goes without its other requirements: `sklearn`, a retired name, cannot be installed, and
none of them is imported. CrypTen 0.4.1 also imports PyTorch's registry of ONNX operators from a
module that PyTorch 2.13 has under another name. That module is then made known under its former
name as well. Products do not use it, and the library is not changed.

Three parties are processes on this machine and talk over loopback, without TLS. Private weights
[N, N], rows that sum to one, are multiplied by private uploads [N, columns] in pieces of columns;
then, once for each of 8 heads, by task layers [N, 2 505]. Numbers are fixed point in the ring of
integers modulo 2^64, with as many bits after the point as the library takes by itself.

- *CrypTen, Beaver*: the protocol it takes by itself. Triples come from a fourth process, its
  TrustedThirdParty (TTP), while products run and within their time: what our dealer does. With
  `--provider TFP`, the library's default, party 0 makes them, and so knows every mask.
- *CrypTen, replicated*: its protocol for three parties, without triples.
- *SPU, ABY3*: replicated shares in the field FM64.

*Cut*: a product of fixed point has twice the bits after the point, and a library takes half of them
away on shares. Users of either get that when they write a product. *Uncut*: weights (in SPU both
sides) go in as integers, nothing is taken away, and whoever opens the result divides. That is what
our servers do, so the uncut rows are the ones to compare.

*Share*: party 0 has all inputs and shares them. CrypTen sends nothing for it, since parties draw
from common seeds; SPU sends shares to the other two. *Product*: from shares to shares. *Open*:
shares to party 0, and numbers from them. *All* is the sum. Start of processes, compilation, a first
product on few columns, made-up inputs and the check against numpy are outside. The error is the
largest over clients, relative in the norm. Memory is the sum of the peaks of the three parties,
code of the libraries included.

Not comparable with `secure.py`: there clients upload over TLS and are answered each on its own, and
similarity, assignment and weights are computed on shares as well, all of it within the time. Here
they are absent. The ring is that of our rows of 64 bits; ours of 32 have no counterpart.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import pickle
import resource
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PARTIES, LAYER, HEADS, GROUPS = 3, 2_505, 8, 4
PIECE = 2**16
"""Columns at a time. At N = 80 a share is 42 MB, and a party holds a dozen of them or so."""
WAIT = 120_000
"""Milliseconds that a party of SPU waits for another, which is at most one piece behind."""
POINT = 16
"""Bits after the point of what goes in as integers."""
STEPS = ("share", "product", "open")


@dataclass
class Measured:
    """What one party found. Only party 0 sees results, and has an error to report."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    bits: int = 0
    error: float = 0.0
    memory: float = 0.0

    @contextmanager
    def timed(self, step: str, together: Callable[[], object]) -> Iterator[None]:
        """Time until all parties are done, since a product is finished when the last one is."""
        together()
        begun = time.perf_counter()
        yield
        together()
        self.seconds[step] += time.perf_counter() - begun


Runner = Callable[[int, int, bool, str], list[Measured]]
"""For so many clients and columns, cut or not, with a provider: what each party found."""


class Check:
    """Squared errors of each client over all products."""

    def __init__(self) -> None:
        self.off, self.norm = 0.0, 0.0

    def add(self, found: np.ndarray, weights: np.ndarray, uploads: np.ndarray) -> None:
        wanted = weights.astype("f8") @ uploads.astype("f8")
        self.off = self.off + ((found - wanted) ** 2).sum(axis=1)
        self.norm = self.norm + (wanted**2).sum(axis=1)

    def error(self) -> float:
        import numpy as np

        return float(np.sqrt(np.max(np.asarray(self.off) / np.asarray(self.norm))))


def products(columns: int) -> list[tuple[int, int]]:
    """Which weights, and how many columns: pieces of the shared layers, then heads."""
    full, rest = divmod(columns, PIECE)
    pieces = [PIECE] * full + [rest] * (rest > 0)
    return [(0, width) for width in pieces] + [(1 + head, LAYER) for head in range(HEADS)]


def mixing(clients: int, which: int) -> np.ndarray:
    """Weights by size among clients that are alike, as they come out in `secure.py`."""
    import numpy as np

    group = np.arange(clients) % GROUPS
    sizes = np.random.default_rng([0, which]).integers(50, 500, clients)
    scores = np.where(group[:, None] == group, sizes, 0)
    return (scores / scores.sum(axis=1, keepdims=True)).astype("f4")


def uploaded(clients: int, index: int, width: int) -> np.ndarray:
    import numpy as np

    draw = np.random.default_rng([1, index])
    return np.float32(0.02) * draw.standard_normal((clients, width), dtype="f4")


def peak() -> float:
    """Megabytes; Linux counts in kilobytes, macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def whole(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Fixed point as integers, which a library does not cut."""
    import numpy as np

    return np.rint(numbers * 2.0**POINT).astype(kind)


def the_crypten() -> Any:
    """CrypTen, with the registry of ONNX operators under the name that 0.4.1 knows."""
    former = "torch.onnx._internal.registration"
    try:
        importlib.import_module(former)
    except ModuleNotFoundError:
        now = "torch.onnx._internal.torchscript_exporter.registration"
        sys.modules[former] = importlib.import_module(now)
    return importlib.import_module("crypten")


def party_of_crypten(clients: int, columns: int, cut: bool) -> Measured:
    torch, crypten = importlib.import_module("torch"), the_crypten()
    us = importlib.import_module("crypten.communicator").get()
    first, measured, check = us.get_rank() == 0, Measured(), Check()

    def secret(numbers: np.ndarray | None, *shape: int, integers: bool = False) -> Any:
        # Others say what shape it has: what is in their tensor is not looked at.
        mine = torch.zeros(shape) if numbers is None else torch.from_numpy(numbers)
        if not integers:
            return crypten.cryptensor(mine, src=0)
        mine = torch.from_numpy(whole(mine.numpy(), "i8"))
        return crypten.cryptensor(mine, src=0, precision=0)

    few = secret(None, clients, clients).matmul(secret(None, clients, 64))
    few.get_plain_text(dst=0)
    weights, uploads, held = None, None, -1
    shared: Any = None
    for index, (which, width) in enumerate(products(columns)):
        if first:
            weights, uploads = mixing(clients, which), uploaded(clients, index, width)
        with measured.timed("share", us.barrier):
            if which != held:
                shared, held = secret(weights, clients, clients, integers=not cut), which
            private = secret(uploads, clients, width)
        with measured.timed("product", us.barrier):
            mixed = shared.matmul(private)
        with measured.timed("open", us.barrier):
            found = mixed.get_plain_text(dst=0)
        if weights is not None and uploads is not None:
            check.add(found.numpy() / (1 if cut else 2**POINT), weights, uploads)
    measured.bits = crypten.cfg.encoder.precision_bits
    measured.error = check.error() if first else 0.0
    measured.memory = peak()
    return measured


def crypten_with(protocol: str) -> Runner:
    def run(clients: int, columns: int, cut: bool, provider: str) -> list[Measured]:
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        warnings.filterwarnings("ignore", module="crypten")  # its dealer begins twice, and says so
        crypten = the_crypten()
        # Replicated shares need no triples, and a dealer would be a process too many.
        crypten.cfg.mpc.provider = provider if protocol == "beaver" else "TFP"
        crypten.cfg.mpc.protocol = protocol
        launched = importlib.import_module("crypten.mpc").run_multiprocess(world_size=PARTIES)
        found = launched(party_of_crypten)(clients, columns, cut) or []
        parties = [party for party in found if isinstance(party, Measured)]
        if len(parties) < PARTIES:
            raise RuntimeError("a party has ended early; what it said is above")
        return parties

    return run


def party_of_spu(rank: int, ports: list[int], clients: int, columns: int, cut: bool) -> Measured:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["JAX_ENABLE_X64"] = "0" if cut else "1"  # integers of 32 bits are too short
    lib, api = importlib.import_module("spu.libspu"), importlib.import_module("spu.api")
    frontend = importlib.import_module("spu.utils.frontend")
    matmul = importlib.import_module("jax.numpy").matmul

    quiet = lib.logging.LogOptions()
    quiet.log_level = lib.logging.LogLevel.ERROR
    lib.logging.setup_logging(quiet)
    everyone = lib.link.Desc()
    everyone.recv_timeout_ms = WAIT
    everyone.connect_retry_times = 60  # a second apart: on a busy machine parties start unevenly
    for i, port in enumerate(ports):
        everyone.add_party(f"party-{i}", f"127.0.0.1:{port}")
    link = lib.link.create_brpc(everyone, rank)
    # Bits are FM64's own default, but have to be given to be known.
    settings = lib.RuntimeConfig(lib.ProtocolKind.ABY3, lib.FieldType.FM64, 18)
    outside, inside = api.Io(PARTIES, settings), api.Runtime(link, settings)
    first, measured, check = rank == 0, Measured(bits=18 if cut else POINT), Check()
    secret = lib.Visibility.VIS_SECRET

    def given(numbers: np.ndarray) -> np.ndarray:
        return numbers if cut else whole(numbers, "i8")

    def compiled(width: int) -> Any:
        shapes = given(mixing(clients, 0)), given(uploaded(clients, 0, width))
        return frontend.compile(
            frontend.Kind.JAX, matmul, shapes, {}, ["w", "x"], [secret] * 2, lambda _: ["z"]
        )[0]

    def share(name: str, numbers: np.ndarray | None) -> None:
        if numbers is None:
            inside.set_var(name, pickle.loads(link.recv(0)))
            return
        shares = outside.make_shares(given(numbers), secret)
        for other in range(1, PARTIES):
            link.send_async(other, pickle.dumps(shares[other]))
        inside.set_var(name, shares[0])

    def opened() -> np.ndarray | None:
        mine = inside.get_var("z")
        if not first:
            link.send(0, pickle.dumps(mine))
            return None
        rest = [pickle.loads(link.recv(other)) for other in range(1, PARTIES)]
        return outside.reconstruct([mine, *rest])

    programs = {width: compiled(width) for width in {64, *(w for _, w in products(columns))}}
    share("w", mixing(clients, 0) if first else None)
    share("x", uploaded(clients, 0, 64) if first else None)
    inside.run(programs[64])
    opened()
    weights, uploads, held = None, None, -1
    for index, (which, width) in enumerate(products(columns)):
        if first:
            weights, uploads = mixing(clients, which), uploaded(clients, index, width)
        with measured.timed("share", link.barrier):
            if which != held:
                share("w", weights)
                held = which
            share("x", uploads)
        with measured.timed("product", link.barrier):
            inside.run(programs[width])
        with measured.timed("open", link.barrier):
            found = opened()
        if found is not None and weights is not None and uploads is not None:
            check.add(found / (1 if cut else 4**POINT), weights, uploads)
    link.stop_link()
    measured.error = check.error() if first else 0.0
    measured.memory = peak()
    return measured


def spu_with_aby3(clients: int, columns: int, cut: bool, _: str) -> list[Measured]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(PARTIES)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    # Not forked: JAX has threads, and this process may have loaded PyTorch.
    with ProcessPoolExecutor(PARTIES, mp_context=get_context("spawn")) as pool:
        asked = [
            pool.submit(party_of_spu, rank, ports, clients, columns, cut) for rank in range(PARTIES)
        ]
        return [answer.result() for answer in asked]


SETTINGS: dict[str, tuple[str, str, str, Runner]] = {
    "beaver": ("crypten", "CrypTen", "Beaver", crypten_with("beaver")),
    "replicated": ("crypten", "CrypTen", "replicated", crypten_with("replicated")),
    "aby3": ("spu", "SPU", "ABY3", spu_with_aby3),
}


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def row(first: str, *cells: str) -> None:
    print(first.ljust(33), *(cell.rjust(8) for cell in cells), flush=True)


def main() -> None:
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--clients", type=int, default=80)
    parser.add_argument("--columns", type=int, default=1_628_210)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--provider", choices=("TTP", "TFP"), default="TTP", help="CrypTen's")
    parser.add_argument("--only", choices=SETTINGS, help="one protocol instead of all")
    chosen = parser.parse_args()
    # Three parties with a thread for each core stand in each other's way: with two cores
    # CrypTen took twice as long. Whoever knows better sets the variable.
    threads = max(1, (os.cpu_count() or 1) // PARTIES)
    threads = os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    n, provider = chosen.clients, chosen.provider
    print(f"\nproducts [{n}, {n}] x [{n}, {chosen.columns}] and {HEADS} x [{n}, {LAYER}]")
    print(f"P = {PARTIES}, ring of 64 bits, loopback; {os.cpu_count()} cores", end=", ")
    print(f"OMP_NUM_THREADS={threads}, load {os.getloadavg()[0]:.1f} before")
    for package, under in (("crypten", "torch"), ("spu", "jax")):
        if version(package) is None:
            print(f"{package}: not installed in this Python, left out")
        else:
            print(f"{package} {version(package)} on {under} {version(under) or '(not installed)'}")
    names = [chosen.only] if chosen.only else list(SETTINGS)
    there = [SETTINGS[name] for name in names if version(SETTINGS[name][0]) is not None]
    if not there:
        return
    row("", "bits", *STEPS, "all, s", "MB", "error")
    for _, library, protocol, measure in there:
        triples = f" + {provider}" if protocol == "Beaver" else ""
        for cut in (True, False) * chosen.repeats:
            title = f"{library}, {protocol}{triples}, {'cut' if cut else 'uncut'}"
            try:
                parties = measure(n, chosen.columns, cut, provider)
            except Exception as problem:  # whatever it is, the others are still measured
                print(f"{title}: did not run, {type(problem).__name__}: {problem}")
                break
            found = parties[0]
            row(
                title, str(found.bits), *(f"{found.seconds[step]:.2f}" for step in STEPS),
                f"{sum(found.seconds.values()):.2f}",
                f"{sum(party.memory for party in parties):.0f}", f"{found.error:.0e}",
            )  # fmt: skip
    print("share: by party 0; product: shares to shares, triples within; open: to party 0.")
    print("Not within: clients and their uploads, TLS, similarity and weights, start, compilation.")


if __name__ == "__main__":
    main()
