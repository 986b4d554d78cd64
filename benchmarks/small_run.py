"""How long `tacit train` takes on a small table, everything included, beside `import torch` alone.

python benchmarks/small_run.py [--rows 14000] [--tasks 29] [--columns 9] [--repeat 3]

The table has numbers in raw units and a rare yes or no. Each run is a process of its own; its
phases are read off the files that it leaves: settings are written right before the first round, the
journal after the last one, the result after scores and baselines, the report at the end.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RUNS = {"auto": [], "pmtl with an mlp": ["--method", "pmtl", "--model", "mlp"]}
MARKS = {
    "start": "checkpoint/settings.json",
    "rounds": "checkpoint/journal.safetensors",
    "scores": "result.json",
    "report": "report.html",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="A small run, everything included.")
    parser.add_argument("--rows", type=int, default=14_000)
    parser.add_argument("--tasks", type=int, default=29)
    parser.add_argument("--columns", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder / "table.csv", given.rows, given.tasks, given.columns)
        alone = min(timed(["-c", "import torch"])[0] for _ in range(given.repeat))
        print(f"import torch: {alone:.2f} s")
        for name, options in RUNS.items():
            found = [
                measured(folder, f"{name}-{number}", options) for number in range(given.repeat)
            ]
            seconds, cpu, phases = min(found, key=lambda one: one[0])
            parts = ", ".join(f"{phase} {length:.2f}" for phase, length in phases.items())
            print(
                f"{name}: {seconds:.2f} s ({seconds / alone:.1f} times import torch), "
                f"{cpu:.2f} s of CPU: {parts}"
            )


def write_table(path: Path, rows: int, tasks: int, columns: int) -> None:
    """Columns of very different sizes, and an outcome that one row in fifteen has."""
    rng = np.random.default_rng(0)
    site, z = rng.integers(0, tasks, rows), rng.normal(size=(rows, columns))
    logit = -3.2 + 0.8 * z[:, 0] - 0.6 * z[:, 1] + 0.5 * z[:, 2] * z[:, 3]
    logit += 0.7 * rng.normal(size=tasks)[site]
    event = rng.random(rows) < 1 / (1 + np.exp(-logit))
    x = z * 10 ** rng.uniform(-1, 2, columns) + rng.uniform(0, 1000, columns)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["field", *(f"x{number}" for number in range(columns)), "event"])
        for k, row, happened in zip(site, x, event, strict=True):
            table.writerow([f"field {k}", *(f"{value:.6g}" for value in row), int(happened)])


def measured(folder: Path, name: str, options: list[str]) -> tuple[float, float, dict[str, float]]:
    """Seconds of a run, of CPU, and of each of its phases."""
    out, began = folder / name, time.time()
    command = ["-m", "tacit.cli", "train", "--data", str(folder / "table.csv"), "--task", "field"]
    command += ["--target", "event", "--epsilon", "2", "--out", str(out), "--quiet", *options]
    seconds, cpu = timed(command)
    ends = [began, *((out / mark).stat().st_mtime for mark in MARKS.values())]
    lengths = np.diff(ends).tolist()
    return seconds, cpu, dict(zip(MARKS, lengths, strict=True))


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of Python with these arguments."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, cpu


if __name__ == "__main__":
    main()
