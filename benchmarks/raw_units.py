"""Does it matter in which units a table comes? Predictions of the same run in other units.

Every numeric column and the target of an open table is multiplied or shifted before anything else;
split, seed and so all noise stay the same. Printed is how far predictions move, in parts of their
spread (root mean squares), and the error on held-out rows before and after; and the same for
another seed of the noise in the table's own units. Columns of 0 and 1 are moved with `--flags`
only: written otherwise they are flags for nobody, and one more column to vote on.

    python benchmarks/raw_units.py [--tables psid,wage,hours] [--seeds 3] [--epsilon 1]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.engine.progress import silent

sys.path.insert(0, str(Path(__file__).parent))
from mixed import tables

Move = Callable[[int], tuple[float, float]]
"""Factor and shift of a column, from its place."""
MIXED = (7.0, 0.3, 2.54, 100.0, 1 / 60)
WAYS: dict[str, Move] = {
    "x 1e6": lambda place: (1e6, 0.0),
    "x 1e-6": lambda place: (1e-6, 0.0),
    "x 7": lambda place: (7.0, 0.0),
    "+ 1e4": lambda place: (1.0, 1e4),
    "a factor for each": lambda place: (MIXED[place % len(MIXED)], 0.0),
    "factors, + 1e4": lambda place: (MIXED[place % len(MIXED)], 1e4),
}
OTHER_NOISE = 1000


def as_it_is(place: int) -> tuple[float, float]:
    """The table's own units."""
    return 1.0, 0.0


def predictions(
    table: Any,
    about: tuple[str, str, Any, float],
    seed: int,
    epsilon: float,
    last: Any,
    noise: int | None = None,
) -> tuple[np.ndarray, Any]:
    """For all rows, and the error on those held out; noise may have a seed of its own."""
    task, target, kind, share = about
    found = tacit.data.from_table(
        table, task=task, target=target, kind=kind, validation=0.0, test=share, split_seed=seed,
        min_rows=3,
    )  # fmt: skip
    privacy = tacit.Privacy(epsilon=epsilon) if epsilon else None
    run = tacit.train(
        found, "mixed", privacy=privacy, seed=seed if noise is None else noise, progress=silent,
        personalise=last, baselines=False,
    )  # fmt: skip
    return np.asarray(run.predict(table)), run.measured.overall["nmse_pooled"]


def moved(
    table: Any, task: str, target: str, way: Move, flags: bool = False
) -> tuple[Any, float, float]:
    """The table in other units, and those of its target."""
    changed, factor, shift = table.copy(), 1.0, 0.0
    numbers = [name for name in table.select_dtypes("number").columns if name != task]
    numbers = [name for name in numbers if flags or not set(table[name].dropna()) <= {0, 1}]
    for place, name in enumerate(numbers):
        a, b = way(place)
        changed[name] = table[name].astype(float) * a + b
        if name == target:
            factor, shift = a, b
    return changed, factor, shift


def main() -> None:
    parser = argparse.ArgumentParser(description="Mixed models in other units.")
    parser.add_argument("--tables", default="psid,wage,hours")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0, help="0: without privacy")
    parser.add_argument("--flags", action="store_true", help="columns of 0 and 1, too")
    parser.add_argument("--last", default="none", help="the last step")
    given = parser.parse_args()
    for name in given.tables.split(","):
        table, task, target, kind, share = tables()[name]
        about, how = (task, target, kind, share), (given.epsilon, given.last)
        plain = [predictions(table, about, k, *how) for k in range(given.seeds)]
        for said, way in {**WAYS, "another seed": as_it_is}.items():
            changed, factor, shift = moved(table, task, target, way, given.flags)
            moves, errors = [], []
            for seed, (before, _) in enumerate(plain):
                noise = OTHER_NOISE + seed if way is as_it_is else seed
                after, error = predictions(changed, about, seed, *how, noise)
                away = (after - shift) / factor - before
                moves.append(float(np.sqrt(np.mean(away**2)) / before.std()))
                errors.append(error)
            parts = ", ".join(f"{100 * each:.2f} %" for each in sorted(moves))
            one, other = np.mean([error for _, error in plain]), np.mean(errors)
            print(f"{name}, {said}: moved by {parts}; error {one:.4f} -> {other:.4f}", flush=True)


if __name__ == "__main__":
    main()
