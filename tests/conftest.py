"""Small federations that several tests use."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import data


def arrays(tasks: int, features: int, kind: str, seed: int = 0, rows=(6, 30)):
    """Ragged tasks around common weights."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(*rows, size=tasks)
    names = np.repeat([f"task-{k}" for k in range(tasks)], counts)
    x = generator.normal(size=(counts.sum(), features)).astype(np.float32)
    common = generator.normal(size=features)
    own = np.repeat(common + 0.5 * generator.normal(size=(tasks, features)), counts, axis=0)
    score = (x * own).sum(axis=1) + 0.3 * generator.normal(size=len(x))
    y = score if kind == "regression" else (score > 0).astype(np.float32)
    if kind == "multiclass":
        y = np.digitize(score, [-0.5, 0.5])
    return x, y, names


@pytest.fixture
def make_federation():
    """`make_federation(tasks=…, kind=…)`: unscaled, split in the default way."""

    def make(tasks=12, features=4, kind="regression", seed=0, **options):
        x, y, names = arrays(tasks, features, kind, seed)
        settings = {"scale": "none", "target_scale": "none", "kind": kind} | options
        return data.from_arrays(x, y, names, **settings)

    return make
