"""Figures of a benchmark: on what machine they were measured, and what they were the last time.

    kept.report("local_training", {"CNN, × plain loop": 1.57})

prints machine, versions, date and commit, every figure beside that of the run before, and writes
them to `benchmarks/results/local_training.json`, where the next run finds them. Keep ratios: they
mean the same on another machine, seconds do not.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def report(name: str, figures: Mapping[str, float], **more: Any) -> None:
    """Print these figures beside those of the last run, and keep them; `more` is kept with them."""
    place = RESULTS / f"{name}.json"
    before = json.loads(place.read_text()) if place.is_file() else {"figures": {}}
    now = {"measured": measured() | more, "figures": dict(figures)}
    for title, one in (("now", now), ("before", before)):
        said = ", ".join(f"{key} {value}" for key, value in one.get("measured", {}).items())
        print(f"{title + ':':8}{said or 'nothing is kept'}")
    width = max(map(len, figures), default=0)
    for key, value in figures.items():
        last = before["figures"].get(key)
        change = f"{last:10.4g} before, {value / last - 1:+.0%}" if last else ""
        print(f"  {key:{width}} {value:10.4g} {change}".rstrip())
    RESULTS.mkdir(exist_ok=True)
    place.write_text(json.dumps(now, indent=2, ensure_ascii=False) + "\n")


def measured() -> dict[str, Any]:
    """Machine, versions, date and commit."""
    load = os.getloadavg()[0]
    return {
        "machine": f"{os.cpu_count()} × {_processor()}{_gpu()}",
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "load": round(load, 1),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _gpu() -> str:
    if "torch" not in sys.modules:
        return ""
    from torch import cuda

    return f", {cuda.get_device_name()}" if cuda.is_initialized() else ""


def _commit() -> str:
    """The commit, with a + where files differ from it."""

    def git(*words: str) -> str:
        found = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
        return found.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(git("diff", "HEAD"))
