"""Read changed files for a while, and say what went wrong otherwise than in a sentence."""

from __future__ import annotations

import resource
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tacit import TacitError
from tests.fuzz.parsers import PARSERS

SECONDS = 10.0
"""A file that takes longer hangs: those here are small."""
MEGABYTES = 200
"""Memory beyond what whole files took."""


class Hangs(BaseException):
    """Not caught by anything that catches errors."""


@dataclass
class Found:
    """What a hunt found."""

    parser: str
    cases: int = 0
    sentences: int = 0
    """Cases that ended in one; the others were read."""
    slowest: float = 0.0
    megabytes: float = 0.0
    problems: list[tuple[str, bytes]] = field(default_factory=list)
    """What happened, and the file that it happened with."""

    def __str__(self) -> str:
        return (
            f"{self.parser}: {self.cases} files, {self.sentences} sentences, "
            f"{len(self.problems)} problems, slowest {self.slowest:.2f} s, "
            f"{self.megabytes:.0f} MB more than for whole files"
        )


def hunt(
    parser: str, folder: Path, *, seed: int = 0, seconds: float = 1e9, cases: int | None = None
) -> Found:
    """Until the time is over, or so many files were read; the same seed makes the same files."""
    subject, random, found = PARSERS[parser](folder), Random(f"{parser} {seed}"), Found(parser)
    for sample in subject.samples:
        subject.read(sample)
    before, until = _memory(), time.monotonic() + seconds
    handler = signal.signal(signal.SIGALRM, _hangs)
    try:
        while time.monotonic() < until and (cases is None or found.cases < cases):
            content = subject.mutate(random.choice(subject.samples), random)
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            problem = ""
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    subject.read(content)
            except TacitError as error:
                found.sentences += 1
                problem = f"several lines: {error}" if "\n" in str(error) else ""
            except (Exception, Hangs):
                problem = traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            took, grown = time.monotonic() - began, _memory() - before
            found.cases += 1
            if took > SECONDS and not problem:
                problem = f"it took {took:.0f} s"
            if grown > max(MEGABYTES, found.megabytes) and not problem:
                problem = f"it took {grown:.0f} MB"
            found.slowest = max(found.slowest, took)
            found.megabytes = max(found.megabytes, grown)
            if problem:
                found.problems.append((problem, content))
                if len(found.problems) == 20:
                    break
    finally:
        signal.signal(signal.SIGALRM, handler)
    return found


def _hangs(number: int, frame: object) -> None:
    raise Hangs


def _memory() -> float:
    """The most that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
