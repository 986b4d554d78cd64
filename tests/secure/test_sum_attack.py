"""All servers but one attack the opened sum; they win only if noise or clipping is missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from papers.common.refute import lower_bound
from tacit.privacy import Poisson, Release, spent
from tacit.privacy.bounds import Bounded, Place
from tacit.privacy.grid import Grid
from tacit.randomness import Randomness
from tacit.secure.jobs.job import InProcess
from tacit.secure.jobs.summing import SeededSum
from tests.privacy.test_channel import RUNS


def scores(noise: float, present: bool, *, share: float, clipped: bool) -> np.ndarray:
    """What all servers but one see of many releases, along the direction of the worst task.

    The attack of `tests/privacy/test_channel.py`, with its cohorts, tasks and number of releases.
    Noise is independent in all numbers, so all releases are made as one sum, side by side.
    """
    randomness, grid = Randomness.of(int(present)), Grid(32, 20)
    everyone = torch.full((4, 3), 0.1)
    everyone[3] = torch.tensor([1e4, -1e4, 1e4])
    bounded = Bounded.of(everyone, 1.0 if clipped else 10.0, None)
    vectors = bounded.vectors(Place(), torch.arange(4)).numpy() * (1 if clipped else 10)
    bound = grid.steps if clipped else 10 * grid.steps
    rows = [
        grid.integers(one) if clipped else np.trunc(one * grid.steps).astype(np.int64)
        for one in vectors
    ]
    within = np.zeros((RUNS, 4), np.int64)
    for run in range(RUNS):
        within[run, Poisson(0.8).draw(4, randomness, run)] = 1
    within[:, 3] *= present
    names = tuple(f"task {k}" for k in range(4))
    one = SeededSum(
        servers=3, clients=names, size=3 * RUNS, bits=32, bound=bound, randomness=randomness,
        noise=share * noise * grid.steps, round=0,
    )  # fmt: skip
    sent = {name: np.outer(within[:, k], rows[k]).reshape(-1) for k, name in enumerate(names)}
    opened = one.combine(InProcess().run(one, sent).opened)
    for index in (1, 2):  # these two know what they drew, and take it off again
        opened = opened - np.rint(one.normal(index) * one.noise).astype(np.int64)
    return opened.reshape(RUNS, 3) @ np.array([1.0, -1.0, 1.0]) / math.sqrt(3) / grid.steps


def attack(noise: float, *, share: float = 1.0, clipped: bool = True) -> tuple[float, float]:
    """The promised ε of one release, and the ε that all servers but one prove."""
    seen = [scores(noise, present, share=share, clipped=clipped) for present in (True, False)]
    promised = spent({Release(Poisson(0.8), noise): 1}, 1e-3, "add-remove").epsilon
    return promised, lower_bound(*seen, 1e-3)


def test_attack_the_opened_sum_with_all_servers_but_one():
    promised, proved = attack(noise=1.0)
    assert 0.3 * promised < proved <= promised  # strong enough to be worth failing


@pytest.mark.parametrize("broken", [{"share": 0.5}, {"clipped": False}], ids=["noise", "clip"])
def test_attack_succeeds_with_half_the_noise_or_without_clipping(broken):
    promised, proved = attack(noise=1.0, **broken)
    assert proved > promised
