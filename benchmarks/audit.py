"""What audits prove of true promises, and whether they catch false ones.

    OMP_NUM_THREADS=1 python benchmarks/audit.py [--seeds 20] [--only "fixed size"|persons]

The sabotages are those of the tests: run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tacit
from tacit.attacks.audited import Audit

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import sabotages
from tests.conftest import arrays

EPSILONS = (1.0, 4.0, 8.0)
RUNS = {1.0: 20_000, 4.0: 20_000, 8.0: 20_000}
SHARP = {1.0: 20_000, 4.0: 20_000, 8.0: 60_000}
"""To prove more than ε = 8 takes many guesses: even if all are right, a doubt is left."""
FEW, PERSONS = 10, 200
ONLY = ""
"""Only attacks with this in their names are made."""

Sabotage = Callable[[], contextlib.AbstractContextManager[None]]


def federation(tasks: int = FEW, features: int = 4, more: int = 0) -> tacit.Federation:
    """Made-up tasks; `more` rows are put before all others, in the first task."""
    x, y, names = (
        np.concatenate([part[:more], part]) for part in arrays(tasks, features, "regression")
    )
    return tacit.data.from_arrays(x, y, names, scale="none", target_scale="none", kind="regression")


def patients() -> tacit.Federation:
    """Made-up persons with three rows each, at four tasks."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(PERSONS), 3)
    x = rng.normal(size=(len(person), 4))
    y = (x[:, 0] + rng.normal(size=len(person)) > 0).astype(float)
    given: dict[str, Any] = {"scale": "none", "validation": 0.0, "test": 0.0, "kind": "binary"}
    return tacit.data.from_arrays(x, y, person % 4, persons=person, **given)


def attack(
    of: tacit.Federation,
    epsilon: float,
    seed: int,
    neighbours: Any = "add-remove",
    delta: float = 1e-3,
    clip: float = 0.3,
    hidden: dict[str, Any] | None = None,
    **settings: Any,
) -> Audit:
    promise: dict[str, Any] = {"delta": delta, "neighbours": neighbours, **(hidden or {})}
    method = tacit.PMTL(clip=clip) if hidden is None else tacit.FedAvg(clip=clip)
    privacy = tacit.Privacy(epsilon=epsilon, **promise)
    return tacit.audit(of, method, privacy=privacy, seed=seed, **settings)


def measure(
    name: str,
    seeds: int,
    of: tacit.Federation,
    runs: dict[float, int] | None,
    sabotage: Sabotage = contextlib.nullcontext,
    **settings: Any,
) -> None:
    """One line for each ε: how often the bound was above the promise, and which part of it."""
    if ONLY not in name:
        return
    for epsilon in EPSILONS:
        many: dict[str, Any] = {} if runs is None else {"many_runs": runs[epsilon]}
        started = time.monotonic()
        with sabotage():
            found = [attack(of, epsilon, seed, **settings, **many) for seed in range(seeds)]
        shares = np.array([one.epsilon_lower / one.promised.epsilon for one in found])
        print(
            f"{name:<28} ε = {epsilon:g}: above the promise in {(shares > 1).sum()} of {seeds}; "
            f"{shares.min():.2f} to {shares.max():.2f} of it, median {np.median(shares):.2f}; "
            f"{(time.monotonic() - started) / seeds:.0f} s each",
            flush=True,
        )


def true_promises(seeds: int) -> None:
    few = federation()
    measure("everyone, add-remove", seeds, few, RUNS, rounds=2)
    measure("everyone, replace", seeds, few, RUNS, rounds=1, neighbours="replace")
    measure("Poisson 0.5, add-remove", seeds, few, RUNS, rounds=2, cohort=0.5)
    wide = federation(features=300)
    measure("one run, 301 parameters", seeds, wide, None, rounds=10, one_run=True, delta=1e-5)


def false_promises(seeds: int) -> None:
    few = federation()
    measure("half the noise", seeds, few, SHARP, sabotages.half_the_noise, rounds=1)
    measure("no clip", seeds, few, SHARP, sabotages.no_clip, rounds=1)
    measure("divided by who came", seeds, few, SHARP, sabotages.realised_cohort, rounds=1)
    measure(
        "fixed size, amplified",
        seeds,
        few,
        SHARP,
        lambda: sabotages.amplified_fixed_size(1),
        rounds=10,
        neighbours="replace",
    )
    with sabotages.the_old_split():
        first, second = (federation(300, more=more) for more in (0, 1))
    measure(
        "the old split",
        seeds,
        first,
        SHARP,
        rounds=1,
        neighbours="replace",
        neighbour=second,
        clip=1e-3,
    )


def persons(seeds: int) -> None:
    """Where persons are hidden, one of them is attacked."""
    of, hidden = patients(), {"unit": "person", "persons": PERSONS}
    given: dict[str, Any] = {"rounds": 1, "hidden": hidden}
    several: dict[str, Any] = given | {"hidden": hidden | {"at_most": 3}}
    measure("persons", seeds, of, RUNS, **given)
    measure("persons at three tasks", seeds, of, RUNS, **several, cohort=0.5)
    few = max(1, seeds // 10)
    measure("persons, half the noise", few, of, SHARP, sabotages.half_the_noise, **given)
    measure("persons, the clip of tasks", few, of, SHARP, sabotages.clip_of_tasks, **given)
    measure("persons, counted twice", few, of, SHARP, sabotages.counted_twice, **given)
    whole = sabotages.whole_clips_everywhere
    measure("persons, whole clips at three", few, of, SHARP, whole, **several)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="part of an attack's name")
    given = parser.parse_args()
    global ONLY
    ONLY = given.only
    torch.set_num_threads(1)
    true_promises(given.seeds)
    false_promises(max(1, given.seeds // 10))
    persons(given.seeds)


if __name__ == "__main__":
    main()
