"""The same code on an accelerator: same cohorts, same batches, same models to float tolerance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit import PMTL, FedAvg, Local
from tacit.engine.course import Course
from tacit.engine.foresight import Foresight
from tacit.experiment.train import train
from tacit.methods import Mixed
from tests.interference.harness import CHANGES, Setting, noticed, table
from tests.interference.networks import made

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def both(federation, method, **settings):
    settings = {
        "rounds": 4,
        "cohort": 0.6,
        "seed": 0,
        "baselines": False,
        "personalise": "none",
    } | settings
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
@pytest.mark.parametrize("privacy", [None, tacit.Privacy(noise=1.0)])
def test_mixed_models_agree_between_cpu_and_gpu(privacy):
    federation = tacit.data.load("personal-shift", tasks=60, rows=10)
    cpu, gpu = both(federation, Mixed(), privacy=privacy, cohort=1.0, rounds=6)
    assert torch.allclose(cpu, gpu, atol=1e-3)


@needs_cuda
def test_convolutions_agree_between_cpu_and_gpu():
    federation = tacit.data.load("digits", writers=10)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(72, 10),
    )  # fmt: skip
    cpu, gpu = both(federation, PMTL(batch=16), model=module)
    assert (cpu - gpu).norm() < 1e-2 * cpu.norm()


@needs_cuda
def test_the_channel_clips_and_noises_alike_on_cpu_and_gpu():
    from tacit.privacy import Channel, Everyone, Release
    from tacit.randomness import Randomness

    generator = torch.Generator().manual_seed(0)
    contributions = 10 * torch.randn(64, 1000, generator=generator)
    contributions[3, 5] = float("nan")
    released = []
    for device in ("cpu", "cuda"):
        release = Release(Everyone(), 2.0)
        channel = Channel(Everyone(), 64, Randomness.of(1), clip=0.5, release=release)
        collection = channel.open(0, 1)
        collection.add(contributions.to(device))
        released.append(collection.publishable(1000).cpu())
        assert channel.dropped == 1
        assert len(channel.ledger) == 1
    assert torch.allclose(*released, atol=1e-5)


@needs_cuda
@pytest.mark.parametrize("method", [PMTL(batch=8), FedAvg(batch=None)])
def test_recorded_steps_agree_with_the_cpu(method):
    """Enough rounds that the client step is recorded and replayed, then the last step too."""
    federation = tacit.data.load("digits", writers=10)
    runs = [
        train(
            federation, method, model="mlp", rounds=12, seed=0, device=device, baselines=True
        )
        for device in ("cpu", "cuda")
    ]  # fmt: skip
    every = torch.arange(10)
    cpu, gpu = (run.simulation.personal(every.to(run.simulation.device))[0].cpu() for run in runs)
    assert torch.allclose(cpu, gpu, atol=1e-3)
    alone = [run.baselines["local"].overall["loss"] for run in runs]
    assert alone[0] == pytest.approx(alone[1], rel=1e-2)
    same = [a == b for a, b in zip(*(run.personalised.chosen for run in runs), strict=True)]
    assert sum(same) >= 8  # a tie may fall either way


@needs_cuda
@pytest.mark.parametrize("units", ["own", "common"])
def test_whoever_comes_next_may_be_looked_at_before(units, monkeypatch):
    """Cohorts and rows are the same, and each cohort is drawn once."""
    rng, who = np.random.default_rng(0), np.repeat(np.arange(50), 20)
    x = 3 + rng.normal(size=(1000, 4))
    federation = tacit.data.from_arrays(x, x.sum(axis=1) + who % 3, who, kind="regression")
    ends, drawn = [], []
    draw, look = Course.cohort, Foresight.look

    def noted(course: Course, round: int) -> torch.Tensor:
        drawn.append(round)
        return draw(course, round)

    monkeypatch.setattr(Course, "cohort", noted)
    for ahead in (look, lambda *of: None):
        monkeypatch.setattr(Foresight, "look", ahead)
        run = train(
            federation, PMTL(batch=8, units=units), privacy=tacit.Privacy(noise=1.0), rounds=9,
            cohort=0.6, seed=0, device="cuda", baselines=False, personalise="none",
        )  # fmt: skip
        ends.append(run.simulation.personal(torch.arange(50, device="cuda"))[0])
        assert drawn == list(range(9))
        drawn.clear()
    assert torch.equal(ends[0], ends[1])


@needs_cuda
def test_masks_follow_their_key_also_when_they_are_recorded():
    from torch.fx.experimental.proxy_tensor import make_fx

    from tacit.local.dropout import dropped, own_chance
    from tacit.local.replay import Replay

    def function(x, key):
        with own_chance(key):
            return [dropped(torch.nn.functional.dropout, x)]

    x, keys = torch.ones(64, device="cuda"), torch.arange(6, device="cuda")
    replay = Replay(make_fx(function)(x, keys[0]))
    seen = [replay(x, key)[0] for key in (*keys, keys[0])]
    assert replay._record is not None, replay.refused
    assert torch.equal(seen[0], seen[-1])
    assert len({tuple(mask.tolist()) for mask in seen}) == 6


@needs_cuda
@pytest.mark.parametrize("network", ["mlp", "curved", "dropout", "cnn", "statistics"])
@pytest.mark.parametrize("batch", [6, None])
def test_no_other_task_notices_on_a_gpu_either(network, batch):
    module, shape = made(network)
    before = table("multiclass", shape=shape)
    for change in ("many rows more", "another place in the file"):
        after = CHANGES[change](*before)
        pair = (tacit.data.from_arrays(*each, kind="multiclass") for each in (before, after))
        setting = Setting(
            PMTL(batch=batch, local_steps=2), module, device="cuda", last_step=network == "mlp"
        )
        assert noticed(*pair, setting) == []
