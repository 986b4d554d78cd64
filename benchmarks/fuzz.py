"""Fuzz the parsers of files: `python benchmarks/fuzz.py --parser ledger --minutes 10`.

Prints a line for each parser and leaves with 1 if a file ended in anything but a sentence, took
longer than ten seconds or 200 MB. Such files are kept in `--out`. Without `--parser`, all in turn,
each in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.hunt import hunt
from tests.fuzz.parsers import PARSERS


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--parser", choices=sorted(PARSERS))
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", type=Path, default=Path("fuzz"))
    given = arguments.parse_args()
    if given.parser is None:
        command = [sys.executable, *sys.argv, "--parser"]
        return max(subprocess.run([*command, name]).returncode for name in PARSERS)
    with tempfile.TemporaryDirectory() as folder:
        found = hunt(given.parser, Path(folder), seed=given.seed, seconds=60 * given.minutes)
    print(found, flush=True)
    for number, (problem, content) in enumerate(found.problems):
        given.out.mkdir(exist_ok=True)
        path = given.out / f"{given.parser}-{given.seed}-{number}"
        path.write_bytes(content)
        print(f"{path}:\n{problem}")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
