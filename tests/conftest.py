"""Small federations that several tests use."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from torch import Tensor
from torch.fx.experimental import proxy_tensor

from tacit import data
from tacit.privacy import accounting

settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("default" if os.environ.get("TACIT_HUNT") else "same")
"""The same examples everywhere, so that a change is judged by what it changed. `make hunt` draws
new ones: what it finds is pinned by an `@example` beside its test."""

EXACT = ("privacy", "papers", "test_docs.py", "test_cli.py")
"""Tests in which digits of an ε, or of calibrated noise, count."""
coarsely = lru_cache(maxsize=4096)(accounting._spent.__wrapped__)
"""With a memory of its own: what one test computed must not pass for another's."""

described = proxy_tensor.extract_val


def undescribed(value, include_real=False):
    return None if type(value) is Tensor else described(value, include_real)


proxy_tensor.extract_val = undescribed
"""PyTorch describes the result of every traced operation by a fake tensor, with its whole stack of
calls. Nobody here reads that, and it was half of the time of all tests; graphs are the same."""


@pytest.fixture(autouse=True)
def coarse_accounting(request, monkeypatch):
    """Elsewhere the accountant's grid is ten times coarser: still a bound, in a tenth of the time.

    What is calibrated, booked and promised agrees as before, because all of it uses this grid.
    """
    if Path(request.path).relative_to(Path(__file__).parent).parts[0] not in EXACT:
        interval = accounting._interval
        monkeypatch.setattr(accounting, "_interval", lambda *given: 10 * interval(*given))
        monkeypatch.setattr(accounting, "_spent", coarsely)


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
    if kind == "count":
        y = generator.poisson(np.exp(0.5 * score))
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
