"""Gradients are those of `torch.func.grad`, and nothing slow is loaded for them or for a run."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tacit.local import slopes

RUN = """
import sys
import numpy as np
import tacit
rng = np.random.default_rng(0)
federation = tacit.data.from_arrays(
    rng.normal(size=(90, 3)), rng.integers(0, 2, 90), np.arange(90) % 6, kind="binary"
)
tacit.train(
    federation, tacit.PMTL(), model="mlp", privacy=tacit.Privacy(epsilon=2.0), rounds=2, seed=0,
    personalise="none", baselines=False,
)
slow = {"torch._dynamo", "dp_accounting", "scipy", "sklearn", "pandas", "matplotlib"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""


@pytest.mark.slow
def test_a_run_loads_no_compiler_and_no_accountant():
    """Each takes about as long to load as such a run takes."""
    subprocess.run([sys.executable, "-c", RUN], check=True)


def test_gradients_are_those_of_torch():
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x.sin() * y).sum(), x

    x, y = torch.linspace(0, 1, 5), torch.linspace(2, 3, 5)
    found, kept = slopes.grad(function, (0, 1), has_aux=True)(x, y)
    assert torch.__dict__.get("_dynamo") is not slopes.STAND_IN
    wanted, _ = torch.func.grad(function, (0, 1), has_aux=True)(x, y)
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert torch.equal(kept, x)
