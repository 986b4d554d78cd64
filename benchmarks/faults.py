"""Random schedules of faults over whole runs: does everything hold that is promised?

    python benchmarks/faults.py --schedules 200 --seed 0 --jobs 2

Parties are killed and lose power at any write, disks are full, tear, flip and lose, messages are
lost, repeated, late and changed, connections with servers are cut, clocks step. Runs are started
again as people would. `tests/faults/trial.py` says what must hold. Prints a line for each kind of
run and leaves with 1 if anything did not; `--seed` and the number of a schedule make it once more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.kinds import TRIALS

_quiet: dict[str, Path] = {}
"""Where undisturbed runs of this process are."""


def run(given: tuple[str, int, int]) -> tuple[str, Counter[str], list[str]]:
    """One schedule."""
    kind, seed, number = given
    torch.set_num_threads(1)
    quiet = _quiet.setdefault("folder", Path(tempfile.mkdtemp()))
    folder = Path(tempfile.mkdtemp())
    trial = TRIALS[kind](f"{seed}.{number}", folder, quiet)
    shutil.rmtree(folder)
    counts = Counter(
        {
            "schedules": 1,
            "faults": len(trial.schedule.happened),
            "finished": trial.finished,
            "ended with a sentence": not trial.finished and bool(trial.sentences),
            "violations": bool(trial.violations),
        }
    )
    return kind, counts, trial.violations


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--schedules", type=int, default=200, help="of each kind")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--kind", choices=sorted(TRIALS), action="append")
    given = arguments.parse_args()
    kinds, started = given.kind or list(TRIALS), time.monotonic()
    todo = [(kind, given.seed, number) for kind in kinds for number in range(given.schedules)]
    table: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.jobs) as pool:
        for kind, counts, violations in pool.imap_unordered(run, todo, chunksize=5):
            table[kind].update(counts)
            for violation in violations:
                print(violation, flush=True)
    columns = ("schedules", "faults", "finished", "ended with a sentence", "violations")
    print(f"{'':8}" + "".join(f"{column:>23}" for column in columns))
    for kind, found in table.items():
        print(f"{kind:8}" + "".join(f"{found[column]:>23}" for column in columns))
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if any(found["violations"] for found in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
