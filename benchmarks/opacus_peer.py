"""Opacus at the same work as `persons_speed.py`, in an environment of its own.

Answers every line that it reads with the seconds of one step, on the clock and of processors:
gradients of all rows, each clipped, summed, noised and taken. `hooks` is its default (every row's
gradient is made), `ghost` its fast gradient clipping (two passes backwards, none is made).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import sys
import time

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn


def main() -> None:
    mode, rows, columns, clip, at_once, threads = sys.argv[1], *map(float, sys.argv[2:7])
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    x, y = torch.randn(int(rows), int(columns)), (torch.rand(int(rows)) < 0.5).float()
    network = nn.Sequential(
        nn.Linear(int(columns), 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    settings = {"noise_multiplier": 1.0, "max_grad_norm": clip, "expected_batch_size": int(rows)}
    if mode == "ghost":
        module = GradSampleModuleFastGradientClipping(
            network, max_grad_norm=clip, use_ghost_clipping=True
        )
        optimizer = DPOptimizerFastGradientClipping(sgd, **settings)
        criterion = nn.BCEWithLogitsLoss(reduction="mean")
        loss_of = DPLossFastGradientClipping(module, optimizer, criterion, "mean")
    else:
        module = GradSampleModule(network)
        optimizer, loss_of = DPOptimizer(sgd, **settings), nn.BCEWithLogitsLoss(reduction="mean")
    parts = list(zip(x.split(int(at_once)), y.split(int(at_once)), strict=True))

    def step() -> None:
        """Parts of the rows one after the other, as its BatchMemoryManager does."""
        for number, (some, wanted) in enumerate(parts):
            optimizer.zero_grad()
            optimizer.signal_skip_step(do_skip=number + 1 < len(parts))
            loss_of(module(some).squeeze(1), wanted).backward()
            optimizer.step()

    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin, busy = time.perf_counter(), time.process_time()
        step()
        print(time.perf_counter() - begin, time.process_time() - busy, flush=True)


if __name__ == "__main__":
    main()
