"""Signs, shifts and wider words of additively shared numbers, with help of the dealer.

Every function opens c = x + r once, for a uniform r of which the dealer handed out what is needed:

* `truncate`, `widen`: x is shifted to be non-negative and below half of the ring. Then x + r wraps
  around exactly if r has its top bit set and c has not, which is linear in the shares of that bit
  (Escudero et al. 2020). So the only error is the carry of the bits that are cut off.
* `nonnegative`, `relu`: the sign of x is a bit of c − r, that is of c, r and a borrow; the borrow
  says whether c < r in the bits below. Bits of r are shared by exclusive or, c is public, and a
  tree of ANDs compares: its depth is the logarithm of the bits. A random bit β that is shared both
  ways brings the sign back among the words: s = m ⊕ β with m opened, and
  s·x = m·x + (1 − 2m)(β·c − β·r).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.secure.ring.kernels import join, planes

if TYPE_CHECKING:
    from tacit.secure.protocol.additive import Additive


def truncate(engine: Additive, x: np.ndarray, shift: int) -> np.ndarray:
    """x / 2^shift for |x| < 2^(ring − 2)."""
    dtype = x.dtype.type
    ring = 8 * x.dtype.itemsize
    r = engine.uniform(x.shape, dtype)
    top = engine.deal(x.shape, dtype, lambda: r >> dtype(ring - 1))
    cut = engine.deal(x.shape, dtype, lambda: r >> dtype(shift))
    (c,) = engine.open(_plus(engine, x, 1 << (ring - 2)) + r)
    wraps = top * (dtype(1) - (c >> dtype(ring - 1)))
    found = wraps * dtype(1 << (ring - shift)) - cut
    if engine.first:
        found += c >> dtype(shift)
        found -= dtype(1 << (ring - 2 - shift))
    return found


def widen(engine: Additive, x: np.ndarray) -> np.ndarray:
    """A number |x| < 2^30 shared in words of 32 bits, in words of 64."""
    r = engine.uniform(x.shape, np.uint32)
    wide = engine.deal(x.shape, np.uint64, lambda: r.astype(np.uint64))
    top = engine.deal(x.shape, np.uint64, lambda: (r >> np.uint32(31)).astype(np.uint64))
    (c,) = engine.open(_plus(engine, x, 1 << 30) + r)
    wraps = top * (np.uint64(1) - (c >> np.uint32(31)).astype(np.uint64))
    found = wraps * np.uint64(1 << 32) - wide
    if engine.first:
        found += c.astype(np.uint64)
        found -= np.uint64(1 << 30)
    return found


def nonnegative(engine: Additive, x: np.ndarray, bits: int) -> np.ndarray:
    """1 where x ≥ 0, else 0."""
    found, _, _, _ = _sign(engine, x.reshape(-1), bits)
    return found.reshape(x.shape)


def relu(engine: Additive, x: np.ndarray, bits: int) -> np.ndarray:
    """x where x ≥ 0, else 0."""
    flat = x.reshape(-1)
    _, m, c, (beta, r) = _sign(engine, flat, bits)
    dtype = x.dtype.type
    both = engine.deal(flat.shape, dtype, lambda: beta * r)
    found = c * beta
    found -= both
    found *= dtype(1) - dtype(2) * m
    found += m * flat
    return found.reshape(x.shape)


def _sign(
    engine: Additive, x: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Whether x ≥ 0, as shares; the opened m and c; and the shares of β and r."""
    dtype, n = x.dtype.type, len(x)
    low = engine.uniform_bits(bits, n)
    r = engine.deal((n,), dtype, lambda: _with_upper_bits(engine, low, n, bits, dtype))
    hider = engine.uniform_bits(1, n)
    beta = engine.deal((n,), dtype, lambda: join(hider, n, dtype))
    (c,) = engine.open(x + r)
    known = planes(c, bits)
    borrow = _less(engine, known[:-1], low[:-1], n)
    sign = low[-1:] ^ borrow ^ hider
    if engine.first:
        sign ^= ~known[-1:]
    (opened,) = engine.open_bits(sign)
    m = join(opened, n, dtype)
    found = (dtype(1) - dtype(2) * m) * beta
    if engine.first:
        found += m
    return found, m, c, (beta, r)


def _with_upper_bits(
    engine: Additive, low: np.ndarray, n: int, bits: int, dtype: type[np.unsignedinteger]
) -> np.ndarray:
    """A uniform word whose lowest bits are these; the others only hide the rest of x."""
    upper = engine.private((n,), dtype)
    kept = upper & dtype(np.iinfo(dtype).max - ((1 << bits) - 1))
    return kept | join(low, n, dtype)


def _less(engine: Additive, known: np.ndarray, low: np.ndarray, n: int) -> np.ndarray:
    """Shares of the bit (known < low), for planes with the lowest bits first: u8 [1, bytes].

    At the highest bit where they differ, `low` must have the one. A node of the tree says for a run
    of bits whether low is more there (`more`) and whether they are all equal (`same`).
    """
    more, same = ~known & low, low.copy()
    if engine.first:
        same ^= ~known
    while len(more) > 1:
        pairs = len(more) // 2
        left = more[2 * pairs :], same[2 * pairs :]  # the highest, if their number is odd
        upper, lower = same[1 : 2 * pairs : 2], [more[0 : 2 * pairs : 2]]
        if len(more) > 2:  # at the root nobody asks whether all are equal
            lower.append(same[0 : 2 * pairs : 2])
        ands = _ands(engine, upper, lower, n)
        more = np.concatenate([more[1 : 2 * pairs : 2] ^ ands[0], left[0]])
        same = np.concatenate([ands[1], left[1]]) if len(ands) > 1 else same[:0]
    return more


def _ands(engine: Additive, x: np.ndarray, others: list[np.ndarray], n: int) -> list[np.ndarray]:
    """x AND each of the others."""
    lanes = len(x)
    a = engine.uniform_bits(lanes, n)
    bs = [engine.uniform_bits(lanes, n) for _ in others]
    cs = [engine.deal_bits(lanes, n, lambda b=b: a & b) for b in bs]
    d, *es = engine.open_bits(x ^ a, *(y ^ b for y, b in zip(others, bs)))
    return [(d & y) ^ (a & e) ^ c for y, e, c in zip(others, es, cs)]


def _plus(engine: Additive, x: np.ndarray, constant: int) -> np.ndarray:
    return x + x.dtype.type(constant) if engine.first else x
