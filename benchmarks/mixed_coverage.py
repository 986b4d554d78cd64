"""How often 95 % intervals of a private mixed model hold the truth, over simulated federations.

Five columns of different raw scales: two that go together, one that is 0 or 1, one whose effect is
zero; tasks differ by an intercept of their own. Units, lengths, coefficients and variances are all
released inside the one ε. Widths are beside those of the same model without privacy (the median
of the first federations). A coefficient without an interval is an honest answer: it is counted.

    python benchmarks/mixed_coverage.py [--federations 500] [--tasks 300] [--rows 10] [--epsilon 1]
                                        [--unbalanced] [--first 0] [--jobs 1]
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np

import tacit
from tacit.engine.progress import silent
from tacit.inference.summary import MixedSummary
from tacit.methods import Mixed

TRUTH = {
    "intercept": -6.0, "height": 0.05, "weight": 0.03, "smoker": 0.8, "dose": 0.0, "income": 3e-5,
}  # fmt: skip
BETWEEN, WITHIN = 1.0, 1.5
"""Standard deviations of own intercepts and of rows."""
FEWEST, UNEVEN = 2, 1.0
"""Rows of the smallest task, and the spread of the logarithm of sizes, in unbalanced ones."""
COMPARED = 20
"""Federations that are also fitted without privacy."""


@dataclass(frozen=True)
class Found:
    """What the model of one federation says about the coefficients, in the order of `TRUTH`."""

    errors: tuple[float, ...]
    """Infinite where there is no interval."""
    held: tuple[bool, ...]
    exact: tuple[float, ...] | None
    """Errors without privacy."""


def simulated(seed: int, tasks: int, rows: int, unbalanced: bool) -> tacit.Federation:
    rng = np.random.default_rng([seed, tasks, rows, unbalanced])
    sizes = np.full(tasks, rows)
    if unbalanced:
        sizes = rng.lognormal(math.log(rows) - UNEVEN**2 / 2, UNEVEN, tasks)
        sizes = np.maximum(sizes.round().astype(int), FEWEST)
    task = np.repeat(np.arange(tasks), sizes)
    count, tall = len(task), rng.normal(size=len(task))
    columns = {
        "height": 170 + 9 * tall,
        "weight": 75 + 12 * (0.7 * tall + math.sqrt(1 - 0.7**2) * rng.normal(size=count)),
        "smoker": (rng.random(count) < 0.35).astype(float),
        "dose": 0.02 + 0.005 * rng.normal(size=count),
        "income": 40_000 + 6_000 * rng.normal(size=tasks)[task] + 9_000 * rng.normal(size=count),
    }
    x = np.column_stack(list(columns.values()))
    y = TRUTH["intercept"] + x @ [TRUTH[name] for name in columns]
    y += BETWEEN * rng.normal(size=tasks)[task] + WITHIN * rng.normal(size=count)
    return tacit.data.from_arrays(
        x, y, task.astype(str), kind="regression", validation=0.0, test=0.0, features=list(columns)
    )


def fitted(federation: tacit.Federation, epsilon: float | None, seed: int) -> MixedSummary:
    privacy = None if epsilon is None else tacit.Privacy(epsilon=epsilon)
    return tacit.train(
        federation, Mixed(), privacy=privacy, seed=seed, baselines=False, personalise="none",
        progress=silent,
    ).summary()  # fmt: skip


def found_in(
    seed: int, *, tasks: int, rows: int, epsilon: float, unbalanced: bool, first: int
) -> Found:
    federation = simulated(seed, tasks, rows, unbalanced)
    private = fitted(federation, epsilon, seed).coefficients
    exact = fitted(federation, None, seed).coefficients if seed - first < COMPARED else None
    assert [each.name for each in private] == list(TRUTH)
    return Found(
        errors=tuple(each.error for each in private),
        held=tuple(each.interval[0] <= TRUTH[each.name] <= each.interval[1] for each in private),
        exact=None if exact is None else tuple(each.error for each in exact),
    )


def line(name: str, given: np.ndarray, held: np.ndarray, wider: np.ndarray) -> str:
    """Of one coefficient, or of all together: arrays of what federations gave."""
    said = f"{name:<10} has an interval in {100 * given.mean():5.1f} %"
    if given.any():
        said += f", which holds the truth in {100 * held[given].mean():5.1f} %"
    wider = wider[np.isfinite(wider)]
    return said + (f", {np.median(wider):5.1f} times as wide" if len(wider) else "")


def report(results: list[Found]) -> str:
    errors = np.array([each.errors for each in results])
    held, given = np.array([each.held for each in results]), np.isfinite(errors)
    exact = np.array([each.exact for each in results if each.exact is not None])
    wider = errors[: len(exact)] / exact
    lines = [line(name, given[:, k], held[:, k], wider[:, k]) for k, name in enumerate(TRUTH)]
    lines.append(line("all", given.ravel(), held.ravel(), wider.ravel()))
    lines.append(f"no interval at all: {int((~given.any(1)).sum())} of {len(results)} federations")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of intervals of private mixed models.")
    parser.add_argument("--federations", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--unbalanced", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first federation.")
    parser.add_argument("--jobs", type=int, default=1)
    given = vars(parser.parse_args())
    count, first, jobs = given.pop("federations"), given["first"], given.pop("jobs")
    seeds = range(first, first + count)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        print(report(list(pool.map(partial(found_in, **given), seeds))))


if __name__ == "__main__":
    main()
