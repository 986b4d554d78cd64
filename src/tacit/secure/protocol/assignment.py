"""The best one-to-one mapping between two clients' task layers, without looking at any of them.

The Hungarian algorithm decides by what it sees; here nothing may be seen. So all sets are tried:
the best way to give the first r rows a set of r columns is

    f(S) = max over c in S of  f(S without c) + worth[r, c],

and the best of all is the maximum over S of f(S) + g(rest), where g does the same with the other
half of the rows. For 8 rows these are 769 maxima in 12 levels, for all pairs of clients at once.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tacit.secure.protocol.engine import Engine


def best_total(engine: Engine, worth: np.ndarray, bits: int) -> np.ndarray:
    """The largest total of a mapping: from shares of worth [pairs, k, k] ≥ 0 to [pairs].

    `bits` must hold the difference of two totals, with its sign.
    """
    k = worth.shape[-1]
    worth = np.ascontiguousarray(np.moveaxis(worth, 1, 3))  # [copies, rows, columns, pairs]
    half = k // 2
    halves = [worth[:, :half], worth[:, half:]]
    best: list[dict[tuple[int, ...], int]] = [{(): 0}, {(): 0}]
    totals = [engine.zeros((1, worth.shape[-1]), worth.dtype.type) for _ in halves]
    for size in range(1, k - half + 1):
        grows = [number for number in (0, 1) if size <= halves[number].shape[1]]
        stacks = []
        for number in grows:
            sets = list(combinations(range(k), size))
            smaller = [[best[number][_without(s, c)] for c in s] for s in sets]
            gained = halves[number][:, size - 1][:, np.array(sets)]
            stacks.append(totals[number][:, np.array(smaller)] + gained)
            best[number] = {s: place for place, s in enumerate(sets)}
        for number, found in zip(grows, _largest(engine, stacks, bits)):
            totals[number] = found
    rest = [best[1][tuple(c for c in range(k) if c not in s)] for s in best[0]]
    together = totals[0] + totals[1][:, np.array(rest)]
    return _largest(engine, [together[:, None]], bits)[0][:, 0]


def _without(columns: tuple[int, ...], column: int) -> tuple[int, ...]:
    return tuple(c for c in columns if c != column)


def _largest(engine: Engine, stacks: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """The maximum over axis 2 of each [copies, sets, candidates, pairs], all in the same rounds."""
    while max(stack.shape[2] for stack in stacks) > 1:
        pairs = [stack.shape[2] // 2 for stack in stacks]
        ones = [stack[:, :, :n] for stack, n in zip(stacks, pairs)]
        others = [stack[:, :, n : 2 * n] for stack, n in zip(stacks, pairs)]
        winners = engine.maximum(_flat(ones), _flat(others), bits)
        ends = np.cumsum([one[0].size for one in ones])[:-1]
        parts = np.split(winners, ends, axis=1)
        stacks = [
            np.concatenate([part.reshape(one.shape), stack[:, :, 2 * n :]], axis=2)
            for part, one, stack, n in zip(parts, ones, stacks, pairs)
        ]
    return [stack[:, :, 0] for stack in stacks]


def _flat(stacks: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([stack.reshape(len(stack), -1) for stack in stacks], axis=1)
