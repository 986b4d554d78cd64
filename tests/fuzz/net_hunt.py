"""Let a reader have many changed messages: it refuses them in its own words, and nothing else."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

SLOWEST, LARGEST = 5.0, 200.0
"""Seconds for one message, and MB for all together beyond what was used before."""


@dataclass
class Hunted:
    """How a hunt went."""

    cases: int = 0
    refused: int = 0
    slowest: float = 0.0
    megabytes: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.cases} messages, {self.refused} refused, slowest {self.slowest:.2f} s, "
            f"{self.megabytes:.0f} MB"
        )


def hunt(
    name: str,
    make: Callable[[Random], bytes],
    read: Callable[[bytes], object],
    words: type[Exception] | tuple[type[Exception], ...],
    *,
    cases: int | None = None,
    seconds: float = 1e9,
    seed: int = 0,
) -> Hunted:
    """`read` what `make` makes, until the time is over or so many were read.

    A case is made from its number alone, so that one that fails can be made again.
    """
    found, before, until = Hunted(), peak(), time.monotonic() + seconds
    while time.monotonic() < until and (cases is None or found.cases < cases):
        content = make(Random(f"{name} {seed} {found.cases}"))
        began = time.monotonic()
        try:
            read(content)
        except words as refusal:
            found.refused += 1
            assert len(str(refusal)) < 3000, f"{name}: a refusal of {len(str(refusal))} characters"
        except Exception:
            raise AssertionError(
                f"{name}, seed {seed}, case {found.cases}: {traceback.format_exc()}"
                f"after {content[:500]!r}"
            ) from None
        found.cases += 1
        found.slowest = max(found.slowest, time.monotonic() - began)
        found.megabytes = max(found.megabytes, peak() - before)
        assert found.slowest < SLOWEST, f"{name}, seed {seed}, case {found.cases}: {found}"
        assert found.megabytes < LARGEST, f"{name}, seed {seed}, case {found.cases}: {found}"
    return found


def peak() -> float:
    """The most that this process ever held, in MB."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) / 1024
