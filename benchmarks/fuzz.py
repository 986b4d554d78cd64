"""Fuzz whatever reads files or messages: `python benchmarks/fuzz.py --parser ledger --minutes 10`.

Prints a line for each parser and leaves with 1 if a file or a message ended in anything but a
sentence, took longer than seconds or 200 MB. Such files are kept in `--out`. Without `--parser`,
all in turn, each in a process of its own. Ports are real ones on this machine; the coordinator's
need tacit[flower].
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.hunt import hunt
from tests.fuzz.net_hunt import Hunted
from tests.fuzz.net_hunt import hunt as hunt_messages
from tests.fuzz.net_ports import PORTS, hunt_port
from tests.fuzz.net_readers import READERS
from tests.fuzz.parsers import PARSERS

EVERY = (*PARSERS, *READERS, *PORTS)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--parser", choices=sorted(EVERY))
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", type=Path, default=Path("fuzz"))
    given = arguments.parse_args()
    if given.parser is None:
        command = [sys.executable, *sys.argv, "--parser"]
        return max(subprocess.run([*command, name]).returncode for name in EVERY)
    if given.parser not in PARSERS:
        return _messages(given.parser, given.seed, 60 * given.minutes)
    with tempfile.TemporaryDirectory() as folder:
        found = hunt(given.parser, Path(folder), seed=given.seed, seconds=60 * given.minutes)
    print(found, flush=True)
    for number, (problem, content) in enumerate(found.problems):
        given.out.mkdir(exist_ok=True)
        path = given.out / f"{given.parser}-{given.seed}-{number}"
        path.write_bytes(content)
        print(f"{path}:\n{problem}")
    return 1 if found.problems else 0


def _messages(name: str, seed: int, seconds: float) -> int:
    try:
        with tempfile.TemporaryDirectory() as folder:
            look = hunt_port if name in PORTS else _hunt_reader
            found = look(name, Path(folder), seed=seed, seconds=seconds)
    except AssertionError as problem:
        print(f"{name}: {problem}", flush=True)
        return 1
    print(f"{name}: {found}", flush=True)
    return 0


def _hunt_reader(name: str, folder: Path, *, seed: int, seconds: float) -> Hunted:
    with READERS[name](folder) as reader:
        return hunt_messages(
            name, reader.make, reader.read, reader.words, seconds=seconds, seed=seed
        )


if __name__ == "__main__":
    sys.exit(main())
