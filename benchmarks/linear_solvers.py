"""Trace norm on School: all tasks at once against a Python loop over tasks.

    python benchmarks/linear_solvers.py [--data DIR]

139 schools, 15 362 students, 27 features (the two percentages standardised) and an intercept; one
core for all, everything from raw rows. *Plain loop*: the same algorithm, restarts included, as it
is usually written in torch, for the same number of iterations and from step sizes found as
exactly. It centres the rows of each task once; an iteration takes the tasks in turn,
`x.T @ (x @ w - y)` from the rows of each, then shrinks the singular values of all models at once.
It stops without a certificate. Most of its time is calls to torch: in numpy the same loop takes a
third. *Lean loop*: our solver, Gram matrices and all, with nothing changed but the gradient, one
task after the other in numpy: the best loop we found.

`school/school.mat` is read from DIR or TACIT_DATA; without it rows of the same shape are generated,
which the table says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.io import loadmat
from torch import Tensor

from tacit.classical import Problem, strongest, trace_norm
from tacit.data.federation import Rows

TASKS, FEATURES, SHARES = 139, 27, (0.1, 0.01)


def school(folder: Path) -> Rows:
    cells = loadmat(folder / "school" / "school.mat")
    blocks = [np.asarray(block, dtype=np.float64)[:, :FEATURES] for block in cells["X"].ravel()]
    x, y = np.concatenate(blocks), np.concatenate([block.ravel() for block in cells["Y"].ravel()])
    percent = x[:, 3:5]  # the other columns are 0 or 1
    x[:, 3:5] = (percent - percent.mean(axis=0)) / percent.std(axis=0)
    offsets = np.cumsum([0, *map(len, blocks)])
    return Rows(torch.from_numpy(x), torch.from_numpy(y.astype(np.float64)), torch.tensor(offsets))


def generated() -> Rows:
    draw = torch.Generator().manual_seed(0)
    counts = torch.randint(22, 200, (TASKS,), generator=draw)
    owner = torch.arange(TASKS).repeat_interleave(counts)
    x = (torch.rand(len(owner), FEATURES, generator=draw) < 0.2).double()
    w = torch.randn(TASKS, 3, generator=draw) @ torch.randn(3, FEATURES, generator=draw)
    y = (x * w[owner]).sum(dim=1) + 3 * torch.randn(len(owner), generator=draw)
    return Rows(x, y.double(), torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


def plain_loop(problem: Problem, strength: float, iterations: int) -> Tensor:
    """FISTA with restart over centred rows; returns the weights without intercepts."""
    tasks = []
    for k in range(problem.tasks):
        span = slice(int(problem.offsets[k]), int(problem.offsets[k + 1]))
        x, y = problem.x[span, :-1], problem.y[span]
        tasks.append((x - x.mean(dim=0), y - y.mean()))
    step = problem.mean_count / max(float(torch.linalg.matrix_norm(x, 2)) ** 2 for x, _ in tasks)
    w = z = torch.zeros(problem.tasks, problem.penalised, dtype=torch.float64)
    momentum = 1.0
    for _ in range(iterations):
        slope = torch.empty_like(w)
        for k, (x, y) in enumerate(tasks):
            slope[k] = x.T @ (x @ z[k] - y) / problem.mean_count
        u, values, right = torch.linalg.svd(z - step * slope, full_matrices=False)
        moved = (u * (values - step * strength).clamp_min(0)) @ right
        uphill = ((z - moved) * (moved - w)).sum() > 0
        before, momentum = (
            (1.0, 1.0) if uphill else (momentum, (1 + (1 + 4 * momentum**2) ** 0.5) / 2)
        )
        w, z = moved, moved + (before - 1) / momentum * (moved - w)
    return w


class Lean(Problem):
    """The same problem, its gradient task by task in numpy."""

    def centred(self) -> Problem:
        return lean(super().centred())

    @cached_property
    def blocks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        sizes, blocks = self.counts.tolist(), []
        for x, y in zip(self.x.split(sizes), self.y.split(sizes)):
            blocks.append(
                ((x.T @ x).numpy() / self.mean_count, (x.T @ y).numpy() / self.mean_count)
            )
        return blocks

    def gradient(self, w: Tensor) -> Tensor:
        slope, models = np.empty(w.shape), w.numpy()
        for k, (gram, moment) in enumerate(self.blocks):
            slope[k] = gram @ models[k] - moment
        return torch.from_numpy(slope)


def lean(problem: Problem) -> Lean:
    return Lean(**{field.name: getattr(problem, field.name) for field in fields(problem)})


def timed(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    began = time.perf_counter()
    w = work()
    return time.perf_counter() - began, w


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("TACIT_DATA"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # one core for all of them: the matrices are small
    folder = Path(options.data or ".")
    real = (folder / "school" / "school.mat").exists()
    rows = school(folder) if real else generated()
    print("School" if real else "generated rows of School's shape (no school/school.mat given)")
    base = Problem.of(rows, "regression")
    top, result = strongest(base, trace_norm), {}
    for share in SHARES:
        fit, strength = trace_norm(base, share * top), share * top
        ways: dict[str, Callable[[], Tensor]] = {  # each from raw rows: nothing is kept from before
            "all at once": lambda: trace_norm(replace(base), strength).w,  # noqa: B023
            "plain loop": lambda: plain_loop(base, strength, fit.iterations),  # noqa: B023
            "lean loop": lambda: trace_norm(lean(base), strength).w,  # noqa: B023
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.repeats):
            for name, work in ways.items():  # in turns, so that a busy machine disturbs all alike
                took, w = timed(work)
                torch.testing.assert_close(w[:, :FEATURES], fit.w[:, :FEATURES], atol=1e-4, rtol=0)
                seconds[name].append(took)
        rank = int((torch.linalg.svdvals(fit.w[:, :-1]) > 1e-9).sum())
        print(
            f"strength {share} of the strongest: {fit.iterations} iterations to a residual of "
            f"{fit.residual:.0e}, rank {rank}"
        )
        for name, took in seconds.items():
            pairs = zip(seconds["all at once"], took, strict=True)
            ratio, middle = statistics.median(b / a for a, b in pairs), statistics.median(took)
            result[f"{name}, {share}"] = {"seconds": middle, "ratio": ratio}
            print(f"  {name:12} {middle:7.3f} s {ratio:6.1f} ×")
    print("bars: all at once under 1 s; the plain loop at least 20 times that")
    if options.json:
        options.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
