"""Products of matrices of words that wrap around, and words as planes of bits.

No BLAS multiplies integers. With numba the loops below run at the speed of the processor's integer
units; without it, words are cut into limbs of 16 bits whose products are exact in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import numba
except ImportError:  # exact all the same, and several times slower
    numba = None

TILE = 1024
"""Columns that are worked on at a time: a tile of all rows stays in the processor's cache."""


def _compiled(function: Any) -> Any:
    """Compiled with numba when it is first called, and kept on disk for the next process.

    For that, functions must stand by themselves: numba does not find one again that was made inside
    another.
    """
    if numba is None:
        return function
    return numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")(function)


@_compiled
def _sixteen(c0, c1, c2, c3, a, i, k, b0, b1, b2, b3):
    """Four rows of a product, with four rows and columns of the left side in registers."""
    word = c0.dtype.type  # the product of two words is wider, and would be slow to add
    a00, a01, a02, a03 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
    a10, a11, a12, a13 = a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]
    a20, a21, a22, a23 = a[i + 2, k], a[i + 2, k + 1], a[i + 2, k + 2], a[i + 2, k + 3]
    a30, a31, a32, a33 = a[i + 3, k], a[i + 3, k + 1], a[i + 3, k + 2], a[i + 3, k + 3]
    for j in range(len(c0)):
        v, w, x, y = b0[j], b1[j], b2[j], b3[j]
        c0[j] = word(c0[j] + word(a00 * v) + word(a01 * w) + word(a02 * x) + word(a03 * y))
        c1[j] = word(c1[j] + word(a10 * v) + word(a11 * w) + word(a12 * x) + word(a13 * y))
        c2[j] = word(c2[j] + word(a20 * v) + word(a21 * w) + word(a22 * x) + word(a23 * y))
        c3[j] = word(c3[j] + word(a30 * v) + word(a31 * w) + word(a32 * x) + word(a33 * y))


@_compiled
def _one(c, a, b):
    word = c.dtype.type
    for j in range(len(c)):
        c[j] = word(c[j] + word(a * b[j]))


@_compiled
def _multiply_add(a, b, out):
    rows, inner = a.shape
    columns = out.shape[1]
    whole_rows, whole = rows - rows % 4, inner - inner % 4
    for begin in range(0, columns, TILE):
        end = min(columns, begin + TILE)
        for k in range(0, whole, 4):
            b0, b1 = b[k, begin:end], b[k + 1, begin:end]
            b2, b3 = b[k + 2, begin:end], b[k + 3, begin:end]
            for i in range(0, whole_rows, 4):
                c0, c1 = out[i, begin:end], out[i + 1, begin:end]
                c2, c3 = out[i + 2, begin:end], out[i + 3, begin:end]
                _sixteen(c0, c1, c2, c3, a, i, k, b0, b1, b2, b3)
        for i in range(rows):
            for k in range(whole if i < whole_rows else 0, inner):
                _one(out[i, begin:end], a[i, k], b[k, begin:end])


@_compiled
def _split(words, planes):
    for block in range(planes.shape[1]):
        count = min(8, len(words) - 8 * block)
        for lane in range(planes.shape[0]):
            byte = np.uint64(0)
            for i in range(count):
                word = np.uint64(words[8 * block + i])
                byte |= ((word >> np.uint64(lane)) & np.uint64(1)) << np.uint64(i)
            planes[lane, block] = byte


@_compiled
def _join(planes, words):
    for i in range(len(words)):
        word = np.uint64(0)
        for lane in range(planes.shape[0]):
            byte = np.uint64(planes[lane, i >> 3])
            word |= ((byte >> np.uint64(i & 7)) & np.uint64(1)) << np.uint64(lane)
        words[i] = word


def multiply_add(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """out += a @ b; all contiguous and of the same unsigned type."""
    if numba is None:
        out += limb_product(a, b)
    else:
        _multiply_add(a, b, out)


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
    if numba is None:
        shifts = np.arange(lanes, dtype=words.dtype)[:, None]
        bits = ((words[None] >> shifts) & words.dtype.type(1)).astype(np.uint8)
        return np.packbits(bits, axis=1, bitorder="little")
    found = np.empty((lanes, -(-len(words) // 8)), np.uint8)
    _split(words, found)
    return found


def joined(packed: np.ndarray, count: int, dtype: Any) -> np.ndarray:
    """Words [count] from planes, the lowest bits first."""
    if numba is None:
        bits = np.unpackbits(packed, axis=1, count=count, bitorder="little").astype(dtype)
        shifts = np.arange(len(packed), dtype=dtype)[:, None]
        return np.bitwise_or.reduce(bits << shifts, axis=0).astype(dtype)
    found = np.empty(count, dtype)
    _join(packed, found)
    return found


def warm_up() -> None:
    """Compile everything now, so that nobody has to wait for it in a round."""
    for dtype in (np.uint32, np.uint64):
        matmul(np.zeros((1, 1), dtype), np.zeros((1, 1), dtype))
        joined(planes(np.zeros(1, dtype), 1), 1, dtype)
