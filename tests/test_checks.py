"""The one type check, the one did-you-mean and the one reader of addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from tacit import TacitError
from tacit.checks import annotations_of, check_type, did_you_mean, fits, host_and_port, near
from tacit.methods import METHODS


@pytest.mark.parametrize(
    ("annotation", "good", "wrong"),
    [
        (bool, [True, False], [0, 1, 1.0, "true", None]),
        (int, [0, -3, 10**30, np.int64(3)], [True, 1.0, "1", None, np.float64(1)]),
        (float, [0.5, 3, float("inf"), np.float32(1), np.int8(1)], [True, "1", None, [1.0]]),
        (str, ["", "a"], [1, True, None, b"a", ["a"]]),
        (int | None, [1, None], [True, 0.5, "none"]),
        (float | int | None, [1, 0.5, None], [True, "1"]),
        (Literal["own", "none"], ["own"], ["other", 1, None]),
        (Literal[32, 64] | None, [32, None], [33, "32", 32.0, True]),
        (Literal[1], [1], [True, 1.0]),
        (Sequence[str], [[], ["a"], ("a", "b"), np.array(["a"]), {"a"}], ["a", [1], {"a": 1}, 3]),
        (tuple[str, ...], [["a"], ("a", "b"), []], ["ab", [1], None]),
        (tuple[float, float], [(0, 1.5), [1, 2]], [(1,), (1, 2, 3), "ab", (1, "2")]),
        (Mapping[str, Any], [{}, {"a": None}], [{1: 2}, [], "a", None]),
        (Any, [None, 3, "a"], []),
    ],
)
def test_values_and_annotations(annotation, good, wrong):
    assert [value for value in good if not fits(annotation, value)] == []
    assert [value for value in wrong if fits(annotation, value)] == []


def test_annotations_are_types_with_those_of_bases_and_every_default_fits():
    for kind in METHODS.values():
        known = annotations_of(kind)
        for name, value in vars(kind()).items():
            assert not isinstance(known[name], str)
            assert fits(known[name], value), (kind, name)


@pytest.mark.parametrize(
    ("annotation", "value", "sentence"),
    [
        (float, "wide", "clip='wide' must be a number"),
        (int | None, 2.5, "clip=2.5 must be a whole number or none"),
        (Literal["own", "none"], "all", "clip='all' must be one of own, none"),
        (Sequence[str] | None, 3, "clip=3 must be a list of text or none"),
        (tuple[float, float], 3, "clip=3 must be a list of 2, each a number"),
        (bool, 1, "clip=1 must be true or false"),
    ],
)
def test_a_wrong_type_is_one_sentence(annotation, value, sentence):
    with pytest.raises(TacitError) as found:
        check_type("clip", annotation, value)
    assert str(found.value) == sentence


def test_a_wrong_value_is_shown_cut_and_on_one_line():
    with pytest.raises(TacitError) as found:
        check_type("clip", float, "\x1b\n" + "x" * 10_000)
    assert str(found.value).isprintable() and len(str(found.value)) < 600


def test_did_you_mean():
    assert did_you_mean("age", ["AGE", "sex"]) == "; did you mean 'AGE'?"
    assert did_you_mean("zzz", ["age"]) == ""
    assert near("rnds", ["rounds", "seed"]) == "; did you mean 'rounds'? there are: rounds, seed"
    assert near("zzz", map(str, range(14))).endswith("10, 11 and 2 more")


def test_addresses():
    assert host_and_port("a.b:7000") == ("a.b", 7000)
    assert host_and_port("[::1]:1") == ("::1", 1)
    for wrong in ("", "a", ":1", "a:", "a:0", "a:70000", "a:x", "a:" + "9" * 5000):
        with pytest.raises(TacitError, match="write host:port"):
            host_and_port(wrong)
