"""Groups that find each other on secret shares: as on one machine."""

from __future__ import annotations

import pytest
import torch

import tacit
from tests.deploy.test_groups import BOTH, ROUNDS, found_both, two_kinds


@pytest.mark.parametrize("method", BOTH, ids=lambda m: type(m).__name__)
def test_servers_on_shares_find_the_groups_that_one_machine_finds(method, unaccounted):
    x, y, names = two_kinds(12)
    federation = tacit.data.from_arrays(x, y, names, scale="none", target_scale="none")
    given = {"rounds": ROUNDS, "seed": 3, "privacy": tacit.Privacy(noise=1e-6)}
    given |= {"personalise": "none", "baselines": False, "model": method.usual_model}
    central = tacit.train(federation, method, **given)
    shared = tacit.train(federation, method, curator=tacit.Secure(), **given)
    found_both(central)
    found_both(shared)
    one, other = (run.models(torch.arange(12))[0] for run in (central, shared))
    assert (one - other).abs().max() < 1e-3 * one.abs().max()
