"""Whole rounds of the writers' network, from cohort to billboard: seeded and secret, kept or not.

    python benchmarks/rounds.py --device cuda
    python benchmarks/rounds.py --device cuda --cohorts 1000 10000

539 tasks with 60 made-up images each, five steps of twenty; half of the tasks with PMTL, or a
hundred with FedAvg. *Secret* draws noise from the operating system, as a run without a seed does;
*kept* saves every round, as such a run does; *disk* has the states in a file. Medians, after four
rounds in which kernels are made and recorded. With `--cohorts`, rounds of nearly all of so many
tasks in their place: what a task takes, and the most memory that tensors and PyTorch took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from tacit import PMTL, FedAvg, Federation, Privacy
from tacit.data.federation import Rows
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.methods import Method
from tacit.privacy import Poisson
from tacit.randomness import Randomness

IMAGES, WARM = 60, 4
STEPS = {"lr": 0.05, "local_steps": 5, "batch": 20, "clip": 0.3}


class Way(NamedTuple):
    """A method, whom it draws, and what becomes of states."""

    name: str
    method: Method
    cohort: float
    store: Literal["memory", "disk"] = "memory"
    secret: bool = False
    kept: bool = False
    rounds: int = 20


HALF = PMTL(**STEPS)
WAYS = (
    Way("PMTL, half, seeded", HALF, 0.5),
    Way("PMTL, half, secret", HALF, 0.5, secret=True),
    Way("FedAvg, about 100, seeded", FedAvg(**STEPS), 100 / 539),
    Way("FedAvg, about 100, secret and kept", FedAvg(**STEPS), 100 / 539, secret=True, kept=True),
    Way("PMTL, 256, disk", HALF, 256 / 539, store="disk", kept=True, rounds=6),
    Way("PMTL, half, secret and kept", HALF, 0.5, secret=True, kept=True, rounds=6),
)


def writers(tasks: int, device: torch.device) -> Federation:
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(tasks * IMAGES, 1, 28, 28, generator=generator, device=device)
    y = torch.randint(62, (len(x),), generator=generator, device=device)
    train = Rows(x, y, torch.arange(tasks + 1, device=device) * IMAGES)
    none = Rows(x[:0], y[:0], torch.zeros(tasks + 1, dtype=torch.int64, device=device))
    names = tuple(f"writer {number}" for number in range(tasks))
    return Federation(names, "multiclass", 62, train, none, none)


def milliseconds(way: Way, data: Federation, device: torch.device) -> list[float]:
    """Of every round after the first few."""
    plan = Plan(method=way.method, privacy=Privacy(noise=1.0), rounds=200, store=way.store)
    model, randomness = (
        model_of("cnn", data, 0).to(device),
        Randomness.of(None if way.secret else 0),
    )
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) if way.kept else None
        made = simulation_of(plan, data, model, Poisson(way.cohort), randomness, device, place)
        for _ in range(WARM + way.rounds):
            began = _now(device)
            made.rounds.publish(made.rounds.next_board())
            made.rounds.save(now=way.secret and way.kept)
            taken.append(1e3 * (_now(device) - began))
    return taken[WARM:]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def large(tasks: int, device: torch.device) -> None:
    """Cohorts of nearly everybody."""
    for name, method in (("FedAvg", FedAvg(**STEPS)), ("PMTL", HALF)):
        data = writers(tasks, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        taken = statistics.median(milliseconds(Way(name, method, 0.999, rounds=5), data, device))
        memory = ""
        if device.type == "cuda":
            used, held = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            memory = f", at most {used / 1e9:.1f} GB in use and {held / 1e9:.1f} GB held"
        each = f"{1e3 * taken / tasks:.1f} microseconds a task"
        print(f"{name:8} of {tasks} tasks {taken:8.1f} ms, {each}{memory}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tasks", type=int, default=539)
    parser.add_argument("--cohorts", type=int, nargs="+", help="rounds of so many tasks")
    given = parser.parse_args()
    device = torch.device(given.device)
    if given.cohorts:
        for tasks in given.cohorts:
            large(tasks, device)
        return
    data = writers(given.tasks, device)
    for way in WAYS:
        taken = milliseconds(way, data, device)
        print(
            f"{way.name:36} {statistics.median(taken):8.1f} ms (least {min(taken):.1f})", flush=True
        )


if __name__ == "__main__":
    main()
