"""Numbers for Prometheus, as a text file: node_exporter's textfile collector reads such files.

No port is opened, so there is nothing new to attack. Whoever writes numbers here answers for it
that none is computed from rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tacit.files import replace


@dataclass(frozen=True)
class Gauge:
    """One number; a value that is None or not finite is left out rather than misread."""

    name: str
    about: str
    value: float | None
    labels: Mapping[str, str] = field(default_factory=dict)
    counts: bool = False
    """Whether it only ever grows while the process lives."""


def write_gauges(path: Path, gauges: Iterable[Gauge]) -> None:
    """Replace the file at once, for its owner alone; when that was is one of the numbers."""
    written = Gauge("tacit_written_seconds", "When this was written.", time.time())
    replace(path, as_text([*gauges, written]).encode())


def as_text(gauges: Iterable[Gauge]) -> str:
    """In Prometheus' text format, version 0.0.4."""
    lines, said = [], set()
    for gauge in gauges:
        if gauge.value is None or not math.isfinite(gauge.value):
            continue
        if gauge.name not in said:
            said.add(gauge.name)
            lines.append(f"# HELP {gauge.name} {_escape(gauge.about)}")
            lines.append(f"# TYPE {gauge.name} {'counter' if gauge.counts else 'gauge'}")
        named = ",".join(f'{name}="{_escape(value)}"' for name, value in gauge.labels.items())
        labels = f"{{{named}}}" if named else ""
        lines.append(f"{gauge.name}{labels} {gauge.value!r}")
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
