"""ε of one Gaussian release, in closed form: nothing has to be loaded, and nothing is rounded.

Borja Balle, Yu-Xiang Wang. "Improving the Gaussian Mechanism for Differential Privacy: Analytical
Calibration and Optimal Denoising." ICML 2018, Theorem 8: with noise z on a sum that moves by one,

    δ(ε) = Φ(−a) − e^ε Φ(−b),     a = εz − 1/2z,  b = εz + 1/2z

Here with Mills' ratio M(t) = Φ(−t)/φ(t): since e^ε φ(b) = φ(a), it is φ(a)·(M(a) − M(b)), which
neither overflows nor loses its digits where both terms are tiny or nearly alike.
"""

from __future__ import annotations

import math

FAR = 4.0
"""From here on Mills' ratio is a continued fraction, which then needs few terms."""
TERMS = 80
ROOT = math.sqrt(2 * math.pi)


def epsilon_of(noise: float, delta: float) -> float:
    """The smallest ε at this δ, up to rounding and never below it by more than that."""
    wanted = math.log(delta)
    if _log_delta(noise, 0.0) <= wanted:
        return 0.0
    low, high = 0.0, 1.0
    while _log_delta(noise, high) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-13 * max(1.0, high):
        middle = (low + high) / 2
        if _log_delta(noise, middle) > wanted:
            low = middle
        else:
            high = middle
    return high


def _log_delta(noise: float, epsilon: float) -> float:
    middle, half = epsilon * noise, 1 / (2 * noise)
    a, b = middle - half, middle + half
    if a < 0:
        return _log(math.erfc(a / math.sqrt(2)) / 2 - math.exp(-a * a / 2) / ROOT * _mills(b))
    return _log(_mills(a) - _mills(b)) - a * a / 2 - math.log(ROOT)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _mills(t: float) -> float:
    """Φ(−t)/φ(t) of t ≥ 0."""
    if t < FAR:
        return math.erfc(t / math.sqrt(2)) / 2 * math.exp(t * t / 2) * ROOT
    fraction = t
    for term in range(TERMS, 0, -1):
        fraction = t + term / fraction
    return 1 / fraction
