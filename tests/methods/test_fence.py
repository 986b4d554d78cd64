"""A malicious method cannot see another task, smuggle data to `publish`, or pass the clip."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

import tacit
from tacit import PMTL, TacitError
from tacit.engine.course import TRACED_GRADIENTS
from tacit.experiment.train import train

STASH: list = []
PRIVACY = tacit.Privacy(noise=1.0)


@dataclass(frozen=True, kw_only=True)
class Stashing(PMTL):
    """Keeps its rows in a global list and publishes from there."""

    def client(self, model, board, state, batches):
        STASH.append(batches.y)
        return super().client(model, board, state, batches)

    def publish(self, board, mean):
        return {"mean": board["mean"] + STASH[-1].sum()}


@dataclass(frozen=True, kw_only=True)
class Reading(PMTL):
    """Tries to turn private tensors into plain numbers."""

    def client(self, model, board, state, batches):
        STASH.append(float(batches.y.sum()))
        return super().client(model, board, state, batches)


@dataclass(frozen=True, kw_only=True)
class Copying(PMTL):
    """Tries to copy private tensors into a tensor outside."""

    def client(self, model, board, state, batches):
        OUTSIDE.copy_(batches.y.reshape(-1)[:1])
        return super().client(model, board, state, batches)


@dataclass(frozen=True, kw_only=True)
class Writing(PMTL):
    """Tries to write on the billboard itself."""

    def client(self, model, board, state, batches):
        board["mean"].add_(batches.y.sum())
        return super().client(model, board, state, batches)


@dataclass(frozen=True, kw_only=True)
class Shouting(PMTL):
    """Contributes a million times what was agreed, or nonsense."""

    loud: float = 1e6

    def client(self, model, board, state, batches):
        state, sent = super().client(model, board, state, batches)
        return state, (sent + batches.y.mean()) * self.loud


OUTSIDE = torch.zeros(1)


@pytest.mark.parametrize("steps", [2, TRACED_GRADIENTS + 1], ids=["traced", "not traced"])
@pytest.mark.parametrize("kind", [Stashing, Reading, Copying, Writing])
def test_private_tensors_cannot_leave_the_client_step(make_federation, kind, steps):
    method = kind(local_steps=steps)
    STASH.clear()
    before = OUTSIDE.clone()
    with pytest.raises((RuntimeError, TacitError)):
        train(
            make_federation(),
            method,
            privacy=PRIVACY,
            rounds=2,
            seed=0,
            baselines=False,
            personalise="none",
        )
    assert torch.equal(OUTSIDE, before)
    assert not any(isinstance(kept, float) for kept in STASH)


@dataclass(frozen=True, kw_only=True)
class Printing(PMTL):
    """Reads its rows off their printed form, which no wrapper hides, and publishes from there."""

    def client(self, model, board, state, batches):
        STASH.append(sum(map(float, re.findall(r"-?\d+\.\d+", repr(batches.y)))))
        return super().client(model, board, state, batches)

    def publish(self, board, mean):
        return {"mean": board["mean"] + mean + STASH[-1]}


@pytest.mark.parametrize("steps", [2, TRACED_GRADIENTS + 1], ids=["traced", "not traced"])
def test_what_is_published_is_fixed_before_any_rows_are_seen(make_federation, steps):
    STASH.clear()

    def board(kind):
        method = kind(local_steps=steps)
        run = train(
            make_federation(),
            method,
            privacy=PRIVACY,
            rounds=2,
            seed=0,
            baselines=False,
            personalise="none",
        )
        return run.simulation.board["mean"]

    stolen, honest = board(Printing), board(PMTL)
    assert torch.equal(stolen, honest)
    if steps > TRACED_GRADIENTS:
        assert any(STASH)  # it did read rows, and could not publish them


def test_a_client_sees_one_task_only(make_federation):
    """Whatever a client computes, another task's rows change nothing of its state in a round."""
    federation = make_federation()
    changed = make_federation()
    first = slice(0, int(federation.train.offsets[1]))
    changed.train.y[first] += 100.0

    def states(which):
        run = train(
            which, PMTL(), privacy=PRIVACY, rounds=1, seed=0, baselines=False, personalise="none"
        )
        return run.simulation.personal(torch.arange(len(which)))[0]

    one, other = states(federation), states(changed)
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1:], other[1:])


@pytest.mark.parametrize("loud", [1e6, float("inf"), float("nan")])
def test_a_loud_contribution_is_clipped_or_dropped(make_federation, loud):
    """With noise off the board moves by no more than the clip, whatever tasks send."""
    federation = make_federation()
    method = Shouting(loud=loud, clip=0.5)
    run = train(
        federation,
        method,
        privacy=tacit.Privacy(noise=0.0),
        rounds=1,
        seed=0,
        baselines=False,
        personalise="none",
    )
    assert float(run.simulation.board["mean"].norm()) <= 0.5


def test_publish_depends_on_the_release_alone(make_federation, monkeypatch):
    """The same noisy sum from other data gives the same billboard: nothing takes a side door."""
    from tacit.privacy.channel import Collection

    monkeypatch.setattr(Collection, "publishable", lambda self, size: torch.linspace(-1, 1, size))

    def board(seed):
        federation = make_federation(seed=seed)
        run = train(
            federation,
            PMTL(),
            privacy=PRIVACY,
            rounds=3,
            seed=seed,
            baselines=False,
            personalise="none",
        )
        return run.simulation.board["mean"]

    assert torch.equal(board(0), board(1))


def test_a_method_cannot_carry_a_place_to_keep_things():
    @dataclass(frozen=True, kw_only=True)
    class Pocket(PMTL):
        pocket: list | None = None

    with pytest.raises(TacitError, match="not a plain value"):
        Pocket(pocket=[])

    with pytest.raises((TacitError, TypeError), match="frozen"):

        @dataclass(kw_only=True)
        class Thawed(PMTL):
            pass

        Thawed()
