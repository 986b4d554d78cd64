"""All candidates at once are the same as one solution after the other."""

from __future__ import annotations

import pytest
import torch

from tacit.local.bayes import solve
from tacit.local.beliefs import beliefs
from tests.local.test_bayes import rows

FACTORS, SLOPES, ALONE = (0.3, 1.0, 5.0), (0.0, 0.1, 1.0), (1.0, 20.0)


@pytest.mark.parametrize(("n", "d", "effects"), [(40, 5, 1), (6, 20, 1), (30, 8, 3), (9, 12, 2)])
def test_candidates_are_solved_as_if_each_were_the_only_one(n, d, effects):
    x, y, counts = rows(n, d, "regression")
    for side in (x, y, counts):
        side[-2:] = 0.0  # rows that fill the task up
    draw = torch.Generator().manual_seed(0)
    mean, spread = torch.randn(d, generator=draw).double(), torch.rand(d, generator=draw).double()
    own = torch.randn(d, effects, generator=draw).double()
    variance = torch.tensor(0.7).double()
    found = beliefs(
        (x, y, counts), mean, own, spread, variance,
        factors=FACTORS, slopes=SLOPES, alone=ALONE,
    )  # fmt: skip
    expected = []
    for factor in FACTORS:
        for slope in SLOPES:
            root = torch.cat([factor**0.5 * own, slope**0.5 * torch.diag(spread)], dim=1)
            expected.append(solve((x, y, counts), mean, root, variance))
    for strength in ALONE:
        root = strength**0.5 * torch.diag(spread)
        expected.append(solve((x, y, counts), mean * 0, root, variance))
    assert len(found.evidence) == len(expected)
    for number, (speaks, (w, logarithm)) in enumerate(zip(found.evidence, expected, strict=True)):
        only = torch.zeros_like(found.evidence)
        only[number] = 1.0
        assert torch.allclose(found.average(only), w, atol=1e-9)
        assert abs(float(speaks - logarithm)) < 1e-9
    chances = torch.softmax(torch.randn(len(expected), generator=draw).double(), dim=0)
    mixed = chances @ torch.stack([w for w, _ in expected])
    assert torch.allclose(found.average(chances), mixed, atol=1e-9)
