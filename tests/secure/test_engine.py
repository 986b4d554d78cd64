"""What servers compute on shares, against the same on plain numbers; in both trust settings."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tacit.secure.protocol.assignment import best_total
from tacit.secure.protocol.weights import normalised
from tacit.secure.ring import kernels
from tacit.secure.ring.kernels import join, limb_product, matmul, multiply_add, planes
from tests.secure.parties import SETTINGS, compute, numbers, words

EVERY = pytest.mark.parametrize(("trust", "servers"), SETTINGS)
RINGS = pytest.mark.parametrize("dtype", [np.uint32, np.uint64])


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, True)


@RINGS
def test_products_of_words_wrap_around(dtype: type) -> None:
    rng = np.random.default_rng(0)
    for rows, inner, columns in ((1, 1, 1), (3, 7, 2050), (5, 9, 33)):
        a, b = _random(rng, (rows, inner), dtype), _random(rng, (inner, columns), dtype)
        exact = (a.astype(object) @ b.astype(object)) % (int(np.iinfo(dtype).max) + 1)
        assert (matmul(a, b) == exact).all()
        assert (limb_product(a, b) == exact).all()
        out = _random(rng, (rows, columns), dtype)
        before = out.copy()
        multiply_add(a, b, out)
        assert (out - before == exact.astype(dtype)).all()


@EVERY
def test_without_numba_the_same(trust: str, servers: int, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "_loops", lambda: None)
    rng = np.random.default_rng(9)
    x, y = _random(rng, (3, 4), np.uint64), _random(rng, (4, 5), np.uint64)
    found = compute(trust, servers, [x, y], lambda e, a, b: e.product(a, b, matmul))
    exact = (x.astype(object) @ y.astype(object)) % 2**64
    assert (found == exact).all()
    values = rng.integers(-(2**20), 2**20, 77)
    kept = compute(trust, servers, [words(values, np.uint32)], lambda e, a: e.relu(a, 24))
    assert (numbers(kept) == np.maximum(values, 0)).all()


@RINGS
def test_words_and_their_bits(dtype: type) -> None:
    rng = np.random.default_rng(1)
    for count in (1, 8, 77):
        given = _random(rng, (count,), dtype)
        bits = 8 * given.itemsize
        assert (join(planes(given, bits), count, dtype) == given).all()
        low = planes(given, 5)
        assert low.shape == (5, -(-count // 8))
        assert (join(low, count, dtype) == given % 32).all()


@EVERY
@RINGS
def test_products(trust: str, servers: int, dtype: type) -> None:
    rng = np.random.default_rng(2)
    x, y = _random(rng, (2, 3, 4), dtype), _random(rng, (2, 4, 5), dtype)
    for final in (False, True):
        found = compute(
            trust, servers, [x, y],
            lambda e, a, b: e.product(a, b, matmul, final=final),  # noqa: B023
            final=final,
        )  # fmt: skip
        assert (found == matmul(x, y)).all()
    row = _random(rng, (3, 1), dtype)
    found = compute(trust, servers, [x[0], row], lambda e, a, b: e.multiply(a, b))
    assert (found == x[0] * row).all()
    seven = dtype(7)
    found = compute(trust, servers, [row], lambda e, a: a * seven - e.public(row))
    assert (found == row * seven - row).all()


@EVERY
def test_signs_at_the_edges_of_their_range(trust: str, servers: int) -> None:
    rng = np.random.default_rng(3)
    for dtype, bits in ((np.uint32, 2), (np.uint32, 24), (np.uint32, 32), (np.uint64, 57)):
        top = 2 ** (bits - 1)
        edges = [-top, -top + 1, -2, -1, 0, 1, 2, top - 1]
        inside = [v for v in edges if -top <= v < top]
        x = np.array([*inside, *rng.integers(-top, top, 300)])
        given = words(x, dtype)
        bit = compute(trust, servers, [given], lambda e, a: e.nonnegative(a, bits))  # noqa: B023
        assert (numbers(bit) == (x >= 0)).all()
        kept = compute(trust, servers, [given], lambda e, a: e.relu(a, bits))  # noqa: B023
        assert (numbers(kept) == np.maximum(x, 0)).all()


@EVERY
def test_what_is_cut_off_is_only_a_carry(trust: str, servers: int) -> None:
    rng = np.random.default_rng(4)
    for dtype, ring, shift in ((np.uint32, 32, 9), (np.uint64, 64, 30)):
        top = 2 ** (ring - 2)
        x = np.concatenate([rng.integers(-top + 1, top, 2000), [-top + 1, top - 1, -1, 1]])
        given = words(x, dtype)
        found = numbers(
            compute(trust, servers, [given], lambda e, a: e.truncate(a, shift))  # noqa: B023
        )
        assert set(np.unique(found - (x >> shift))) == {0, 1}
        whole = words((x >> shift) << shift, dtype)  # what divides is exact: zero stays zero
        found = compute(trust, servers, [whole], lambda e, a: e.truncate(a, shift))  # noqa: B023
        assert (numbers(found) == x >> shift).all()


@EVERY
def test_wider_words_hold_the_same_number(trust: str, servers: int) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.integers(-(2**30) + 1, 2**30, 1000), [0, -1, 2**30 - 1]])
    found = compute(trust, servers, [words(x, np.uint32)], lambda e, a: e.widen(a))
    assert (numbers(found) == x).all()


@EVERY
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_the_best_mapping(trust: str, servers: int, k: int) -> None:
    rng = np.random.default_rng(6)
    worth = rng.integers(0, 1000, (6, k, k))
    worth[0] = 0
    worth[1] = 1  # ties everywhere
    brute = [
        max(sum(one[i, p[i]] for i in range(k)) for p in permutations(range(k))) for one in worth
    ]
    found = compute(trust, servers, [words(worth, np.uint32)], lambda e, a: best_total(e, a, 16))
    assert (numbers(found) == brute).all()


def test_the_best_mapping_of_eight_in_few_rounds() -> None:
    rng = np.random.default_rng(7)
    worth = rng.integers(0, 2**20, (40, 8, 8))
    rounds = []

    def program(engine, shares):
        found = best_total(engine, shares, 25)
        rounds.append(engine.rounds)
        return found

    found = compute("dealer", 3, [words(worth, np.uint32)], program)
    scipy = [one[linear_sum_assignment(one, maximize=True)].sum() for one in worth]
    assert (numbers(found) == scipy).all()
    assert max(rounds) <= 100


@EVERY
def test_weights_add_up_to_one(trust: str, servers: int) -> None:
    rng = np.random.default_rng(8)
    n, fraction = 6, 20
    scores = rng.integers(0, 2**40, (3, n, n))
    scores[0] = rng.integers(0, 3, (n, n)) + np.eye(n, dtype=np.int64)  # small ones too
    scores[1, :, 0] = 0
    scores[2, 3] = 0  # a row of zeros divides by nothing
    keeps = np.ones((3, n), np.int64)
    keeps[1, 2] = 0
    found = numbers(
        compute(
            trust, servers, [words(scores), words(keeps)],
            lambda e, s, k: normalised(e, s, k, n * 2.0**40, fraction),
        )
    ) / 2**fraction  # fmt: skip
    total = scores.sum(axis=-1, keepdims=True)
    wanted = np.where(total > 0, scores / np.maximum(total, 1), 0)
    wanted = np.where(keeps[..., None] == 1, wanted, 0)
    off = ~np.eye(n, dtype=bool)
    assert (found.sum(axis=-1) == 1).all()
    assert np.abs(found - wanted)[:, off].max() <= 2 * 2.0**-fraction
    assert (found[:, off][scores[:, off] == 0] == 0).all()  # who does not count has no say at all


def test_products_are_compiled_once_and_found_again_by_every_process():
    """Compiling takes longer than everything else that a server does when it starts."""
    code = "from tacit.secure.ring.kernels import warm_up; warm_up()"
    told = ""
    for _ in range(3):  # another process that compiles just now may write over ours, but not thrice
        told = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"NUMBA_DEBUG_CACHE": "1"},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        if "data saved" not in told:
            break
    assert "data loaded" in told
    assert "data saved" not in told
