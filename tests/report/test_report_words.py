"""The guarantee in words: never greener, and never smaller, than it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.report import words


def promise(**changed):
    base = {
        "epsilon": 1.0, "delta": 1e-3, "neighbours": "add-remove", "private": True,
        "channel": "billboard", "seeded": False, "leaks": [],
    }  # fmt: skip
    return {**base, **changed}


@pytest.mark.parametrize(
    ("changed", "key", "colour"),
    [
        ({}, "private", "green"),
        ({"epsilon": 2.19}, "private", "green"),
        ({"epsilon": 4.0}, "moderate", "amber"),
        ({"epsilon": 10.0}, "moderate", "amber"),
        ({"epsilon": 10.01}, "weak", "amber"),
        ({"seeded": True, "private": False}, "seeded", "amber"),
        ({"seeded": True, "private": True}, "seeded", "amber"),
        ({"leaks": ["x"], "private": False}, "leaks", "amber"),
        ({"leaks": ["x"], "private": True}, "leaks", "amber"),
        ({"private": False}, "unsure", "amber"),
        ({"epsilon": None, "private": False}, "none", "red"),
        ({"epsilon": None, "private": True}, "none", "red"),
        ({"epsilon": None, "leaks": ["x"], "seeded": True}, "none", "red"),
        (
            {"epsilon": 0.0, "channel": "nothing", "seeded": True, "private": False},
            "alone",
            "green",
        ),
        ({"epsilon": 0.0, "channel": "nothing", "leaks": ["x"]}, "leaks", "amber"),
    ],
)
def test_state_is_green_only_when_everything_says_so(changed, key, colour):
    found = words.state(promise(**changed))
    assert (found.key, found.colour) == (key, colour)


def test_an_empty_guarantee_is_no_privacy():
    assert words.state({}).colour == "red"


@given(st.floats(1e-6, 60))
def test_epsilon_and_its_factor_are_never_rounded_down(epsilon):
    assert float(words.epsilon_text({"epsilon": epsilon})) >= epsilon * (1 - 1e-5)
    factor = words.factor_text(epsilon)
    if words.TIMES in factor:
        digits = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
        mantissa, power = factor.split(f" {words.TIMES} 10")
        value = float(mantissa) * 10 ** int(power.translate(digits))
    else:
        value = float(factor.replace(words.NARROW, ""))
    assert math.exp(epsilon) * (1 - 1e-5) <= value <= math.exp(epsilon) * 1.12


@given(st.floats(1e-12, 0.5))
def test_delta_is_the_one_of_the_guarantee(delta):
    shown = words.delta_text(delta)
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    if words.TIMES in shown:
        mantissa, power = shown.split(f" {words.TIMES} 10")
        value = float(mantissa) * 10.0 ** int(power.translate(digits))
    else:
        value = float(shown)
    assert delta * (1 - 1e-6) <= value <= delta * 1.0101  # three digits, rounded up


def test_what_epsilon_one_means():
    said = words.meaning(promise())
    assert "took part" in said
    assert "e^ε = 2.8" in said  # 2.718 rounded up
    assert f"δ = 0.001 (1 in 1{words.NARROW}000)" in said
    assert "at most 74 % sure" in said  # e / (1 + e) = 0.731
    assert "weak" not in said


def test_a_large_epsilon_is_called_weak():
    said = words.meaning(promise(epsilon=20.0))
    assert "weak promise" in said
    assert "all but certain" in said
    assert "4.9 × 10⁸" in said


def test_replace_speaks_of_data_and_not_of_taking_part():
    said = words.meaning(promise(neighbours="replace"))
    assert "took part" not in said
    assert "true data" in said


@pytest.mark.parametrize(
    "changed", [{"seeded": True, "private": False}, {"leaks": ["x"]}, {"private": False}]
)
def test_a_promise_that_does_not_hold_is_conditional(changed):
    assert "the promise would be" in words.meaning(promise(**changed))
    assert "the promise would be" not in words.meaning(promise())


def test_shares_say_none_and_all_only_when_true():
    assert words.share(1, 3000) == "under 1 %"
    assert words.share(2999, 3000) == "over 99 %"
    assert (words.share(0, 7), words.share(7, 7)) == ("0 %", "100 %")


def test_a_refuted_mechanism_is_said_to_be_refuted():
    told = {"channel": "billboard", "epsilon": None, "refuted": "why", "private": False}
    assert "refuted" in words.state(told).headline
    assert "none is true" in words.meaning(told)
    assert "refuted" not in words.state(told | {"refuted": ""}).headline
