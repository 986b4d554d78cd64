"""The same code on an accelerator: same cohorts, same batches, same models to float tolerance."""

from __future__ import annotations

import pytest
import torch

import tacit
from tacit import PMTL, FedAvg, Local
from tacit.runtime.train import train

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def both(federation, method, **settings):
    settings = {"rounds": 4, "cohort": 0.6, "seed": 0, "baselines": False} | settings
    runs = [train(federation, method, device=device, **settings) for device in ("cpu", "cuda")]
    every = torch.arange(len(federation))
    return [run.simulation.personal(every.to(run.simulation.device))[0].cpu() for run in runs]


@needs_cuda
@pytest.mark.parametrize("method", [PMTL(batch=8), FedAvg(batch=8), Local(batch=None)])
def test_linear_models_agree_between_cpu_and_gpu(method):
    federation = tacit.data.load("personal-shift", tasks=50, rows=20)
    cpu, gpu = both(federation, method)
    assert torch.allclose(cpu, gpu, atol=1e-4)


@needs_cuda
def test_convolutions_agree_between_cpu_and_gpu():
    federation = tacit.data.load("digits", writers=10)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(72, 10),
    )  # fmt: skip
    cpu, gpu = both(federation, PMTL(batch=16), model=module)
    assert (cpu - gpu).norm() < 1e-2 * cpu.norm()
