"""Rows and heads dealt to clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.deal import Dealing
from tacit.errors import TacitError

seeds = st.integers(0, 2**32)


@settings(deadline=None)
@given(seeds, st.integers(2, 40), st.integers(0, 5), st.integers(0, 400), st.floats(0.01, 100))
def test_every_row_is_dealt_once(seed, clients, least, more, concentration):
    rows = clients * least + more
    dealing = Dealing(clients, concentration=concentration, seed=seed, min_rows=least)
    client = dealing.rows(rows)
    sizes = np.bincount(client, minlength=clients)
    assert client.shape == (rows,) and len(sizes) == clients and sizes.min() >= least
    assert np.array_equal(client, dealing.rows(rows))


def test_concentration_is_how_even_the_sizes_are():
    # The share of a client has variance (1/n)(1 - 1/n)/(n c + 1), to which the multinomial adds.
    for concentration in (0.1, 1.0, 10.0, 1000.0):
        dealings = [Dealing(20, 2, concentration, seed, min_rows=0) for seed in range(100)]
        shares = [np.bincount(one.rows(20_000), minlength=20) / 20_000 for one in dealings]
        expected = np.sqrt(0.05 * 0.95 * (1 / (20 * concentration + 1) + 1 / 20_000))
        assert 0.85 * expected < np.std(shares) < 1.15 * expected
        assert abs(np.mean(shares) - 0.05) < 1e-12


def test_rows_are_dealt_at_random_not_in_order():
    client = Dealing(3, concentration=1e6, seed=1).rows(6000)
    assert abs(np.corrcoef(np.arange(6000), client)[0, 1]) < 0.05


@settings(deadline=None)
@given(seeds, st.integers(1, 12), st.integers(2, 40), st.integers(1, 12))
def test_d1_gives_everybody_the_same_number_of_heads(seed, heads, clients, per_client):
    per_client = min(per_client, heads)
    dealing = Dealing(clients, per_client, seed=seed)
    holds = dealing.heads(heads)
    assert holds.shape == (clients, heads) and holds.dtype == bool
    assert (holds.sum(axis=1) == per_client).all()
    assert holds.sum(axis=0).min() >= min(2, clients * per_client // heads)
    assert np.array_equal(holds, dealing.heads(heads))


@settings(deadline=None)
@given(seeds, st.integers(1, 12), st.integers(2, 40))
def test_d2_gives_everybody_at_least_one_head(seed, heads, clients):
    dealing = Dealing(clients, None, seed=seed)
    holds = dealing.heads(heads)
    own = holds.sum(axis=1)
    assert own.min() >= 1 and own.max() <= heads
    assert holds.sum(axis=0).min() >= min(2, int(own.sum()) // heads)
    assert np.array_equal(holds, dealing.heads(heads))


def test_d2_draws_the_number_uniformly_and_both_draw_heads_uniformly():
    own = Dealing(40_000, None, seed=3).heads(8).sum(axis=1)
    assert np.abs(np.bincount(own, minlength=9)[1:] / 40_000 - 1 / 8).max() < 0.01
    for per_client in (2, None):
        held = Dealing(40_000, per_client, seed=3).heads(8).mean(axis=0)
        assert np.ptp(held) < 0.015
    pairs = Dealing(40_000).heads(4) @ (1 << np.arange(4))
    assert np.abs(np.bincount(pairs)[[3, 5, 6, 9, 10, 12]] / 40_000 - 1 / 6).max() < 0.01


def test_streams_do_not_disturb_each_other():
    two, many = Dealing(10, 2, seed=5), Dealing(10, 0, seed=5)
    assert np.array_equal(two.rows(100), many.rows(100))
    assert np.array_equal(Dealing(10, None, seed=5).heads(4), many.heads(4))
    assert not np.array_equal(two.rows(100), two.rows(100, stream=1))
    assert not np.array_equal(two.rows(100), Dealing(10, 2, seed=6).rows(100))
    drawn = two.draw(30, 100, "it")
    assert len(set(drawn.tolist())) == 30 and (np.diff(drawn) > 0).all() and drawn.max() < 100
    assert two.names()[0] == "client-01" and Dealing(100).names()[99] == "client-100"
    assert two.names(("a", "b"))[4:6] == ["a-05", "b-06"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Dealing(1), "clients is 1, expected a whole number, 2 or more"),
        (lambda: Dealing(4, min_rows=3).rows(10), "10 rows are too few for 4 clients"),
        (lambda: Dealing(2, concentration=0), "concentration is 0"),
        (lambda: Dealing(2, concentration=float("nan")), "concentration is nan"),
        (lambda: Dealing(2, seed=-1), "seed is -1"),
        (lambda: Dealing(5, 4).heads(3), "from 1 to 3, or 0"),
        (lambda: Dealing(5).heads(0), "heads is 0"),
        (lambda: Dealing(2.5), "clients is 2.5"),  # pyright: ignore[reportArgumentType]
        (lambda: Dealing(4, min_rows=-1), "min_rows is -1"),
        (lambda: Dealing(4, seed=True), "seed is True"),
        (lambda: Dealing(4).draw(9, 8, "LFW"), "LFW has only 8; pass images=8"),
        (lambda: Dealing(4).draw(0, 8, "LFW"), "images is 0"),
    ],
)
def test_wrong_numbers(call, words):
    with pytest.raises(TacitError, match=words):
        call()
