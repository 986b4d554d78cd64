"""Methods against closed forms and plain per-task PyTorch loops."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tacit
from tacit import PMTL, FedAvg, Local, TacitError
from tacit.experiment.train import train
from tacit.local.batches import all_rows, draw
from tacit.methods import Board
from tacit.randomness import Randomness, scramble


@pytest.mark.slow
def test_pmtl_converges_to_the_minimiser_of_the_objective(make_federation):
    """Noise and clip off, all tasks, full batches: compare with the solved linear system."""
    federation, pull = make_federation(tasks=9, features=3), 0.7
    run = train(
        federation,
        PMTL(pull=pull, lr=0.05, local_steps=5, batch=None, clip=math.inf),
        rounds=2500,
        seed=0,
        baselines=False,
        personalise="none",
    )
    tasks, size = len(federation), 4
    # gradient of task k at 0: 2/n X'(X w - y) + λ (w - mean of all w) = 0, for all k together
    system, right = np.zeros((tasks * size, tasks * size)), np.zeros(tasks * size)
    for k in range(tasks):
        x, y = (part.double().numpy() for part in federation.train.of(k))
        x = np.hstack([x, np.ones((len(x), 1))])
        own = slice(k * size, (k + 1) * size)
        system[own, own] += 2 * x.T @ x / len(x) + pull * np.eye(size)
        right[own] = 2 * x.T @ y / len(x)
        for j in range(tasks):
            system[own, j * size : (j + 1) * size] -= pull * np.eye(size) / tasks
    expected = np.linalg.solve(system, right).reshape(tasks, size)
    found, _ = run.simulation.personal(torch.arange(tasks))
    assert np.linalg.norm(found.numpy() - expected) < 1e-4 * np.linalg.norm(expected)
    mean = run.simulation.board["mean"].numpy()
    assert np.linalg.norm(mean - expected.mean(0)) < 1e-4 * np.linalg.norm(expected.mean(0))


def small_cnn(outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 16, outputs),
    )  # fmt: skip


def _poisson(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Poisson's loss, straight where the expected count is beyond e (y + 1)."""
    most = math.e * (y + 1)
    straight = most * (1 + out - most.log()) - y * out
    plain = F.poisson_nll_loss(out, y, reduction="none")
    return torch.where(out.exp() > most, straight, plain).mean()


def plain_loop(federation, module, method, rounds, clip):
    """PMTL or FedAvg once more, one task after another, with autograd and nothing of tacit's."""
    losses = {
        "regression": lambda out, y: F.mse_loss(out.squeeze(1), y),
        "binary": lambda out, y: F.binary_cross_entropy_with_logits(out.squeeze(1), y),
        "count": lambda out, y: _poisson(out.squeeze(1), y),
        "multiclass": F.cross_entropy,
    }
    loss = losses[federation.kind]
    tasks, randomness = len(federation), Randomness.of(0)
    mean = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    personal = [mean.clone() for _ in range(tasks)]
    for round in range(rounds):
        update = torch.zeros_like(mean)
        for k in range(tasks):
            key = scramble(randomness.key("batches", round), federation.keys[k : k + 1])
            one, rows = torch.tensor([k]), federation.train
            if method.batch is None:
                batches = all_rows(rows, one, int(rows.counts[k]), method.steps)
            else:
                batches = draw(rows, one, method.steps, method.batch, key)
            model = copy.deepcopy(module)
            start = personal[k] if isinstance(method, PMTL) else mean
            nn.utils.vector_to_parameters(start.clone(), model.parameters())
            for step in range(method.steps):
                kept = batches.weight[0, step] > 0
                x, y = batches.x[0, step][kept], batches.y[0, step][kept]
                model.zero_grad()
                loss(model(x), y).backward()
                with torch.no_grad():
                    now = nn.utils.parameters_to_vector(model.parameters())
                    slope = nn.utils.parameters_to_vector(p.grad for p in model.parameters())
                    if isinstance(method, PMTL):
                        slope = slope + method.pull * (now - mean)
                    nn.utils.vector_to_parameters(now - method.lr * slope, model.parameters())
            after = nn.utils.parameters_to_vector(model.parameters()).detach()
            previous = isinstance(method, PMTL) and method.update == "from-previous"
            moved = after - (personal[k] if previous else mean)
            update += moved * min(1.0, clip / float(moved.norm()))
            personal[k] = after.clone()
        mean = mean + update / tasks
    return mean, torch.stack(personal)


@pytest.mark.parametrize("kind", ["regression", "count", "binary", "multiclass"])
@pytest.mark.parametrize(
    "method",
    [
        PMTL(pull=0.5, clip=0.3, batch=8, local_steps=3),
        PMTL(pull=0.5, clip=0.3, batch=8, local_steps=3, update="from-previous"),
        FedAvg(clip=0.3, batch=8, local_steps=3),
    ],
    ids=["pmtl", "pmtl-previous", "fedavg"],
)
def test_vectorised_training_equals_a_plain_loop(make_federation, kind, method):
    federation = make_federation(kind=kind)
    module = nn.Linear(4, federation.outputs)
    privacy = tacit.Privacy(noise=0.0)  # clips, adds nothing
    run = train(
        federation,
        method,
        model=module,
        privacy=privacy,
        rounds=4,
        seed=0,
        baselines=False,
        personalise="none",
    )
    mean, personal = plain_loop(federation, module, method, 4, method.clip)
    published = next(iter(run.simulation.board.tensors.values()))
    assert torch.allclose(published, mean, atol=2e-5)
    if isinstance(method, PMTL):
        found, _ = run.simulation.personal(torch.arange(len(federation)))
        assert torch.allclose(found, personal, atol=2e-5)


def test_vectorised_convolutions_equal_a_plain_loop():
    federation = tacit.data.load("digits", writers=6)
    if len(federation.input_shape) == 1:
        pytest.fail("digits must be images")
    module, method = small_cnn(10), PMTL(pull=0.5, clip=0.5, batch=16, local_steps=3)
    run = train(
        federation, method, model=module, privacy=tacit.Privacy(noise=0.0), rounds=2, seed=0,
        baselines=False,
        personalise="none",
    )  # fmt: skip
    mean, personal = plain_loop(federation, module, method, 2, method.clip)
    assert torch.allclose(run.simulation.board["mean"], mean, atol=2e-5)
    found, _ = run.simulation.personal(torch.arange(len(federation)))
    assert torch.allclose(found, personal, atol=5e-5)


def test_the_size_of_a_chunk_changes_nothing(make_federation, monkeypatch):

    federation = make_federation(kind="binary")

    def models():
        run = train(
            federation,
            PMTL(batch=8),
            rounds=3,
            seed=1,
            cohort=0.7,
            baselines=False,
            personalise="none",
        )
        return run.simulation.personal(torch.arange(len(federation)))[0]

    together = models()
    monkeypatch.setattr("tacit.local.chunks.CPU_CHUNK_BYTES", 1)  # one task at a time
    assert torch.allclose(models(), together, atol=1e-6)


def test_tracing_changes_nothing(make_federation, monkeypatch):
    from tacit.engine import course

    federation, method = make_federation(kind="binary"), PMTL(batch=8)

    def models():
        run = train(
            federation, method, rounds=3, seed=1, cohort=0.7, baselines=False, personalise="none"
        )
        return run.simulation.personal(torch.arange(len(federation)))[0]

    traced = models()
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)
    assert torch.allclose(models(), traced, atol=1e-6)


@pytest.mark.slow
def test_alone_equals_its_own_gradient_descent_and_ignores_the_others(make_federation):
    federation = make_federation()
    run = train(
        federation,
        Local(lr=0.05, batch=None),
        rounds=2000,
        seed=0,
        baselines=False,
        personalise="none",
    )
    for k in range(3):
        x, y = (part.numpy() for part in federation.train.of(k))
        x = np.hstack([x, np.ones((len(x), 1))])
        if len(x) <= x.shape[1]:
            continue
        best = np.linalg.lstsq(x, y, rcond=None)[0]
        found, _ = run.simulation.personal(torch.tensor([k]))
        assert np.allclose(found[0].numpy(), best, atol=1e-2)
    assert run.guarantee.epsilon == 0
    assert len(run.simulation.channel.ledger) == 0


def test_shrink_keeps_alone_near_the_start(make_federation):
    federation = make_federation()

    def norm(shrink):
        run = train(
            federation, Local(shrink=shrink), rounds=50, seed=0, baselines=False, personalise="none"
        )
        return float(run.simulation.personal(torch.arange(len(federation)))[0].norm())

    assert norm(5.0) < 0.5 * norm(0.0)


def test_step_size_halves():
    method = FedAvg(lr=0.8, halve_every=10)
    rates = [float(method.rate(Board({}, round))) for round in (0, 9, 10, 25)]
    assert rates == [0.8, 0.8, 0.4, 0.2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PMTL(lr=0.0), "lr must be"),
        (lambda: PMTL(local_steps=0), "local_steps must be"),
        (lambda: PMTL(batch=0), "batch must be"),
        (lambda: PMTL(clip=-1.0), "clip must be"),
        (lambda: PMTL(clip=math.nan), "clip must be"),
        (lambda: PMTL(pull=-0.1), "pull must be"),
        (lambda: PMTL(update="sideways"), "update must be"),
        (lambda: Local(shrink=-1.0), "shrink must be"),
        (lambda: FedAvg(halve_every=0), "halve_every must be"),
    ],
)
def test_bad_settings_are_refused_by_name(make, words):
    with pytest.raises(TacitError, match=words):
        make()


def test_a_method_of_the_table_is_a_name_of_the_package(monkeypatch):
    """So a new one is two files: its own, and its line in the table."""

    class Newest(FedAvg):
        pass

    monkeypatch.setitem(tacit.methods.METHODS, "newest", Newest)
    try:
        assert tacit.Newest is Newest and "Newest" in dir(tacit)
        with pytest.raises(AttributeError, match="no attribute 'Newesd'"):
            _ = tacit.Newesd
    finally:
        del tacit.Newest
