"""Loops over words that numba compiles to the speed of the processor's integer units."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

TILE = 1024
"""Columns that are worked on at a time: a tile of all rows stays in the processor's cache."""


def _compiled(function: Any) -> Any:
    """Compiled with numba when it is first called, and kept on disk for the next process.

    For that, functions must stand by themselves: numba does not find one again that was made inside
    another.
    """
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
def multiply_add(a, b, out):
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
def split(words, planes):
    for block in range(planes.shape[1]):
        count = min(8, len(words) - 8 * block)
        for lane in range(planes.shape[0]):
            byte = np.uint64(0)
            for i in range(count):
                word = np.uint64(words[8 * block + i])
                byte |= ((word >> np.uint64(lane)) & np.uint64(1)) << np.uint64(i)
            planes[lane, block] = byte


@_compiled
def join(planes, words):
    for i in range(len(words)):
        word = np.uint64(0)
        for lane in range(planes.shape[0]):
            byte = np.uint64(planes[lane, i >> 3])
            word |= ((byte >> np.uint64(i & 7)) & np.uint64(1)) << np.uint64(lane)
        words[i] = word
