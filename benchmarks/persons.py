"""Persons as the unit of privacy: what sharing is worth to hospitals, schools and regions.

    python benchmarks/persons.py heart --epsilon 1 --noise-by curator --splits 0 20
    python benchmarks/persons.py school --epsilon 6 --noise-by task
    python benchmarks/persons.py tcga --epsilon 4
    python benchmarks/persons.py heart --epsilon 1 --tasks-epsilon 4

Real data sets from $TACIT_DATA. Every run is the default one, no setting given but the promise;
constants that columns are scaled with are public knowledge, typed here. "Alone" is each task's best
by its own cross-validation among constant, exact linear model and trees, in the same run and on the
same split. Differences are paired over splits.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.data.sets.heart import hospital_tables
from tacit.data.sets.school import school

HEART = {"age": (55.0, 10.0), "trestbps": (130.0, 20.0), "chol": (240.0, 50.0)}
HEART |= {"thalach": (140.0, 25.0)}
"""Means and deviations of adults who see a cardiologist, about."""
SCORES = {"heart": "loss_per_task", "school": "loss", "tcga": "concordance"}


def heart(split: int) -> tacit.Federation:
    """Disease at four hospitals, 66 % of the patients to train on; every row is a patient."""
    tables = hospital_tables()
    names = np.repeat(list(tables), [len(table["disease"]) for table in tables.values()])
    columns = {
        key: np.concatenate([table[key] for table in tables.values()])
        for key in next(iter(tables.values()))
    }
    return tacit.data.from_table(
        columns | {"hospital": names},
        task="hospital",
        target="disease",
        person=True,
        scale=HEART,
        split_seed=split,
        test=0.34,
        validation=0.0,
    )


def schools(split: int) -> tacit.Federation:
    """Scores (y − 1) / 69 of pupils, 70 % to train on, as in the sequel of PMTL."""
    every = school(train=0.5, scale="none")
    both = every.train.joined(every.test)
    task = np.repeat(every.names, both.counts.numpy())
    x, y = both.x.numpy().astype(float), (both.y.numpy().astype(float) - 1) / 69
    mean, sd = np.zeros(x.shape[1]), np.ones(x.shape[1])
    mean[3], sd[3], mean[4], sd[4] = 50.0, 25.0, 25.0, 12.5  # percentages, by what they mean
    return tacit.data.from_arrays(
        x,
        y,
        task,
        kind="regression",
        persons=True,
        scale=(mean, sd),
        target_scale=(0.3, 0.2),
        split_seed=split,
        test=0.3,
        validation=0.0,
    )


def regions(split: int) -> tacit.Federation:
    """Survival of patients with breast cancer in six regions."""
    return tacit.data.load("tcga_brca", person=True, split_seed=split, test=0.34, validation=0.0)


SETS = {
    "heart": (heart, 600, 1e-4),
    "school": (schools, 10_750, 1e-3),
    "tcga": (regions, 720, 1e-4),
}
"""How each is loaded, about how many persons train, and δ of the promise."""


def one(name: str, split: int, epsilon: float, **promise: Any) -> dict[str, float]:
    load, persons, delta = SETS[name]
    privacy = tacit.Privacy(
        epsilon=epsilon,
        delta=delta,
        unit="row",
        persons=persons,
        large_delta=name == "school",  # as the sequel has it, to be compared
        **promise,
    )
    federation = load(split)
    run = tacit.train(federation, privacy=privacy, seed=split)
    simulation = run.simulation
    settled = simulation.measure(simulation.tasks.test_part).overall
    score = SCORES[name]
    found = {"personal": run.metrics["overall"][score], "before the last step": settled[score]}
    found |= {kind: scores.overall[score] for kind, scores in run.baselines.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--noise-by", choices=("curator", "task"), default="curator")
    parser.add_argument("--tasks-epsilon", type=float, help="hide whole tasks as well")
    parser.add_argument("--splits", type=int, nargs=2, default=(0, 20))
    given = parser.parse_args()
    if not Path(os.environ.get("TACIT_DATA", "")).is_dir():
        parser.error("set TACIT_DATA to the folder of the data sets")
    promise = {"noise_by": given.noise_by, "tasks_epsilon": given.tasks_epsilon}
    found = [one(given.set, s, given.epsilon, **promise) for s in range(*given.splits)]
    said = f"ε = {given.epsilon:g}, of tasks {given.tasks_epsilon}, noise by {given.noise_by}"
    print(f"{given.set}, {said}, {SCORES[given.set]}")
    alone = np.array([each["local"] for each in found])
    for kind in found[0]:
        values = np.array([each.get(kind, np.nan) for each in found])
        off = values - alone
        error = off.std(ddof=1) / np.sqrt(len(off))
        mean = f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"
        print(f"  {kind:22} {mean}  to alone {off.mean():+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
