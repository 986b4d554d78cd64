"""The three works that every peer does, on the same made-up rows. It needs NumPy and nothing else.

    cnn      images of 250 writers, a network of two convolutions, cohorts of 50 on average
    linear   2000 tasks with 30 columns, logistic, cohorts of 500 on average
    table    a file of 60 sites, logistic, everyone: from the command to the result, ε = 2

All are DP-FedAvg: five local steps of twenty rows, Gaussian noise on the sum.
"""

from __future__ import annotations

import csv
import functools
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEPS, BATCH, RATE, NOISE = 5, 20, 0.05, 1.0
EPSILON, DELTA = 2.0, 1e-3
CLASSES, COLUMNS = 62, 30


class Work(NamedTuple):
    """How much of it there is."""

    tasks: int
    cohort: int
    rounds: int
    clip: float
    few: int
    """Rounds of peers that take seconds for one; their call is scaled up."""


WORKS = {
    "cnn": Work(tasks=250, cohort=50, rounds=5, clip=0.1, few=3),
    "linear": Work(tasks=2000, cohort=500, rounds=100, clip=1.0, few=3),
    "table": Work(tasks=60, cohort=60, rounds=30, clip=1.0, few=30),
}


class Rows(NamedTuple):
    """Rows of all tasks, and whose each is."""

    x: np.ndarray
    y: np.ndarray
    task: np.ndarray


def made(name: str, tasks: int) -> Rows:
    """60 to 140 rows a task: every task has its own direction beside a common one."""
    rng = np.random.default_rng(0)
    counts = rng.integers(60, 141, tasks)
    task = np.repeat(np.arange(tasks), counts)
    if name == "cnn":
        x = rng.standard_normal((len(task), 1, 28, 28), dtype=np.float32)
        y = rng.integers(0, CLASSES, len(task))
        x += rng.standard_normal((CLASSES, 1, 28, 28), dtype=np.float32)[y]
        return Rows(0.3 * x, y, task)
    columns = COLUMNS if name == "linear" else 10
    x = rng.standard_normal((len(task), columns), dtype=np.float32)
    w = rng.standard_normal(columns) + 0.5 * rng.standard_normal((tasks, columns))
    y = (x * w[task]).sum(1) + rng.logistic(size=len(task)) > 0
    return Rows(x, y.astype(np.int64), task)


def split(rows: Rows) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Three fifths of every task to learn from, and a fifth of all to test: as tacit splits."""
    learned, tested = [], []
    for task in range(rows.task.max() + 1):
        own = np.flatnonzero(rows.task == task)
        fifth = len(own) // 5
        learned.append((rows.x[own[2 * fifth :]], rows.y[own[2 * fifth :]]))
        tested.append(own[:fifth])
    tests = np.concatenate(tested)
    return learned, (rows.x[tests], rows.y[tests])


def drawn(rows: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The rows of a task's steps in a round [STEPS * BATCH]: all of them before any comes again."""
    count, needed = len(rows[1]), STEPS * BATCH
    orders = [rng.permutation(count) for _ in range(-(-needed // count))]
    return np.concatenate(orders)[:needed]


def write_table(path: Path) -> None:
    """The rows of the small table as a file."""
    rows = made("table", WORKS["table"].tasks)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["site", *(f"x{k}" for k in range(rows.x.shape[1])), "y"])
        for site, x, y in zip(rows.task, rows.x, rows.y, strict=True):
            out.writerow([f"site {site}", *(f"{value:.6g}" for value in x), y])


def read_table(path: str) -> Rows:
    """The same rows, read by NumPy."""
    with open(path, newline="") as file:
        lines = list(csv.reader(file))[1:]
    names = {name: number for number, name in enumerate(dict.fromkeys(line[0] for line in lines))}
    x = np.array([line[1:-1] for line in lines], dtype=np.float32)
    y = np.array([line[-1] for line in lines], dtype=np.int64)
    return Rows(x, y, np.array([names[line[0]] for line in lines]))


def noise_for(rounds: int) -> float:
    """The noise of so many rounds with everyone, by dp-accounting."""
    import dp_accounting as dp

    accountant = functools.partial(dp.pld.PLDAccountant, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = lambda noise: dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise), rounds)  # noqa: E731
    return dp.calibrate_dp_mechanism(accountant, event, EPSILON, DELTA)


def peer(train: Callable[[str, Work, Rows, Callable[[], None]], float]) -> None:
    """Run a peer's program: NAME ROUNDS [TABLE]. The last line it prints are its figures.

    `train(name, work, rows, tick)` calls `tick` at the end of each round and returns an accuracy.
    """
    name, rounds = sys.argv[1], int(sys.argv[2])
    work = WORKS[name]._replace(rounds=rounds)
    rows = read_table(sys.argv[3]) if name == "table" else made(name, work.tasks)
    ticks: list[tuple[float, float]] = []

    def now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    began = now()
    accuracy = train(name, work, rows, lambda: ticks.append(now()))
    seconds, cpu = np.subtract(now(), began).tolist()
    rounds, cpu_rounds = np.diff(ticks, axis=0).T.tolist() if len(ticks) > 1 else ([], [])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    found: dict[str, Any] = {"accuracy": accuracy, "seconds": seconds, "cpu": cpu}
    found |= {"rounds": rounds, "cpu_rounds": cpu_rounds, "peak_mib": peak}
    print(json.dumps(found), flush=True)
