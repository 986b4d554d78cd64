"""What is recorded does what the function does, on other numbers, and knows nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.func import grad

from tacit import TacitError
from tacit.local.together import Together, fixed


def odd(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Several results of an operation, a fresh constant that is written to, views, lists."""
    made = torch.tensor([1.0, 2.0, 3.0])
    made.add_(x)
    values, vectors = torch.linalg.eigh(torch.outer(made, made) + torch.eye(3))
    first, second = torch.stack([values, vectors[0].abs()]).unbind()
    return {"one": first * y + second[[0, 2, 1]], "other": torch.where(x > 0, x, y).cumsum(0)}


def test_a_record_does_what_the_function_does():
    record = fixed(odd, torch.zeros(3), torch.zeros(()))
    torch.manual_seed(0)
    for _ in range(3):  # what is written to must not be remembered
        x, y = torch.randn(3), torch.randn(())
        expected = odd(x, y)
        found = record(x, y)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_gradients_of_many_tasks_are_recorded_as_they_are():
    slope = grad(lambda w, x, y: ((x @ w - y) ** 2).mean())
    together = Together(lambda y, own: slope(own[0], own[1], y))
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        y = torch.randn(4, generator=generator)
        own = torch.randn(16, 3, generator=generator), torch.randn(16, 4, 3, generator=generator)
        assert torch.equal(together(y, own), together.rehearse(y, own))


def test_a_constant_from_outside_is_part_of_the_record():
    outside = torch.arange(3.0)
    record = fixed(lambda x: [x + outside], torch.zeros(3))
    assert torch.equal(record(torch.ones(3))[0], torch.arange(1.0, 4.0))


@pytest.mark.parametrize(
    "reads",
    [lambda x: [x * float(x.sum())], lambda x: [x if x.sum() > 0 else -x]],
    ids=["float", "if"],
)
def test_numbers_of_blank_tensors_are_not_read(reads):
    with pytest.raises(TacitError, match="a number is read off a tensor"):
        fixed(reads, torch.zeros(3))


@pytest.mark.slow
def test_a_run_of_exact_solves_loads_no_compiler():
    code = """
import sys, numpy as np, tacit
site = np.repeat(np.arange(20), 8)
x = np.random.default_rng(0).normal(size=(160, 3))
federation = tacit.data.from_arrays(x, x[:, 0], site, kind="regression")
tacit.train(federation, "mixed", privacy=tacit.Privacy(epsilon=1.0), seed=0, baselines=False,
            personalise="none")
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
