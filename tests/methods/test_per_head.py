"""On the billboard a head is averaged over the tasks that work on it, everything else over all."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tacit
from tacit import Ditto, FedAvg, FedProx, PFedMe, Privacy
from tacit.data.heads import PUBLIC
from tacit.engine import course
from tests.exchange.federations import headed

SGD = {"lr": 0.2, "local_steps": 2, "batch": None}
METHODS = [
    FedAvg(**SGD),
    FedProx(**SGD, pull=0.5),
    PFedMe(**SGD, pull=2.0, inner_steps=2, server_rate=0.7),
    Ditto(**SGD, pull=0.5),
]
NAMES = [type(method).__name__ for method in METHODS]


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """Tracing pays in long runs only; that it changes nothing is tested elsewhere."""
    monkeypatch.setattr(course, "TRACED_GRADIENTS", 0)


@pytest.fixture(scope="module")
def federation():
    return headed()


def quick(federation, method, **given):
    plain = {"rounds": 2, "seed": 0, "baselines": False, "personalise": "none", "model": "mlp"}
    return tacit.train(federation, method, **(plain | given))


def slope(module: nn.Module, w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of the mean over rows of the mean log loss of the labels that are there, by autograd."""
    module = copy.deepcopy(module)
    nn.utils.vector_to_parameters(w.clone(), module.parameters())
    out, known = module(x), ~y.isnan()
    loss = torch.stack(
        [
            F.binary_cross_entropy_with_logits(out[row][known[row]], y[row][known[row]])
            for row in range(len(x))
        ]
    ).mean()
    loss.backward()
    return nn.utils.parameters_to_vector(p.grad for p in module.parameters())


def client(method, module, board, theta, x, y) -> tuple[torch.Tensor, torch.Tensor]:
    """What a task sends, and its proximal point for pFedMe."""
    w = board.clone()
    for _ in range(method.local_steps):
        if isinstance(method, PFedMe):
            for _ in range(method.inner_steps):
                pulled = slope(module, theta, x, y) + method.pull * (theta - w)
                theta = theta - method.inner_lr * pulled
            w = w - method.lr * method.pull * (w - theta)
        else:
            pull = method.pull if isinstance(method, FedProx) else 0.0
            w = w - method.lr * (slope(module, w, x, y) + pull * (w - board))
    return w - board, theta


def plain_board(federation, run, method, clip: float) -> torch.Tensor:
    model, heads = run.simulation.model, federation.heads
    module = model.module(model.start, model.buffers)
    board, thetas = model.start.clone(), [model.start.clone() for _ in range(len(federation))]
    for _ in range(2):
        sent = []
        for k in range(len(federation)):
            moved, thetas[k] = client(method, module, board, thetas[k], *federation.train.of(k))
            for head, part in enumerate(model.parts[1:]):
                if heads.names[head] not in heads.of(k):
                    moved[part] = 0.0
            sent.append(moved * min(1.0, clip / float(moved.norm())))
        after = board.clone()
        rate = method.server_rate if isinstance(method, PFedMe) else 1.0
        after[model.parts[0]] += rate * sum(v[model.parts[0]] for v in sent) / len(sent)
        for head, part in enumerate(model.parts[1:]):
            holders = [k for k in range(len(sent)) if heads.names[head] in heads.of(k)]
            after[part] += rate * sum(sent[k][part] for k in holders) / len(holders)
        board = after
    return board


@pytest.mark.parametrize("clip", [math.inf, 0.1], ids=["free", "clipped"])
@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_the_board_moves_by_the_mean_over_holders(federation, method, clip):
    if math.isfinite(clip):
        method = dataclasses.replace(method, clip=clip)
    privacy = Privacy(noise=0.0) if math.isfinite(clip) else None  # clips, adds nothing
    run = quick(federation, method, privacy=privacy)
    expected = plain_board(federation, run, method, clip)
    found = run.simulation.board["model"]
    assert torch.allclose(found, expected, atol=2e-5 if math.isfinite(clip) else 2e-6)
    assert not torch.allclose(found, run.simulation.model.start, atol=1e-3)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_a_head_that_nobody_holds_stays_exactly_as_it_was(method):
    made = headed()
    groups = {"first": ["a", "b"], "second": ["c"], "nobody": ["d"]}
    plain = tacit.data.from_arrays(
        made.train.x, (made.train.x[:, :4] > 0).float(),
        np.repeat(made.names, made.train.counts), kind="multilabel", labels=list("abcd"),
        scale="none",
    )  # fmt: skip
    federation = plain.with_heads(groups, dict.fromkeys(plain.names, ("first", "second")))
    run = quick(federation, method)
    model, board = run.simulation.model, run.simulation.board["model"]
    last = model.parts[-1]
    assert torch.equal(board[last], model.start[last]) and board.isfinite().all()
    assert not torch.equal(board[model.parts[1]], model.start[model.parts[1]])
    personal = run.simulation.personal(torch.arange(len(federation)))[0]
    assert torch.equal(personal[:, last], model.start[last].expand(len(federation), -1))


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_other_rows_of_a_task_do_not_move_heads_that_it_does_not_hold(federation, method):
    """Exactly: flip all labels of one task, and compare the billboards after one round."""
    run = quick(federation, method, rounds=1)
    train = federation.train
    y = train.y.clone()
    y[: int(train.offsets[1])] = 1 - y[: int(train.offsets[1])]  # task 0 holds "first" alone
    flipped = dataclasses.replace(federation, train=dataclasses.replace(train, y=y))
    other = quick(flipped, method, rounds=1)
    parts = run.simulation.model.parts
    before, after = run.simulation.board["model"], other.simulation.board["model"]
    assert not torch.equal(before[parts[0]], after[parts[0]])
    assert not torch.equal(before[parts[1]], after[parts[1]])
    for part in parts[2:]:
        assert torch.equal(before[part], after[part])


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_with_privacy_the_guarantee_says_that_heads_are_public(federation, method):
    run = quick(federation, method, privacy=Privacy(noise=3.0, delta=1e-2))
    assert run.guarantee.assumptions.count(PUBLIC) == 1
    assert math.isfinite(run.guarantee.epsilon) and not run.guarantee.private  # seeded
    assert run.simulation.board["model"].isfinite().all()
    free = quick(federation, method)
    assert not torch.equal(run.simulation.board["model"], free.simulation.board["model"])


def test_without_heads_nothing_is_said_of_heads(make_federation):
    run = quick(make_federation(), FedAvg(), model="linear", privacy=Privacy(noise=5.0))
    assert PUBLIC not in run.guarantee.assumptions


def test_noise_of_a_head_grows_as_its_holders_get_fewer():
    """A sum has the same noise in every number; a mean over fewer holders has more of it.

    Contributions are next to nothing here, so what moves the billboard is noise.
    """
    federation = headed(tasks=60)
    method = FedAvg(lr=1e-6, local_steps=1, batch=None, clip=1.0)
    privacy = Privacy(noise=2.0, sampling="everyone")
    run = quick(federation, method, rounds=1, privacy=privacy)
    model = run.simulation.model
    moved = run.simulation.board["model"] - model.start
    spreads = [float(moved[part].std()) for part in model.parts]
    holders = [60, *federation.heads.holders.tolist()]
    for spread, count in zip(spreads, holders, strict=True):
        assert spread == pytest.approx(2.0 / count, rel=0.35)  # 33 numbers in the smallest part


def test_fedrep_shares_the_body_and_no_head(federation):
    """All heads stay with their task: the billboard has the shared part and nothing else."""
    simulation = quick(federation, tacit.FedRep(**SGD)).simulation
    assert len(simulation.board["body"]) == simulation.model.parts[0].stop
    found = simulation.personal(torch.arange(len(federation)))[0]
    for head, part in enumerate(simulation.model.parts[1:]):
        moved = (found[:, part] != simulation.model.start[part]).any(dim=1)
        assert torch.equal(moved, federation.heads.holds[:, head])
    with pytest.raises(tacit.TacitError, match="leave head_layers out"):
        quick(federation, tacit.FedRep(**SGD, head_layers=2))
