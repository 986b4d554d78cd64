"""Small federations whose tasks hold different heads."""

from __future__ import annotations

import numpy as np

import tacit

GROUPS = {"first": ["a", "b"], "second": ["c"], "third": ["d"]}
SETS = [["first"], ["first", "second"], ["second", "third"]]


def headed(tasks: int = 6, seed: int = 0, **options) -> tacit.Federation:
    """Tasks that hold one or two of three heads, with two labels, one and one."""
    generator = np.random.default_rng(seed)
    names = np.repeat([f"task-{k}" for k in range(tasks)], generator.integers(8, 20, size=tasks))
    x = generator.normal(size=(len(names), 5)).astype(np.float32)
    truth = generator.normal(size=(5, 4))
    y = (x @ truth + 0.3 * generator.normal(size=(len(x), 4)) > 0).astype(np.float32)
    settings = {"kind": "multilabel", "labels": ["a", "b", "c", "d"], "scale": "none"} | options
    made = tacit.data.from_arrays(x, y, names, **settings)
    return made.with_heads(GROUPS, {f"task-{k}": SETS[k % 3] for k in range(tasks)})
