"""What Flower runs for a task, in a module of its own: Ray's workers import it by name."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient
from in_torch import loss_of, module_for
from works import BATCH, RATE, WORKS, drawn, made, split


@functools.cache
def learned(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Once in each of Ray's workers."""
    return split(made(name, WORKS[name].tasks))[0]


class Task(NumPyClient):
    def __init__(self, name: str, number: int) -> None:
        self.name, self.rows = name, learned(name)[number]

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple:
        module = module_for(self.name, self.rows[0].shape[1])
        with torch.no_grad():
            for own, given in zip(module.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(given))
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        order = drawn(self.rows, np.random.default_rng())
        x, y = (torch.from_numpy(side[order]) for side in self.rows)
        for some, target in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimiser.zero_grad()
            loss_of(self.name, module(some), target).backward()
            optimiser.step()
        return [own.detach().numpy() for own in module.parameters()], 1, {}
