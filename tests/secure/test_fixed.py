"""Numbers as words of a ring: what fits comes back, what does not is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import TacitError
from tacit.secure.ring.fixed import MARGIN, RINGS
from tacit.secure.ring.sharing import hide, mask, reconstruct
from tacit.secure.ring.stream import Stream, fresh_seed

BITS = pytest.mark.parametrize("bits", [32, 64])


@BITS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_sum_with_weights_that_add_up_to_one_never_wraps_around(bits: int, data) -> None:
    fixed = RINGS[bits]
    largest = fixed.range * (1 - 2 * MARGIN)
    n = data.draw(st.integers(1, 5))
    values = np.array(data.draw(st.lists(st.floats(-largest, largest), min_size=n, max_size=n)))
    cuts = sorted(
        data.draw(st.lists(st.integers(0, 2**fixed.weight), min_size=n - 1, max_size=n - 1))
    )
    weights = np.diff([0, *cuts, 2**fixed.weight]).astype(fixed.word)
    fixed.check(values, "a number")
    total = (weights * fixed.encode(values)).sum(dtype=fixed.word)
    wanted = float((weights.astype(np.float64) @ values) / 2.0**fixed.weight)
    found = float(fixed.decode(np.array([total]))[0])
    rounding = fixed.range * (2.0**-22 if bits == 32 else 2.0**-48)  # of single or double precision
    assert abs(found - wanted) <= fixed.error + rounding


@BITS
def test_what_does_not_fit_is_refused(bits: int) -> None:
    fixed = RINGS[bits]
    for value in (fixed.range, -fixed.range, np.inf, -np.inf, np.nan):
        with pytest.raises(TacitError, match=f"w is .*, but shares of {bits} bits hold numbers"):
            fixed.check(np.array([0.0, value]), "w")
    fixed.check(np.array([]), "w")


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([np.uint32, np.uint64]),
    st.integers(0, 3), st.integers(0, 40),
)  # fmt: skip
def test_shares_give_back_the_secret(masks, seed, dtype, number, size) -> None:
    secret = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, size, dtype, True)
    seeds = [fresh_seed() for _ in range(masks)]
    shares = [mask(one, secret.shape, dtype, number) for one in seeds]
    assert (reconstruct([hide(secret, seeds, number), *shares]) == secret).all()


def test_streams_differ_by_seed_and_number() -> None:
    seed = fresh_seed()
    first = Stream(seed).words((64,), np.uint64)
    assert (Stream(seed).words((64,), np.uint64) == first).all()
    for other in (Stream(seed, 1), Stream(fresh_seed())):
        assert not np.intersect1d(other.words((64,), np.uint64), first).size
    halves = Stream(seed)
    joined = np.concatenate([halves.words((20,), np.uint64), halves.words((44,), np.uint64)])
    assert (joined == first).all()
    with pytest.raises(ValueError, match="16 bytes"):
        Stream(b"short")
