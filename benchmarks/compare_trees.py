"""Is one state of tacit slower than another? The same works by both, in turns.

    git worktree add ../older COMMIT
    python benchmarks/compare_trees.py ../older . [--turns 7] [--only train --only sum]

Each work is a process of one tree that does it once to warm up, and then again and again; a turn is
one process of each tree, and who goes first changes. Prints, for each work, the median time of the
old tree, the ratio of medians (new over old), and between which values the ratios of single turns
lie. Only what both trees have is used, so `OLD` may be long ago. Leaves with 1 if a median is more
than 5 % slower.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

BAR = 1.05
START = '''
import importlib, json, sys, tempfile, time, warnings
from pathlib import Path
import numpy as np, torch, tacit
torch.set_num_threads(1)
draw = np.random.default_rng(0)

def federation(tasks, rows=10, columns=5):
    x = draw.normal(size=(tasks * rows, columns)).astype(np.float32)
    names = np.repeat([f"task-{k}" for k in range(tasks)], rows)
    y = x.sum(axis=1) + 0.1 * draw.normal(size=len(x))
    return tacit.data.from_arrays(x, y, names, scale="none", target_scale="none", kind="regression")

def module(*places):
    """The first of these that the tree has: rooms have moved."""
    for place in places:
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError:
            pass
    raise ModuleNotFoundError(places)

def timed(work, times):
    work()
    for _ in range(times):
        began = time.perf_counter()
        work()
        print(time.perf_counter() - began, flush=True)

def folder():
    return Path(tempfile.mkdtemp(dir=root))

def trained(given, rounds, store):
    tacit.train(
        given, tacit.PMTL(clip=0.5, local_steps=2, batch=4),
        privacy=tacit.Privacy(noise=20.0, delta=1e-4), rounds=rounds, cohort=0.5, baselines=False,
        personalise="none", store=store, out=folder() / "run",
    )

holder = tempfile.TemporaryDirectory()
root = holder.name
'''
WORKS = {
    "train": """
given = federation(60)
timed(lambda: trained(given, 100, "memory"), 3)
""",
    "disk": """
given = federation(2000, columns=20)
timed(lambda: trained(given, 20, "disk"), 3)
""",
    "silos": """
def silos(name):
    return module(f"tacit.deploy.{name}", f"tacit.runtime.silos.{name}")

PARTS = module("tacit.data.federation", "tacit.federation").PARTS
conduct, Silo = silos("conduct").conduct, silos("silo").Silo
Reply, Request = silos("messages").Reply, silos("messages").Request
Own, Terms = silos("terms").Own, silos("terms").Terms
given = federation(4)
terms = Terms(
    consortium="four", silos=tuple(given.names), kind=given.kind, outputs=given.outputs,
    input_shape=given.input_shape, method={"name": "fedavg", "clip": 0.5}, model="linear",
    rounds=20, privacy={"noise": 20.0, "delta": 1e-4},
)

class Here:
    def __init__(self, place):
        self.silos = []
        for task, name in enumerate(terms.silos):
            (place / name).mkdir()
            own = Own({part: given.part(part).of(task) for part in PARTS})
            self.silos.append(Silo(terms, name, own, place / name))

    def expect(self, numbers):
        pass

    def ask(self, requests):
        told = {task: Request.from_bytes(asked.to_bytes()) for task, asked in requests.items()}
        said = {task: self.silos[task].answer(asked) for task, asked in told.items()}
        return {task: Reply.from_bytes(reply.to_bytes()) for task, reply in said.items()}

def work():
    place = folder()
    conduct(terms, place / "coordinator", Here(place))

timed(work, 3)
""",
    "sum": """
from dataclasses import replace
import secrets
LocalServers = module("tacit.secure.net.local", "tacit.secure.local").LocalServers
SumJob = module("tacit.secure.jobs.summing", "tacit.secure.summing").SumJob
names = tuple(f"client-{k}" for k in range(4))
vectors = {name: np.arange(20_000) % 100 for name in names}
with LocalServers(3, names) as servers:
    def work():
        for _ in range(5):
            job = SumJob(
                servers=3, clients=names, id=secrets.token_hex(16), size=20_000, bits=32,
                bound=1000, noise=100.0,
            )
            servers.remote.run(job, vectors)
    timed(work, 3)
""",
}


def measured(tree: Path, work: str) -> float:
    """Seconds that this work takes, the median of a process."""
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", START + WORKS[work]],
        env=environment,
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return statistics.median(map(float, done.stdout.split()))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("old", type=Path)
    arguments.add_argument("new", type=Path)
    arguments.add_argument("--turns", type=int, default=7)
    arguments.add_argument("--only", choices=sorted(WORKS), action="append")
    given = arguments.parse_args()
    trees, slower = (given.old.resolve(), given.new.resolve()), False
    for work in given.only or WORKS:
        times: dict[Path, list[float]] = {tree: [] for tree in trees}
        for turn in range(given.turns):
            for tree in trees if turn % 2 == 0 else trees[::-1]:
                times[tree].append(measured(tree, work))
        old, new = times[trees[0]], times[trees[1]]
        ratio = statistics.median(new) / statistics.median(old)
        turns = sorted(n / o for n, o in zip(new, old, strict=True))
        slower |= ratio > BAR
        print(
            f"{work:6} {statistics.median(old):7.3f} s, then {ratio:.3f} times "
            f"(turns {turns[0]:.3f} to {turns[-1]:.3f})",
            flush=True,
        )
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
