"""Post-processing of releases: each rule against a plain loop, and nothing but the release used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit import FedAvg, Privacy, Publishing, TacitError
from tacit.methods import Board


def moves(publishing: Publishing, steps: np.ndarray) -> tuple[Board, list[np.ndarray]]:
    board = Board(publishing.start({"model": torch.zeros(steps.shape[1])}))
    seen = []
    for number, step in enumerate(steps):
        now = Board(board.tensors, torch.tensor(number))  # type: ignore[arg-type]
        proposed = {"model": board["model"] + torch.from_numpy(step).float()}
        board = Board(publishing.step(now, proposed), number + 1)
        seen.append(board["model"].numpy())
    return board, seen


STEPS = np.random.default_rng(0).normal(size=(12, 3))


def test_add_is_the_method_itself():
    assert np.allclose(moves(Publishing(), STEPS)[1], STEPS.cumsum(axis=0), atol=1e-5)
    halved = moves(Publishing(lr=0.5, halve_every=4), STEPS)[1]
    rates = 0.5 * 0.5 ** (np.arange(12) // 4)
    assert np.allclose(halved, (rates[:, None] * STEPS).cumsum(axis=0), atol=1e-5)


def test_momentum_and_adam_are_those_of_torch():
    for publishing, make in (
        (Publishing(rule="momentum", lr=0.3), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9)),
        (
            Publishing(rule="adam", lr=0.05),
            lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99), eps=1e-8),
        ),
    ):
        w = torch.zeros(3, requires_grad=True)
        optimiser = make([w])
        expected = []
        for step in STEPS:
            w.grad = -torch.from_numpy(step).float()
            optimiser.step()
            expected.append(w.detach().numpy().copy())
        assert np.allclose(moves(publishing, STEPS)[1], expected, atol=1e-5)


@pytest.mark.parametrize("power", [0.0, 3.0])
def test_averages_weigh_later_rounds_more(power):
    """Power 0 is the plain mean; Shamir and Zhang's recursion, written out."""
    publishing = Publishing(average=power)
    board, seen = moves(publishing, STEPS)
    weights = np.array([np.prod([1 - (power + 1) / (s + power) for s in range(t + 1, 13)])
                        * (power + 1) / (t + power) for t in range(1, 13)])  # fmt: skip
    assert np.isclose(weights.sum(), 1)
    assert power == 0 or (np.diff(weights) > 0).all()
    assert np.allclose(publishing.shown(board)["model"], weights @ np.array(seen), atol=1e-5)
    assert np.allclose(board["model"], seen[-1])


def test_tasks_end_with_the_average_and_a_resumed_run_remembers(make_federation, tmp_path):
    settings = {
        "privacy": Privacy(noise=3.0), "seed": 0, "baselines": False, "personalise": "none",
        "publishing": Publishing(rule="momentum", lr=0.5, average=2.0),
    }  # fmt: skip
    method = FedAvg(batch=6)
    whole = tacit.train(make_federation(), method, rounds=6, **settings)
    shown = whole.simulation.rounds.shown["model"]
    assert not torch.equal(shown, whole.simulation.board["model"])
    assert torch.equal(whole.models(torch.tensor([3]))[0][0], shown)
    with pytest.raises(KeyboardInterrupt):
        tacit.train(
            make_federation(), method, rounds=6, out=tmp_path, progress=Interrupting(), **settings
        )
    again = tacit.train(make_federation(), method, rounds=6, out=tmp_path, resume=True, **settings)
    assert torch.equal(again.simulation.rounds.shown["model"], shown)


class Interrupting:
    """Stops the run in its fourth round."""

    def say(self, text):
        pass

    def rounds(self, title, total):
        import contextlib

        def on_round(number, point):
            if number == 4:
                raise KeyboardInterrupt

        return contextlib.nullcontext(on_round)


@pytest.mark.parametrize(
    "bad", [{"rule": "sgd"}, {"lr": 0.0}, {"momentum": 1.0}, {"halve_every": 0}, {"average": -1.0}]
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(TacitError, match="must be"):
        Publishing(**bad)
