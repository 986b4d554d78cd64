"""Proportional hazards: one linear score for all intervals, beside a level of each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Hazards(nn.Module):
    """Logarithms of the hazards of all intervals: x'w + step + bias, where the first has no step.

    Cox's model, with a baseline that is constant inside each interval. All zeros to begin with, so
    that all runs start from the same point; the bias is last, as in a linear layer.
    """

    def __init__(self, inputs: int, intervals: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))
        self.steps = nn.Parameter(torch.zeros(intervals - 1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """[n, intervals] for rows [n, …]."""
        level = torch.cat([self.bias, self.bias + self.steps])
        return (x.flatten(1) @ self.weight).unsqueeze(1) + level
