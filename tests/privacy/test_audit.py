"""What scores prove about ε from below."""

from __future__ import annotations

import numpy as np

from papers.common.refute import lower_bound


def test_lower_bound_of_what_cannot_be_told_apart_is_zero():
    same = np.random.default_rng(0).standard_normal((2, 4000))
    assert lower_bound(same[0], same[1], 1e-3) < 0.1
    assert lower_bound(same[0] + 100, same[1], 1e-3) > 5
