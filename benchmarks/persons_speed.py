"""One round of clipped gradients of persons, beside a plain gradient and beside Opacus.

    python benchmarks/persons_speed.py --opacus /path/to/venv/bin/python

4 tasks of 10 000 rows each, every row a person; a network 50-64-64-1; two threads. tacit makes the
whole round: gradients of all persons, bounded, summed in integers, booked, noised, published. The
plain gradient is that of the mean loss of all rows, with nothing private about it. Opacus makes one
step of its own, in both of its ways; it needs an environment of its own, with the same PyTorch:

    python -m venv VENV && VENV/bin/pip install torch==2.13.0 opacus

All take turns of a few steps each, the first of which does not count, so that whatever else the
machine does falls on all of them. Where others keep the machine busy, threads that wait for each
other look worse than they are; then `--threads 1` and the time of processors say more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit.engine.simulate import Simulation
from tacit.experiment.auto import choose
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of, sampler_of
from tacit.randomness import Randomness

TASKS, EACH, COLUMNS, CLIP = 4, 10_000, 50, 0.1
STEPS = 4
PEER = Path(__file__).with_name("opacus_peer.py")
AT_ONCE = {"hooks": 4000, "ghost": TASKS * EACH}
"""Rows of Opacus at a time; all at once would take gigabytes for its gradients of rows."""


def network(federation: tacit.Federation | None = None) -> nn.Module:
    return nn.Sequential(
        nn.Linear(COLUMNS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )


def federation_of(rows_each: int) -> tacit.Federation:
    """Every `rows_each` rows are a person's."""
    rng, rows = np.random.default_rng(0), TASKS * EACH
    x = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    y = (x[:, :5].sum(axis=1) + rng.normal(size=rows) > 0).astype(int)
    task = np.repeat([f"task-{k}" for k in range(TASKS)], EACH)
    person = [f"person-{row // rows_each}" for row in range(rows)]
    return tacit.data.from_arrays(
        x, y, task, kind="binary", scale="none", persons=person, validation=0.0, test=0.0
    )


def simulation(federation: tacit.Federation, persons: int) -> Simulation:
    method = tacit.FedAvg(lr=1.0, local_steps=1, batch=None, clip=CLIP)
    privacy = tacit.Privacy(noise=1.0, unit="person", persons=persons)
    plan = choose(federation, Plan(method=method, model=network, privacy=privacy, seed=0)).plan
    made, randomness = model_of(plan.model, federation, 1), Randomness.of(0)
    sampler, cpu = sampler_of(plan, len(federation)), torch.device("cpu")
    found = simulation_of(plan, federation, made, sampler, randomness, cpu)
    assert isinstance(found, Simulation)
    return found


Seconds = tuple[float, float]
"""On the clock, and of processors."""


def timed(work: Callable[[], object]) -> Seconds:
    begin, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - busy


class Peer:
    """A process that answers with the seconds of its own step."""

    def __init__(self, python: str, mode: str, threads: int) -> None:
        given = (mode, TASKS * EACH, COLUMNS, CLIP, AT_ONCE[mode], threads)
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(PEER), *map(str, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def step(self) -> Seconds:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        clock, busy = map(float, self._answer().split())
        return clock, busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opacus", help="the Python of an environment that has Opacus")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows-each", type=int, default=1, help="rows of every person")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    federation = federation_of(given.rows_each)
    made = simulation(federation, TASKS * EACH // given.rows_each)
    plain, x, y = network(), federation.train.x, federation.train.y

    def gradient() -> object:
        output = plain(x).squeeze(1)
        loss = (functional.softplus(output) - y * output).mean()
        return torch.autograd.grad(loss, list(plain.parameters()))

    ways: dict[str, Callable[[], Seconds]] = {
        "plain gradient": lambda: timed(gradient),
        "tacit": lambda: timed(made.rounds.next_board),
    }
    for mode in AT_ONCE if given.opacus and given.rows_each == 1 else ():
        ways[f"Opacus, {mode}"] = Peer(given.opacus, mode, given.threads).step
    found: dict[str, list[Seconds]] = {name: [] for name in ways}
    for _ in range(given.turns):
        for name, way in ways.items():
            found[name] += [way() for _ in range(STEPS)][1:]
    for name, seconds in found.items():
        clock, busy = (statistics.median(each) for each in zip(*seconds, strict=True))
        fastest = min(each for each, _ in seconds)
        ours, ours_busy = (statistics.median(each) for each in zip(*found["tacit"], strict=True))
        print(
            f"{name:16s} {1e3 * clock:8.1f} ms (fastest {1e3 * fastest:8.1f}), {clock / ours:6.2f} "
            f"times tacit; of processors {1e3 * busy:8.1f} ms, {busy / ours_busy:6.2f} times"
        )


if __name__ == "__main__":
    main()
