"""Additive shares: a tensor of words is hidden by masks that add up, and the masks are seeds.

    tensor = secret − mask(seed₁) − … − mask(seedₘ)      (words wrap around)

Whoever lacks one of these m + 1 pieces has uniform words only, whatever the secret is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from tacit.secure.ring.stream import Stream

Words = type[np.uint32] | type[np.uint64]


def mask(seed: bytes, shape: tuple[int, ...], dtype: Words, number: int = 0) -> np.ndarray:
    """The share that this seed stands for; `number` tells tensors under the same seed apart."""
    return Stream(seed, number).words(shape, dtype)


def hide(secret: np.ndarray, seeds: Sequence[bytes], number: int = 0) -> np.ndarray:
    """The one share that is not a seed: the secret less all masks."""
    tensor = secret.copy()
    for seed in seeds:
        tensor -= mask(seed, secret.shape, secret.dtype.type, number)
    return tensor


def reconstruct(shares: Sequence[np.ndarray]) -> np.ndarray:
    """The secret, from all of its shares as tensors."""
    return reduce(np.add, shares)
