"""One private round of linear models: 100 000 tasks, 50 features, 20 rows each.

The round is the whole round: every task solves its regression exactly, the models are clipped,
their covariance is summed, booked and noised, and the prior is made from it. Beside it, the same
solve and the same sum task by task in a Python loop with numpy (on a part of the tasks, scaled up),
and what the last step costs, in which every task solves again under the published prior.

    python benchmarks/private_round.py
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import numpy as np
import torch

from tacit.data.federation import Federation, Rows
from tacit.data.sets.synthetic import NumberedNames
from tacit.experiment.plan import Plan
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.methods import SharedPrior
from tacit.models import MODELS
from tacit.privacy import Everyone, Privacy
from tacit.randomness import Randomness


def made(tasks: int, features: int, rows: int) -> Federation:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((tasks * rows, features), dtype=np.float32)
    basis = rng.standard_normal((5, features), dtype=np.float32)
    weights = rng.standard_normal((tasks, 5), dtype=np.float32) @ basis / 5
    y = np.einsum("knd,kd->kn", x.reshape(tasks, rows, features), weights).reshape(-1)
    y += rng.standard_normal(len(y), dtype=np.float32)
    offsets = torch.arange(tasks + 1) * rows
    none = Rows(torch.zeros(0, features), torch.zeros(0), torch.zeros(tasks + 1, dtype=torch.int64))
    train = Rows(torch.from_numpy(x), torch.from_numpy(y), offsets)
    return Federation(NumberedNames(tasks), "regression", 1, train, none, none)


def looped(federation: Federation, tasks: int) -> float:
    """Seconds for one task: evidence of five strengths, and its part of the covariance."""
    total = np.zeros((federation.input_shape[0],) * 2)
    started = time.perf_counter()
    for task in range(tasks):
        x, y = (part.double().numpy() for part in federation.train.of(task))
        kernel = x @ x.T
        scale = np.trace(kernel) / len(y)
        found = []
        for strength in np.linspace(-1, 3, 5):
            ratio = 10**strength / scale
            factor = np.linalg.cholesky(np.eye(len(y)) + ratio * kernel)
            half = np.linalg.solve(factor, y)
            quad = half @ half
            evidence = -np.log(np.diag(factor)).sum() - 0.5 * len(y) * math.log(quad)
            found.append((evidence, ratio * (x.T @ np.linalg.solve(factor.T, half))))
        evidence = np.array([each[0] for each in found])
        likely = np.exp(evidence - evidence.max())
        w = (likely / likely.sum()) @ np.stack([each[1] for each in found])
        w /= max(1.0, float(np.linalg.norm(w)))
        total += np.outer(w, w)
    return (time.perf_counter() - started) / tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20)
    given = parser.parse_args()
    federation = made(given.tasks, given.features, given.rows)
    one = looped(federation, min(2000, given.tasks))
    method, randomness, cpu = SharedPrior(mean=0.0), Randomness.of(0), torch.device("cpu")
    model = model_of(MODELS["linear-no-intercept"], federation, 0)
    privacy = Privacy(epsilon=1.0, sampling="everyone")
    plan = Plan(method=method, privacy=privacy, rounds=1)
    simulation = simulation_of(plan, federation, model, Everyone(), randomness, cpu)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        board = simulation.rounds.next_board()
        seconds.append(time.perf_counter() - started)
    simulation.rounds.publish(board)
    started = time.perf_counter()
    simulation.tasks.settle()
    simulation.rounds.save()
    settled = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    best, loop = min(seconds), one * given.tasks
    print(f"{given.tasks} tasks, {given.features} features, {given.rows} rows each")
    print(f"one private round      {best:6.2f} s  (of {', '.join(f'{s:.2f}' for s in seconds)})")
    print(f"a Python loop over it  {loop:6.2f} s  ({loop / best:.1f} times as long)")
    print(f"the last step          {settled:6.2f} s  (all tasks, eight candidates)")
    print(f"peak memory            {memory:6.2f} GB (the rows take {_gigabytes(federation):.2f})")


def _gigabytes(federation: Federation) -> float:
    return federation.train.x.numel() * 4 / 2**30


if __name__ == "__main__":
    main()
