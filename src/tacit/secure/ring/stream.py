"""Masks: keystreams of AES-128 in counter mode, from 16-byte seeds.

Whoever does not have the seed cannot tell a keystream from uniform words. A seed is used for one
purpose, once; `number` separates the streams that belong to the same seed.
"""

from __future__ import annotations

import math
import os

import numpy as np

SEED_BYTES = 16
BLOCK = 16
_ZEROS = bytes(1 << 18)


def fresh_seed() -> bytes:
    """From the operating system."""
    return os.urandom(SEED_BYTES)


class Stream:
    """Uniform words of one seed, one after another."""

    def __init__(self, seed: bytes, number: int = 0) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # an extra

        # The upper half of the counter block names the stream, the lower half counts its blocks.
        start = (number << 64).to_bytes(BLOCK, "big")
        cipher = Cipher(algorithms.AES(seed), modes.CTR(start))
        self._encryptor = cipher.encryptor()

    def draw(self, count: int) -> bytes:
        """The next bytes of the stream."""
        return self.words((count,), np.uint8).tobytes()

    def fill(self, out: np.ndarray) -> np.ndarray:
        """Overwrite a contiguous array with the next words of the stream."""
        raw = memoryview(out.data).cast("B") if out.size else memoryview(b"")
        for begin in range(0, len(raw), len(_ZEROS)):
            some = raw[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(some)], some)
        return out

    def words(self, shape: tuple[int, ...], dtype: type[np.unsignedinteger]) -> np.ndarray:
        """The next words of the stream."""
        return self.fill(np.empty(shape, dtype))

    def bits(self, lanes: int, count: int) -> np.ndarray:
        """Random bits for `count` elements in each of `lanes` lanes, packed: u8 [lanes, bytes]."""
        return self.words((lanes, math.ceil(count / 8)), np.uint8)
