"""What a task of a mixed model ends with, where its rows are few."""

from __future__ import annotations

import math

import torch

from tacit.local.settled import settled

SHARED = torch.tensor([0.0, math.log(8.0)])
"""Everybody's counts are about eight, at all times."""


def ends(times: list[float], counts: list[float]) -> torch.Tensor:
    x = torch.tensor([[time, 1.0] for time in times])
    rows = x, torch.tensor(counts), torch.ones(len(times))
    return settled("count", rows, SHARED, 0.3 * torch.eye(2)[:, 1:], torch.tensor(1.0))


def expected(weights: torch.Tensor, time: float) -> float:
    return float((weights @ torch.tensor([time, 1.0])).exp())


def test_two_counts_far_apart_are_not_taken_for_a_slope() -> None:
    """23 after 1 would be over five hundred in two more times, were counts never more unequal than
    Poisson's."""
    assert expected(ends([-1.0, 0.0], [1.0, 23.0]), 2.0) < 100


def test_many_counts_that_grow_are() -> None:
    times = torch.linspace(-1, 1, 40)
    found = ends(times.tolist(), (10 * (1.5 * times).exp()).round().tolist())
    assert abs(float(found[0]) - 1.5) < 0.15
    assert abs(expected(found, 0.0) / 10 - 1) < 0.1
