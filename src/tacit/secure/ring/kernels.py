"""Products of matrices of words that wrap around, and words as planes of bits.

No BLAS multiplies integers. With numba the loops of `compiled` do, at the speed of the processor's
integer units. Without it, words are cut into limbs of 16 bits whose products are exact in double
precision.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np


@functools.cache
def _loops() -> types.ModuleType | None:
    """Compiled loops, which wait until they are needed: numba is slow to import."""
    try:
        from tacit.secure.ring import compiled
    except ModuleNotFoundError:  # exact all the same, and several times slower
        return None
    return compiled


def multiply_add(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """out += a @ b; all contiguous and of the same unsigned type."""
    loops = _loops()
    if loops is None:
        out += limb_product(a, b)
    else:
        loops.multiply_add(a, b, out)


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b, over any leading axes."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.ascontiguousarray(np.broadcast_to(a, (*lead, *a.shape[-2:])))
    b = np.ascontiguousarray(np.broadcast_to(b, (*lead, *b.shape[-2:])))
    out = np.zeros((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    flat = out.reshape(-1, *out.shape[-2:])
    pairs = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), flat)
    for one, other, product in pairs:
        multiply_add(one, other, product)
    return out


def limb_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b by double-precision products of 16-bit limbs: exact for up to 2²¹ terms."""
    limbs = a.dtype.itemsize // 2
    parts = [[_limb(matrix, i) for i in range(limbs)] for matrix in (a, b)]
    total = np.zeros((a.shape[0], b.shape[1]), np.uint64)
    for i in range(limbs):
        for j in range(limbs - i):
            total += (parts[0][i] @ parts[1][j]).astype(np.uint64) << np.uint64(16 * (i + j))
    return total.astype(a.dtype)


def _limb(matrix: np.ndarray, number: int) -> np.ndarray:
    return ((matrix >> matrix.dtype.type(16 * number)) & matrix.dtype.type(0xFFFF)).astype(float)


def planes(words: np.ndarray, lanes: int) -> np.ndarray:
    """The lowest bits of words [n], lane by lane and packed: u8 [lanes, ⌈n/8⌉]."""
    loops = _loops()
    if loops is None:
        shifts = np.arange(lanes, dtype=words.dtype)[:, None]
        bits = ((words[None] >> shifts) & words.dtype.type(1)).astype(np.uint8)
        return np.packbits(bits, axis=1, bitorder="little")
    found = np.empty((lanes, -(-len(words) // 8)), np.uint8)
    loops.split(words, found)
    return found


def join(packed: np.ndarray, count: int, dtype: Any) -> np.ndarray:
    """Words [count] from planes, the lowest bits first."""
    loops = _loops()
    if loops is None:
        bits = np.unpackbits(packed, axis=1, count=count, bitorder="little").astype(dtype)
        shifts = np.arange(len(packed), dtype=dtype)[:, None]
        return np.bitwise_or.reduce(bits << shifts, axis=0).astype(dtype)
    found = np.empty(count, dtype)
    loops.join(packed, found)
    return found


def warm_up() -> None:
    """Compile everything now, so that nobody has to wait for it in a round."""
    for dtype in (np.uint32, np.uint64):
        matmul(np.zeros((1, 1), dtype), np.zeros((1, 1), dtype))
        join(planes(np.zeros(1, dtype), 1), 1, dtype)
