"""How far slopes of log odds are shrunk where persons are the unit: evidence and the usual."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit.methods.mixed_persons import MixedOfPersons
from tacit.methods.posterior import PRIORS, shrunk

METHOD = MixedOfPersons()


def believed(slopes: torch.Tensor, blur: float, draw: torch.Generator, odds: bool):
    """What is made of one noisy release about these slopes, seen from columns of unit size."""
    d, doubles = len(slopes), torch.float64
    information, noise = 0.2 * torch.eye(d, dtype=doubles), torch.tensor(blur, dtype=doubles)
    target = information @ slopes
    target = target + blur**0.5 * torch.randn(d, dtype=doubles, generator=draw)
    none, prior = torch.zeros(1, d, dtype=doubles), PRIORS.unsqueeze(1).expand(-1, d)
    sampling = torch.tensor(1e-6, dtype=doubles)
    board = {"odds": torch.tensor(float(odds)), "beta": torch.zeros(d + 1)}
    likely = METHOD._likely(board, PRIORS)
    return shrunk(information, target, sampling, noise, prior, none, likely).beta


def test_slopes_of_usual_size_are_met_better_than_by_evidence_alone():
    draw, lost = torch.Generator().manual_seed(0), {True: 0.0, False: 0.0}
    for _ in range(200):
        slopes = 0.3**0.5 * torch.randn(8, dtype=torch.float64, generator=draw)
        before = draw.get_state()
        for odds in lost:
            found = believed(slopes, 0.02, draw.set_state(before), odds)
            lost[odds] += float(((found - slopes) ** 2).mean()) / 200
    assert lost[True] < 0.97 * lost[False]


def test_clear_evidence_is_still_followed():
    draw = torch.Generator().manual_seed(0)
    nothing = torch.zeros(80, dtype=torch.float64)
    found = [believed(nothing, 0.01, draw, one) for one in (True, False)]
    assert all(float(beta.square().mean()) < 0.02 for beta in found)
    large = torch.full((40,), 2.0, dtype=torch.float64)
    assert float((believed(large, 0.02, draw, True) - large).abs().mean()) < 0.7


@pytest.mark.parametrize(("kind", "odds"), [("binary", True), ("regression", False)])
def test_only_a_yes_or_no_has_log_odds(kind, odds):
    y, task = np.arange(40) % 2, np.arange(40) % 4
    given = {"persons": True, "scale": "none", "validation": 0.0, "test": 0.0}
    federation = tacit.data.from_arrays(np.ones((40, 2)), y, task, kind=kind, **given)
    privacy = tacit.Privacy(epsilon=1.0, unit="row", persons=40)
    quiet = {"personalise": "none", "baselines": False, "seed": 0}
    board = tacit.train(federation, privacy=privacy, **quiet).simulation.board
    likely = torch.as_tensor(METHOD._likely(board.tensors, PRIORS))
    assert bool(likely.any()) == odds
