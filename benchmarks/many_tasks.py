"""One round with the same cohort out of few and out of very many tasks: time and memory.

    python benchmarks/many_tasks.py [--store disk]

Linear model, 30 features, 8 rows per task, an expected cohort of 1 000 drawn by Poisson sampling.
Rounds of the two federations take turns, so that a busy machine disturbs both alike. Peak memory is
the whole process: Python, torch, all rows of a million tasks, and their states.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import torch

import kept
from tacit import PMTL, Federation
from tacit.data.federation import Rows
from tacit.engine.course import Course
from tacit.engine.simulate import Simulation
from tacit.engine.store import Store
from tacit.local.flat import FlatModel
from tacit.methods import Board, Publishing
from tacit.privacy import Channel, Poisson, Release
from tacit.randomness import Randomness

FEATURES, ROWS, COHORT = 30, 8, 1000


class Numbered:
    """Names of very many tasks, made when asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:
        return f"task-{index}"


def federation(tasks: int) -> Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(tasks * ROWS, FEATURES).normal_(generator=generator)
    y = x.sum(dim=1)
    train = Rows(x, y, torch.arange(tasks + 1) * ROWS)
    none = Rows(x[:0], y[:0], torch.zeros(tasks + 1, dtype=torch.int64))
    return Federation(Numbered(tasks), "regression", 1, train, none, none)  # type: ignore[arg-type]


def simulation(tasks: int, place: str, folder: Path) -> Simulation:
    data, method = federation(tasks), PMTL(batch=ROWS)
    model = FlatModel(torch.nn.Linear(FEATURES, 1), "regression")
    randomness, sampler = Randomness.of(None), Poisson(COHORT / tasks)
    release = Release(sampler, 1.0)
    channel = Channel(sampler, tasks, randomness, clip=method.clip, release=release)
    state = method.state(model, Board(method.board(model)))
    kept = Store(tasks, state, place=place, folder=folder if place == "disk" else None)  # type: ignore[arg-type]
    course = Course(data, method, model, channel, 10**6, Publishing())
    return Simulation(course, data, kept)


def one_round(run: Simulation) -> float:
    began = time.perf_counter()
    run.rounds.publish(run.rounds.next_board())
    run.rounds.save(now=False)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--store", choices=["memory", "disk"], default="memory")
    options = parser.parse_args()
    torch.set_num_threads(2)
    sizes = (10_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        runs = {m: simulation(m, options.store, Path(folder) / str(m)) for m in sizes}
        seconds: dict[int, list[float]] = {m: [] for m in sizes}
        for number in range(options.rounds + 10):
            for m, run in runs.items():
                took = one_round(run)
                if number >= 10:  # the first rounds trace the sizes of cohort that occur
                    seconds[m].append(took)
    few, many = (statistics.median(seconds[m]) for m in sizes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"cohort {COHORT} of {sizes[0]:>9,} tasks: {1e3 * few:7.2f} ms per round")
    print(f"cohort {COHORT} of {sizes[1]:>9,} tasks: {1e3 * many:7.2f} ms per round")
    print(f"ratio {many / few:.2f} (bar: at most 1.3); peak memory {peak:.2f} GiB (bar: under 2)")
    figures = {"1 000 000 against 10 000 tasks, time": many / few, "peak, GiB": peak}
    kept.report(f"many_tasks_{options.store}", figures)


if __name__ == "__main__":
    main()
