"""A plain loop in PyTorch: one module, `torch.optim.SGD`, one task after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from in_torch import accuracy, loss_of, module_for
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from works import BATCH, NOISE, RATE, Rows, Work, drawn, noise_for, peer, split


def train(name: str, work: Work, rows: Rows, tick: Callable[[], None]) -> float:
    learned, tests = split(rows)
    rng, module = np.random.default_rng(0), module_for(name, rows.x.shape[1])
    noise = noise_for(work.rounds) if name == "table" else NOISE
    shared = parameters_to_vector(module.parameters()).detach()
    for _ in range(work.rounds):
        total = torch.zeros_like(shared)
        for task in rng.choice(work.tasks, work.cohort, replace=False):
            vector_to_parameters(shared.clone(), module.parameters())
            optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
            order = drawn(learned[task], rng)
            x, y = (torch.from_numpy(side[order]) for side in learned[task])
            for some, target in zip(x.split(BATCH), y.split(BATCH), strict=True):
                optimiser.zero_grad()
                loss_of(name, module(some), target).backward()
                optimiser.step()
            sent = parameters_to_vector(module.parameters()).detach() - shared
            total += sent * min(1.0, work.clip / float(sent.norm()))
        total += torch.randn_like(total) * noise * work.clip
        shared = shared + total / work.cohort
        tick()
    vector_to_parameters(shared, module.parameters())
    return accuracy(name, module, tests)


if __name__ == "__main__":
    peer(train)
