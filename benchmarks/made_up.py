"""Tables that nobody has: to choose constants of the last step by, and to try changes on.

A name says what the table is, as in `made-numbers-bent-12-alike`: the target (`numbers`, `yesno`,
`classes`), what it follows (`lines`, `bent`: steps and waves, `nothing`), rows of a task to learn
from, and whether tasks are `alike`, `unlike` (nothing in common) or `between`. Columns are in raw
units of any size. `python benchmarks/tables.py --tables made-numbers-bent-12-alike` measures one;
another seed is another table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tacit
from tacit.data.federation import Kind

TARGETS: dict[str, Kind] = {"numbers": "regression", "yesno": "binary", "classes": "multiclass"}
KINSHIPS = {"alike": 0.1, "between": 0.5, "unlike": 1.0}
"""How much of what a target follows is a task's own."""
TASKS, COLUMNS, CLASSES = 120, 6, 4
TESTED = 30
"""Rows of a task that score."""


def federation(name: str, seed: int, tasks: int = TASKS) -> Any:
    _, target, truth, rows, kinship = name.split("-")
    random, own = np.random.default_rng(seed), KINSHIPS[kinship]
    each = int(rows) + TESTED
    x = random.normal(size=(tasks, each, COLUMNS))
    outputs = CLASSES if target == "classes" else 1
    signal = math.sqrt(1 - own**2) * _signal(truth, x, random, 1, outputs)
    signal = signal + own * _signal(truth, x, random, tasks, outputs)
    level = 0.7 * random.normal(size=(tasks, 1, outputs))
    signal = 2 * signal + level
    if target == "numbers":
        y = 300 + 40 * (signal[..., 0] + 0.7 * random.normal(size=(tasks, each)))
    else:  # a logistic error makes the chance of a class what its score says
        score = np.concatenate([signal, np.zeros_like(signal)], -1) if outputs == 1 else signal
        y = (score + random.gumbel(size=score.shape)).argmax(axis=-1)
    sizes = 10.0 ** random.uniform(-4, 4, size=COLUMNS)
    raw = x * sizes + sizes * 10.0 ** random.uniform(0, 2, size=COLUMNS)
    names = np.repeat(np.arange(tasks), each)
    kind = TARGETS[target]
    share = TESTED / each
    return tacit.data.from_arrays(
        raw.reshape(-1, COLUMNS),
        y.reshape(-1),
        names,
        kind=kind,
        test=share,
        split_seed=seed,
        validation=0.2 * (1 - share),
    )


def _signal(truth: str, x: np.ndarray, random: np.random.Generator, many: int, outputs: int):
    """[tasks, rows, outputs] of about variance one: one for all tasks, or `many`, one for each."""
    size = (many, outputs, COLUMNS)
    if truth == "nothing":
        return np.zeros((*x.shape[:2], outputs))
    if truth == "lines":
        return np.einsum(
            "tnd,tod->tno", x, np.broadcast_to(random.normal(size=size), (len(x), *size[1:]))
        ) / math.sqrt(COLUMNS)
    where, turn = random.normal(size=size), random.uniform(0, 2 * math.pi, size=size)
    seen = x[:, :, None, :]
    steps = np.sign(seen - where[:, None]) * np.sign(np.roll(seen, 1, axis=3) + where[:, None])
    waves = math.sqrt(2) * np.sin(2 * seen + turn[:, None])
    return (steps + waves)[..., :3].sum(axis=3) / math.sqrt(6)
