"""Outcomes over time with persons as the unit: rates that are low, columns that are not centred."""

from __future__ import annotations

import numpy as np
import torch

import tacit
from tacit.methods.posterior import believable, centred

COLUMNS = 8
SLOPES = np.array([0.8, -0.6, 0.0, 0.5, 0.0, 0.0, -0.4, 0.0])


def registry(rate: float = 0.03) -> tacit.Federation:
    """Flags of 1200 persons at four tasks, and events that few of them have."""
    draw = np.random.default_rng(0)
    x = (draw.random((1200, COLUMNS)) < 0.5).astype(float)
    came = draw.exponential(1 / (rate * np.exp(x @ SLOPES)))
    seen = draw.uniform(1, 4, 1200)
    y = np.column_stack([np.minimum(came, seen), came <= seen])
    about = {"kind": "survival", "cuts": (1.0, 2.0, 4.0), "scale": "none", "persons": True}
    return tacit.data.from_arrays(x, y, np.arange(1200) % 4, validation=0.0, test=0.0, **about)


def test_persons_find_a_rate_that_is_low():
    """Votes for what each person expects of itself began at e⁻², whatever the rate was."""
    privacy = tacit.Privacy(epsilon=30.0, delta=1e-4, unit="row", persons=1200)
    quiet = {"personalise": "none", "baselines": False, "seed": 0}
    board = tacit.train(registry(), privacy=privacy, **quiet).simulation.board
    assert abs(float(board["prior"][-1]) - np.log(0.03)) < 0.6
    beta = board["beta"].numpy()
    assert np.abs(beta[:COLUMNS] - SLOPES).mean() < 0.15  # it was 0.25
    doubt = board["covariance"].diagonal()[:COLUMNS].sqrt().numpy()
    assert ((beta[:COLUMNS] - SLOPES) ** 2 / doubt**2).mean() < 4.0


def test_means_of_columns_do_not_hide_that_the_rest_is_noise():
    drawn = torch.Generator().manual_seed(0)
    share = torch.cat([0.2 + 0.6 * torch.rand(40, generator=drawn), torch.ones(1)]).double()
    truth = 100 * (torch.outer(share, share) + torch.diag(share * (1 - share)))
    noise = 8 * torch.randn(41, 41, dtype=torch.float64, generator=drawn)
    seen, blur = truth + (noise + noise.T) / 2, torch.tensor([64.0], dtype=torch.float64)
    found, left = (each[0] for each in centred(seen.unsqueeze(0), blur, [40]))
    before = believable(seen.unsqueeze(0), blur)[0][0]

    def off(one: torch.Tensor) -> float:
        return float(((one - truth) ** 2).mean())

    assert off(found) < 0.5 * off(before)
    beside = found - truth
    beside = beside - torch.diag(beside.diagonal())
    assert float((beside**2).mean()) < 2 * float(left) + 5  # what is left of the noise is known
    exact, none = centred(truth.unsqueeze(0), 0 * blur, [40])
    torch.testing.assert_close(exact[0], truth)
    assert float(none) == 0


def test_what_noise_hides_is_not_what_rows_tell_nothing_of():
    """Steps along it would be as long as the noise makes them."""
    drawn = torch.Generator().manual_seed(0)
    truth = torch.diag(torch.tensor([3.0, 0.5, 0.2, 0.1, 2.0])).double()
    noise = torch.randn(200, 5, 5, dtype=torch.float64, generator=drawn)
    seen, blur = truth + (noise + noise.mT) / 2, torch.ones(200, dtype=torch.float64)
    values = torch.linalg.eigvalsh(centred(seen, blur, [4])[0])
    assert torch.linalg.eigvalsh(seen).amin() < -1
    assert values.amin() > 1 - 1e-9
