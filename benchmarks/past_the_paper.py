"""How far a private billboard gets on MNIST by writer when little is shared: accuracy, not time.

A linear layer on the fixed representation `strokes` (1010 shared parameters), federated averaging
with everyone in each of 30 rounds, one full-batch step per round, then each writer's best own
model. Settings were chosen on the 297 writers of MNIST's test set (`--people test`), who are not
among the 539 writers measured here. Validation rows come out of the training share.

    python benchmarks/past_the_paper.py --data DIR [--people test] [--seeds 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

import tacit
from tacit.engine.personalise import personalise
from tacit.engine.progress import silent
from tacit.metrics import Metrics

SHARES = {"50 %": (0.1, 0.5), "10 %": (0.03, 0.9)}
"""Part of a writer's images to learn from, and the shares for validation (inside) and test."""
EPSILONS = (2.0, 0.5)
ROUNDS, DELTA = 30, 1 / 539
METHOD = tacit.FedAvg(lr=0.1, local_steps=1, batch=None, clip=0.05)
PUBLISHING = tacit.Publishing(lr=10.0)


def scores(data: Path, people: str, share: str, seed: int) -> dict[str, float]:
    validation, test = SHARES[share]
    federation = tacit.data.load(
        "writers", path=data, people=people, represent="strokes", validation=validation, test=test,
        split_seed=seed, min_rows=10,
    )  # fmt: skip
    found: dict[str, float] = {}
    memo: dict = {}
    for epsilon in (*EPSILONS, None):
        privacy = None if epsilon is None else tacit.Privacy(epsilon=epsilon, delta=DELTA)
        run = tacit.train(
            federation, METHOD, publishing=PUBLISHING, rounds=ROUNDS, seed=seed, baselines=False,
            personalise="none", privacy=privacy or tacit.Privacy(noise=0.0),
        )  # fmt: skip
        done = personalise(run.simulation.tasks, "best", silent, alone=True, memo=memo)
        assert done.alone is not None
        name = "no noise" if epsilon is None else f"ε = {epsilon:g}"
        found["alone"] = _accuracy(done.alone)
        found[f"billboard, {name}"] = _accuracy(run.measured)
        blend = None if done.ended is None else done.ended.blend
        kept = run.simulation.measure("test", personal=done.models, blend=blend)
        found[f"best own model, {name}"] = _accuracy(kept)
    return found


def _accuracy(measured: Metrics) -> float:
    value = measured.overall["accuracy_per_task"]
    assert value is not None
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of mnist_by_writer.npz")
    parser.add_argument("--people", choices=("train", "test"), default="train")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shares", default=",".join(SHARES))
    given = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; δ = 1/539, add-remove, everyone, {ROUNDS} rounds")
    for share in given.shares.split(","):
        started = time.monotonic()
        seeds = [scores(given.data, given.people, share, seed) for seed in range(given.seeds)]
        print(f"\n{share} of each writer's images to learn from")
        for name in seeds[0]:
            values = [one[name] for one in seeds]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            each = ", ".join(f"{value:.4f}" for value in values)
            print(f"| {name} | {statistics.mean(values):.4f} ± {spread:.4f} | {each} |", flush=True)
        print(f"({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
