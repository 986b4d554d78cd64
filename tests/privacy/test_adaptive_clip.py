"""The adaptive clip follows the quantile from both sides, and its bits are paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tacit
from tacit.privacy import Everyone, Release
from tacit.privacy.bounds import BITS_SHARE
from tacit.privacy.channel import Channel
from tacit.randomness import Randomness


def channel(noise: float, clip: float, quantile: float, tasks: int = 1000, seed: int = 0):
    sampler = Everyone()
    return Channel(
        sampler, tasks, Randomness.of(seed), clip=clip, release=Release(sampler, noise),
        quantile=quantile,
    )  # fmt: skip


@pytest.mark.parametrize("start", [0.01, 100.0])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9])
def test_the_clip_finds_the_quantile_from_below_and_from_above(start, quantile):
    norms = torch.linspace(1.0, 3.0, 1000).unsqueeze(1)
    one = channel(1.0, start, quantile)
    for number in range(200):
        collection = one.open(number, 200)
        collection.add(norms)
        collection.publishable(1)
    assert one.clip == pytest.approx(1 + 2 * quantile, abs=0.15)


def test_update_and_bits_together_cost_one_release():
    """Inverse variances, each in units of its own sensitivity, add up to that of what is booked."""
    z, clip, draws = 2.0, 0.7, 4000
    updates, bits = [], []
    for seed in range(draws):
        one = channel(z, clip, 0.5, tasks=4, seed=seed)
        collection = one.open(0, 1)
        collection.add(torch.zeros(4, 1))
        updates.append(float(collection.publishable(1)) * 4)
        moved = (
            math.log(one.clip / clip) / -0.2 + 0.5
        )  # the noisy share within the clip, cut to 0..1
        bits.append(moved)
    update = np.std(updates) / clip
    assert update == pytest.approx(z / math.sqrt(1 - BITS_SHARE), rel=0.05)
    # The share is 1 (all four within) plus noise z/(2√s)/4, cut at 0 and 1.
    wide = np.random.default_rng(0).normal(1.0, z / (2 * math.sqrt(BITS_SHARE)) / 4, 100_000)
    assert np.mean(bits) == pytest.approx(np.clip(wide, 0, 1).mean(), abs=0.03)
    bit = z / (2 * math.sqrt(BITS_SHARE)) / 0.5
    assert 1 / (z / math.sqrt(1 - BITS_SHARE)) ** 2 + 1 / bit**2 == pytest.approx(1 / z**2)


@pytest.mark.slow
def test_a_run_books_the_clip_of_each_release_and_costs_no_more(make_federation):
    plain = {"rounds": 12, "seed": 0, "baselines": False, "personalise": "none"}
    private = {"privacy": tacit.Privacy(noise=0.5), **plain}
    fixed = tacit.train(make_federation(), tacit.PMTL(clip=1e-3), **private)
    moving = tacit.train(make_federation(), tacit.PMTL(clip=1e-3, clip_quantile=0.5), **private)
    clips = [entry["clip"] for entry in moving.simulation.channel.ledger.entries]
    assert clips[0] == 1e-3 and clips[-1] > 1.5e-3  # far too small: it must grow
    assert moving.guarantee.epsilon == fixed.guarantee.epsilon


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_clip(make_federation, tmp_path):
    from tests.methods.test_publishing import Interrupting

    settings = {
        "privacy": tacit.Privacy(noise=0.5), "rounds": 8, "seed": 0, "baselines": False,
        "personalise": "none",
    }  # fmt: skip
    method = tacit.PMTL(clip=1e-3, clip_quantile=0.5)
    whole = tacit.train(make_federation(), method, **settings)
    with pytest.raises(KeyboardInterrupt):
        tacit.train(make_federation(), method, out=tmp_path, progress=Interrupting(), **settings)
    again = tacit.train(make_federation(), method, out=tmp_path, resume=True, **settings)
    assert again.simulation.channel.clip == whole.simulation.channel.clip
    assert torch.equal(again.simulation.board["mean"], whole.simulation.board["mean"])


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1])
def test_a_quantile_lies_between_0_and_1(bad):
    with pytest.raises(tacit.TacitError, match="clip_quantile must be"):
        tacit.PMTL(clip_quantile=bad)
