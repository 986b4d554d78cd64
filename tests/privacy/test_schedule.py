"""Shares of a budget that a method spreads over its rounds."""

from __future__ import annotations

import math

import pytest

from tacit.errors import TacitError
from tacit.privacy.schedule import shares, suggest


def test_shares_of_the_rounds():
    assert shares(3).tolist() == [1, 1, 1]
    assert shares(3, 0.4) == pytest.approx([1, 2**0.4, 3**0.4])
    assert shares(3, q=0.5) == pytest.approx([2, 4, 8])
    assert shares(299, q=math.exp(-1))[-1] == pytest.approx(math.exp(299))
    with pytest.raises(TacitError, match="use fewer rounds"):
        shares(301, q=math.exp(-1))


def test_suggested_schedules_of_the_paper():
    q, momentum = suggest(0.19, 1.0, accelerated=False)
    assert (q, momentum) == (pytest.approx(0.81**0.4), 0.0)
    q, momentum = suggest(0.25, 1.0, accelerated=True)
    assert (q, momentum) == (pytest.approx(0.5**0.2), pytest.approx(1 / 3))
    assert suggest(1.0, 100.0, True) == suggest(0.5, 50.0, True)  # only μ/L counts


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: shares(0), "rounds=0"),
        (lambda: shares(5, 0.4, q=0.9), "give one of the two"),
        (lambda: shares(5, q=-0.5), "q=-0.5"),
        (lambda: shares(10_000, q=0.5), "use fewer rounds"),
        (lambda: suggest(2.0, 1.0, True), "0 < mu < lipschitz"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(call, says):
    with pytest.raises(TacitError, match=says):
        call()
