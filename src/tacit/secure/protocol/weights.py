"""From similarities to weights that add up to one, on shares.

Shares of a row of scores vⱼ ≥ 0 become shares of vⱼ / Σ v. A reciprocal needs its argument between
one half and one: comparing the sum T with all powers of two tells (to nobody) which of them it
reaches, and s = 2^(m−1−⌊log₂ T⌋) is linear in these answers. Then T·s is in [2^(m−1), 2^m), and
three steps of Newton's y ← y(2 − xy) give 1/x to about 2⁻²⁵.

A client's own weight is one less all others, so rows add up to one exactly, whatever was rounded.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.secure.protocol.engine import Engine

FRACTION = 28
"""Bits after the point while dividing."""
STEPS = 3
SAY = 10
"""As in `tacit.exchange`: one part in so many is always left to others than one alone."""


def normalised(
    engine: Engine, scores: np.ndarray, keeps: np.ndarray, largest: float, fraction: int
) -> np.ndarray:
    """Weights [.., n, n] with `fraction` bits after the point, in words of 64 bits.

    `scores` are shared integers, each row with a sum of at most `largest`; where `keeps` [.., n] is
    a shared 0, a client keeps its own.
    """
    n = scores.shape[-1]
    total = scores.sum(axis=-1, dtype=np.uint64)
    m = max(FRACTION + 1, math.ceil(math.log2(largest)) + 1)
    powers = np.uint64(1) << np.arange(m, dtype=np.uint64)
    over = total[..., None] - engine.public(np.broadcast_to(powers, (*total.shape[1:], m)))
    reached = engine.nonnegative(over, m + 1)
    last = reached.copy()
    last[..., :-1] -= reached[..., 1:]
    scale = (last * powers[::-1]).sum(axis=-1, dtype=np.uint64)
    scaled = engine.multiply(np.concatenate([scores, total[..., None]], axis=-1), scale[..., None])
    scaled = engine.truncate(scaled, m - FRACTION)
    x = scaled[..., -1]
    y = _constant(engine, x, 2.9142) - np.uint64(2) * x
    for _ in range(STEPS):
        product = engine.truncate(engine.multiply(x, y), FRACTION)
        y = engine.truncate(engine.multiply(y, _constant(engine, x, 2.0) - product), FRACTION)
    y = engine.multiply(y, keeps)
    weights = engine.multiply(scaled[..., :-1], y[..., None])
    weights = engine.truncate(weights, 2 * FRACTION - fraction)
    diagonal = np.arange(n)
    weights[..., diagonal, diagonal] = 0
    one = engine.public(np.full(total.shape[1:], 1 << fraction, np.uint64))
    weights[..., diagonal, diagonal] = one - weights.sum(axis=-1, dtype=np.uint64)
    return weights


def _constant(engine: Engine, like: np.ndarray, value: float) -> np.ndarray:
    return engine.public(np.full(like.shape[1:], round(value * 2**FRACTION), np.uint64))
