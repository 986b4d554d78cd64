"""What `tacit forecast` says of open tables before their rows are seen, and what runs then gain.

A forecast is told public facts (tasks, columns, kind of target) and the median rows of a task; the
run is `tacit.train` with nothing set by hand, beside the best that each task could do alone on the
same rows. Gain: by how much the pooled relative squared error, or log loss, is lower. Signs agree
where both or neither say that taking part helps, which means by more than 1 %.

    TACIT_DATA=DIR python benchmarks/forecast.py [--tables verbagg,school] [--plot forecast.svg]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import mixed

import tacit
from tacit.data.federation import Federation
from tacit.engine.progress import silent

EPSILONS = (1.0, 2.0, 8.0)


def federation(name: str, seed: int) -> Federation:
    return tacit.data.load(name) if name == "digits" else mixed.federation(name, seed)


def score(overall: dict[str, Any]) -> float:
    return overall["nmse_pooled"] if "nmse_pooled" in overall else overall["loss"]


def obtain(found: Federation, epsilon: float, seed: int) -> float:
    """How much lower the error is than that of the best alone."""
    run = tacit.train(found, privacy=tacit.Privacy(epsilon=epsilon), seed=seed, progress=silent)
    return 1 - score(run.measured.overall) / score(run.baselines["local"].overall)


def facts(found: Federation) -> dict[str, Any]:
    """What a forecast is told."""
    rows = int(found.train.counts.median())
    public = {"tasks": len(found), "features": found.train.x[0].numel(), "kind": found.kind}
    return public | {"rows": rows, "classes": found.outputs}
