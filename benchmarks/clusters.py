"""What is lost where nobody is told which tasks are alike: `clusters` beside its alternatives.

Planted sets of 300 tasks with 20 columns and 15 rows: weights around three centres, or around one.
The target has variance one: `EXPLAINED` of it by the centre, `OWN` by what is a task's own.

`domains`: MNIST by writer as in `past_the_paper.py` (a linear layer on `strokes`, a tenth of each
writer's images to learn from), with the images of every second writer turned over or on their side.
Settings are those of `past_the_paper.py`, in other words: its clip and step times its server's 10.

    python benchmarks/clusters.py planted --seeds 5
    python benchmarks/clusters.py domains --data DIR --seeds 2
    python benchmarks/clusters.py domains --data DIR --seeds 2 --open
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tacit
from tacit import Privacy
from tacit.data.federation import Federation
from tacit.experiment.auto import STEADY
from tacit.methods import (
    MOCHA,
    PMTL,
    ClusterPriors,
    Clusters,
    FedAMP,
    FedAvg,
    FedMTL,
    Method,
    RelatedPMTL,
    SharedPrior,
)

TASKS, COLUMNS, ROWS, TEST_ROWS = 300, 20, 15, 100
EXPLAINED, OWN = 0.7, 0.1
FIXED: dict[str, Any] = {key: STEADY[key] for key in STEADY if key != "clip_quantile"}
"""What `auto` gives a method that trains, without a clip that the channel moves."""


def planted(groups: int, seed: int) -> tuple[Federation, np.ndarray]:
    """Tasks in so many groups, and who is where."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((groups, COLUMNS))
    centres *= np.sqrt(EXPLAINED) / np.linalg.norm(centres, axis=1, keepdims=True)
    where = rng.permutation(np.arange(TASKS) % groups)
    weights = centres[where] + np.sqrt(OWN / COLUMNS) * rng.standard_normal((TASKS, COLUMNS))
    each = ROWS + TEST_ROWS
    x = rng.standard_normal((TASKS, each, COLUMNS))
    noise = np.sqrt(1 - EXPLAINED - OWN) * rng.standard_normal((TASKS, each))
    y = np.einsum("knd,kd->kn", x, weights) + noise
    federation = tacit.data.from_arrays(
        x.reshape(-1, COLUMNS),
        y.reshape(-1),
        np.repeat([f"{k:03d}" for k in range(TASKS)], each),
        validation=0,
        test=TEST_ROWS / each,
        scale="none",
        target_scale="none",
    )
    return federation, where


def right(joined: np.ndarray, where: np.ndarray) -> float:
    """Share of tasks in the right group, with groups named as suits best."""
    groups, found = int(where.max()) + 1, joined.argmax(axis=1)
    table = np.zeros((groups, max(groups, joined.shape[1])))
    np.add.at(table, (where, found), 1)
    ways = permutations(range(table.shape[1]), groups)
    return max(sum(table[g, way[g]] for g in range(groups)) for way in ways) / len(where)


def measured(
    federation: Federation, method: Method, epsilon: float | None, seed: int, **more: Any
) -> tuple[float, Any]:
    """Pooled nMSE on test rows, and the run."""
    run = tacit.train(
        federation,
        method,
        model="linear-no-intercept",
        privacy=None if epsilon is None else Privacy(epsilon=epsilon),
        seed=seed,
        baselines=False,
        personalise="none",
        **more,
    )
    return run.metrics["overall"]["nmse_pooled"], run


def methods(quick: bool) -> dict[str, tuple[Method, dict[str, Any]]]:
    named = {
        "related, groups known": (RelatedPMTL(**STEADY), {"rounds": 30}),
        "prior": (SharedPrior(), {}),
        "cluster-priors": (ClusterPriors(), {}),
    }
    if quick:
        return named
    return named | {
        "clusters": (Clusters(**FIXED), {"rounds": 30}),
        "pmtl": (PMTL(**STEADY), {"rounds": 30}),
        "fedavg": (FedAvg(**STEADY), {"rounds": 30}),
    }


def open_methods() -> dict[str, tuple[Method, dict[str, Any]]]:
    """Methods of a curator who sees all models, and those above without noise."""
    step: dict[str, Any] = {"lr": 0.1, "local_steps": 10, "steepest": 1.0}
    return methods(quick=False) | {
        # Chosen on a set of seed 100, of 4, 6 and 3 settings.
        "fedmtl": (FedMTL(**step, threshold=0.5, last_threshold=0.5), {"rounds": 30}),
        "fedamp": (FedAMP(**step, pull=1.0, sigma=10.0), {"rounds": 30}),
        "mocha": (MOCHA(**step, pull=1.0), {"rounds": 30}),
    }


def planted_sets(seeds: range, epsilon: float | None, quick: bool) -> None:
    said = "no privacy" if epsilon is None else f"ε = {epsilon:g}"
    print(f"{said}, seeds {seeds.start} to {seeds.stop - 1}: nMSE, mean ± sd")
    tried = open_methods() if epsilon is None else methods(quick)
    for groups in (3, 1):
        found: dict[str, list[float]] = {}
        members: dict[str, list[float]] = {}
        alive: dict[str, list[int]] = {}
        seconds: dict[str, float] = {}
        for seed in seeds:
            federation, where = planted(groups, seed)
            for name, (method, more) in tried.items():
                begun = time.perf_counter()
                known = federation.clustered(where.tolist()) if "known" in name else federation
                error, run = measured(known, method, epsilon, seed, **more)
                found.setdefault(name, []).append(error)
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun
                if "cluster" in name:
                    joined = run.simulation.tasks.states(torch.arange(TASKS))["joined"].numpy()
                    members.setdefault(name, []).append(right(joined, where))
                    board = run.simulation.board
                    alive.setdefault(name, []).append(int((board["share"] > 0).sum()))
        print(f"{groups} planted group{'s' if groups > 1 else ''}")
        for name, errors in found.items():
            text = f"  {name:24} {np.mean(errors):.4f} ± {np.std(errors):.4f}"
            if name in members:
                text += f"  right {np.mean(members[name]):.3f} (min {np.min(members[name]):.3f})"
                text += f"  groups {alive[name]}"
            print(f"{text}  {seconds[name] / len(seeds):.1f} s")


STEP: dict[str, Any] = dict(lr=1.0, local_steps=1, batch=None, clip=0.5)
DOMAINS: dict[str, Any] = {
    "as they are": lambda x: x,
    "every second turned over": lambda x: 1 - x,
    "every second on its side": lambda x: x.transpose(2, 3).flip(3),
}
BY_GRADIENT: dict[str, Method] = {
    "fedavg": FedAvg(**STEP),
    "pmtl": PMTL(**STEP, pull=0.1),
    "clusters": Clusters(**STEP, pull=None),
}


def writers(data: Path, people: str, domain: str, seed: int) -> tuple[Federation, np.ndarray]:
    """Every second writer in another domain; who is where comes second."""
    found = tacit.data.load(
        "writers", path=data, people=people, validation=0.03, test=0.9, split_seed=seed, min_rows=10
    )
    where = np.arange(len(found)) % 2
    other = torch.from_numpy(where == 1)
    for part in ("train", "validation", "test"):
        rows = found.part(part)
        turned = other.repeat_interleave(rows.counts)
        rows.x[turned] = DOMAINS[domain](rows.x[turned])
    return found.through("strokes"), where


def domains(data: Path, people: str, seeds: range, epsilons: list[float | None]) -> None:
    print("accuracy, mean over writers, mean ± sd")
    for domain in DOMAINS:
        sets = [writers(data, people, domain, seed) for seed in seeds]
        print(domain)
        for name, method in BY_GRADIENT.items():
            for epsilon in epsilons:
                found, members, alive = [], [], []
                begun = time.perf_counter()
                for seed, (federation, where) in zip(seeds, sets, strict=True):
                    plain = {"rounds": 30, "baselines": False, "personalise": "none"}
                    privacy = None if epsilon is None else Privacy(epsilon=epsilon, delta=1 / 539)
                    run = tacit.train(federation, method, privacy=privacy, seed=seed, **plain)
                    found.append(run.measured.overall["accuracy_per_task"])
                    if name == "clusters":
                        every = torch.arange(len(federation))
                        joined = run.simulation.tasks.states(every)["joined"].numpy()
                        members.append(right(joined, where))
                        alive.append(int((run.simulation.board["share"] > 0).sum()))
                said = "no noise" if epsilon is None else f"ε = {epsilon:g}"
                text = f"  {name:10} {said:9} {np.mean(found):.4f} ± {np.std(found):.4f}"
                text += f"  right {np.mean(members):.3f}  groups {alive}" if members else ""
                print(f"{text}  {(time.perf_counter() - begun) / len(seeds):.0f} s", flush=True)


OPEN: dict[str, list[Method]] = {
    "fedmtl": [
        FedMTL(lr=1.0, local_steps=1, batch=None, threshold=near, last_threshold=near)
        for near in (0.1, 0.3, 0.5)
    ],
    "fedamp": [
        FedAMP(lr=1.0, local_steps=1, batch=None, pull=pull, sigma=sigma)
        for pull in (0.1, 1.0)
        for sigma in (1.0, 10.0)
    ],
    "mocha": [MOCHA(lr=1.0, local_steps=1, batch=None, pull=pull) for pull in (0.1, 1.0, 10.0)],
}
"""What a curator who sees all models may do, with settings to choose from on validation rows."""


def open_domains(data: Path, people: str, seeds: range) -> None:
    """Methods without a promise between clients; chosen on validation rows of the first seed."""
    plain: dict[str, Any] = {"rounds": 30, "baselines": False, "personalise": "none"}

    def accuracy(federation: Federation, method: Method, seed: int) -> float:
        run = tacit.train(federation, method, privacy=None, seed=seed, **plain)
        return float(run.measured.overall["accuracy_per_task"] or 0.0)

    *_, turned = DOMAINS
    first, _ = writers(data, people, turned, seeds.start)
    choosing = replace(first, test=first.validation)
    for name, tried in OPEN.items():
        method = max(tried, key=lambda one: accuracy(choosing, one, seeds.start))
        print(f"{name}: {method}")
        for domain in ("as they are", turned):
            found = [accuracy(writers(data, people, domain, s)[0], method, s) for s in seeds]
            print(f"  {domain:24} {np.mean(found):.4f} ± {np.std(found):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["planted", "domains"])
    parser.add_argument("--data", type=Path, help="folder of mnist_by_writer.npz")
    parser.add_argument("--people", choices=["train", "test"], default="train")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--open", action="store_true", help="without privacy")
    parser.add_argument("--quick", action="store_true", help="exact methods only")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.what == "planted":
        planted_sets(seeds, None if given.open else given.epsilon, given.quick)
    elif given.open:
        open_domains(given.data, given.people, seeds)
    else:
        domains(given.data, given.people, seeds, [0.5, 2.0, None])


if __name__ == "__main__":
    main()
