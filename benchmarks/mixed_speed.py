"""Time and memory of a private mixed model on many small sites, beside one pass over the same rows.

python benchmarks/mixed_speed.py [--tasks 100000] [--rows 20] [--columns 20]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import tacit
from tacit.engine.progress import silent
from tacit.methods import Mixed


def main() -> None:
    parser = argparse.ArgumentParser(description="Mixed models on many small sites.")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--columns", type=int, default=20)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(given.tasks), given.rows)
    x = rng.normal(size=(len(site), given.columns)).astype(np.float32)
    y = x[:, 0] - 0.5 * x[:, 1] + rng.normal(size=given.tasks)[site] + rng.normal(size=len(site))
    began = now()
    federation = tacit.data.from_arrays(x, y, site, kind="regression", validation=0.0, test=0.0)
    loaded = now()
    tacit.train(
        federation, Mixed(), privacy=tacit.Privacy(epsilon=1.0), seed=0, baselines=False,
        personalise="none", progress=silent,
    )  # fmt: skip
    done = now()
    blocks = x.reshape(given.tasks, given.rows, given.columns).astype(np.float64)
    start = time.monotonic()
    np.einsum("kni,knj->kij", blocks, blocks, optimize=True).sum(axis=0)
    once = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows, run = (
        f"{late[0] - early[0]:.1f} s ({late[1] - early[1]:.1f} s of processors)"
        for early, late in ((began, loaded), (loaded, done))
    )
    print(
        f"{given.tasks} tasks x {given.rows} rows x {given.columns} columns: loaded in {rows}, all "
        f"releases and own effects in {run}, {(done[0] - loaded[0]) / once:.0f} times one pass for "
        f"the tasks' products, peak {peak:.1f} GB"
    )


def now() -> tuple[float, float]:
    """The clock, and what processors have done for this process."""
    return time.monotonic(), time.process_time()


if __name__ == "__main__":
    main()
