"""ε of a Gaussian release against arbitrary precision, and against dp-accounting."""

from __future__ import annotations

import dp_accounting
import mpmath
import pytest

from tacit.privacy.gaussian import epsilon_of

NOISES = (0.001, 0.02, 0.3, 0.7, 1.0, 2.5, 6.5, 40.0, 3e3, 1e6)
DELTAS = (0.3, 1e-3, 1e-5, 1e-12, 1e-60)


def true_delta(noise: float, epsilon: float):
    with mpmath.workdps(80 + int(0.5 * epsilon) if epsilon < 1e4 else 1200):
        noise, epsilon = mpmath.mpf(noise), mpmath.mpf(epsilon)
        a, b = epsilon * noise - 1 / (2 * noise), epsilon * noise + 1 / (2 * noise)
        tail = lambda t: mpmath.erfc(t / mpmath.sqrt(2)) / 2  # noqa: E731
        return tail(a) - mpmath.exp(epsilon) * tail(b)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("noise", NOISES)
def test_it_is_the_smallest(noise, delta):
    """What accounting adds is more than rounding took away, and little more."""
    epsilon = epsilon_of(noise, delta)
    if epsilon == 0:
        assert true_delta(noise, 0.0) <= delta
        return
    off = 1e-9 * max(1.0, epsilon)
    assert true_delta(noise, epsilon + off) <= delta
    assert true_delta(noise, max(0.0, epsilon - off)) > delta or epsilon < off


@pytest.mark.parametrize("delta", DELTAS[:4])
@pytest.mark.parametrize("noise", NOISES[2:8])
def test_dp_accounting_agrees(noise, delta):
    assert epsilon_of(noise, delta) == pytest.approx(
        dp_accounting.get_epsilon_gaussian(noise, delta), rel=1e-9, abs=1e-9
    )
