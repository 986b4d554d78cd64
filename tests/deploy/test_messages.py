"""What arrives is read as data or not at all, whoever sent it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.deploy.messages import (
    LONGEST_WORDS,
    MESSAGE,
    Reply,
    Request,
    Unreadable,
    padding,
    same_shape,
)

NUMBERS = {"sent": torch.arange(3.0)}
REQUEST = Request(
    kind="train", run="0" * 32, round=2, terms={"rounds": 4}, clip=0.5, tensors=NUMBERS
)
REPLY = Reply(nonce="n", size=7, tensors=NUMBERS)


def written(text: str, tensors=NUMBERS) -> bytes:
    """A message with any text in the place of its plain values."""
    return safetensors.torch.save(tensors, {MESSAGE: text})


def with_(message, **changes) -> bytes:
    """A message with other plain values, whatever their types."""
    plain = {k: v for k, v in vars(message).items() if k != "tensors"} | changes
    return written(json.dumps(plain))


@pytest.mark.parametrize("message", [REQUEST, REPLY])
def test_messages_come_back_as_they_were(message):
    found = type(message).from_bytes(message.to_bytes())
    assert {**vars(found), "tensors": None} == {**vars(message), "tensors": None}
    assert torch.equal(found.tensors["sent"], NUMBERS["sent"])


@pytest.mark.parametrize("length", range(8))
def test_the_length_of_a_request_does_not_tell_who_takes_part(length):
    """Headers are filled up to multiples of eight: one letter can be worth eight."""
    terms = {"name": "x" * length}
    sizes = {
        len(dataclasses.replace(REQUEST, terms=terms, takes_part=part).to_bytes())
        for part in (True, False)
    }
    assert len(sizes) == 1


def test_padding_is_finite_within_the_clip_and_never_alike():
    one, two = padding(1 << 16), padding(1 << 16)
    assert one.dtype == torch.float32 and float(torch.linalg.vector_norm(one)) <= 1
    assert bool(one.isfinite().all()) and not torch.equal(one, two)
    assert len(one.unique()) > 0.9 * len(one)  # no two parts of a message are the same


def test_every_request_has_a_nonce_of_its_own():
    first, second = (Request(kind="train", run="", round=0, terms={}).nonce for _ in range(2))
    assert first != second and len(first) == 32


@pytest.mark.parametrize("kind", [Request, Reply])
@pytest.mark.parametrize(
    "content",
    [
        b"", b"\0", b"garbage", b"\xff" * 64, b"\0" * 64, b"\x02\0\0\0\0\0\0\0{}",
        b"\x02\0\0\0\0\0\0\0[]", b"\x80\x04K\x01.", (1 << 62).to_bytes(8, "little") + b"{}",
        written("no json"), written("[]"), written("{}"), written("null"), written('{"x": 1}'),
        written("[" * 100_000), written('{"nonce": "n", "tensors": {}}'),
        safetensors.torch.save(NUMBERS), safetensors.torch.save(NUMBERS, {"other": "{}"}),
    ],
)  # fmt: skip
def test_garbage_is_unreadable_and_nothing_worse(kind, content):
    with pytest.raises(Unreadable):
        kind.from_bytes(content)


@pytest.mark.parametrize("message", [REQUEST, REPLY])
def test_a_message_cut_short_anywhere_is_unreadable(message):
    content = message.to_bytes()
    for length in range(len(content)):
        with pytest.raises(Unreadable):
            type(message).from_bytes(content[:length])


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_message_with_any_byte_changed_is_read_or_unreadable(position, byte):
    content = bytearray(REQUEST.to_bytes())
    content[position % len(content)] = byte
    try:
        found = Request.from_bytes(bytes(content))
    except Unreadable:
        return
    assert isinstance(found.round, int) and isinstance(found.run, str)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "execute"}, {"kind": "work"}, {"kind": None}, {"kind": 1}, {"round": -1},
        {"round": 1.5}, {"round": "1"}, {"round": True}, {"round": None}, {"run": 3},
        {"run": ["0" * 32]}, {"terms": []}, {"terms": None}, {"terms": "all"}, {"key": "1"},
        {"key": 1.0}, {"noise": "2"}, {"noise": None}, {"noise": True}, {"spread": []},
        {"clip": "1"}, {"clip": False}, {"clip": {}}, {"takes_part": 1}, {"takes_part": "no"},
        {"job": []}, {"job": 1}, {"nonce": 0}, {"nonce": None}, {"more": 1},
        {"noise": float("nan")}, {"noise": float("inf")}, {"clip": float("-inf")},
    ],
)  # fmt: skip
def test_a_request_of_wrong_types_is_unreadable(changes):
    with pytest.raises(Unreadable):
        Request.from_bytes(with_(REQUEST, **changes))


@pytest.mark.parametrize("name", ["noise", "spread", "clip"])
def test_a_number_too_large_for_a_float_is_no_way_to_say_infinity(name):
    text = json.dumps({k: v for k, v in vars(REQUEST).items() if k not in ("tensors", name)})
    with pytest.raises(Unreadable, match=name):
        Request.from_bytes(written(f'{text[:-1]}, "{name}": 1e999}}'))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "fine"}, {"state": 1}, {"size": -1}, {"size": 1.0}, {"size": "7"},
        {"size": 1 << 63}, {"size": 10**30}, {"reason": 5}, {"reason": None}, {"nonce": 5},
        {"kind": "train"},
    ],
)  # fmt: skip
def test_a_reply_of_wrong_types_is_unreadable(changes):
    with pytest.raises(Unreadable):
        Reply.from_bytes(with_(REPLY, **changes))


def test_a_reason_is_only_so_long():
    found = Reply.from_bytes(Reply(nonce="", state="failed", reason="x" * 10**5).to_bytes())
    assert len(found.reason) == LONGEST_WORDS


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "has nothing, expected sent"),
        ({"other": torch.zeros(3)}, "has other, expected sent"),
        ({"sent": torch.zeros(3), "more": torch.zeros(1)}, "has more, sent, expected sent"),
        ({"sent": torch.zeros(4)}, "[4] of torch.float32, expected [3]"),
        ({"sent": torch.zeros(1, 3)}, "[1, 3]"),
        ({"sent": torch.zeros(3).double()}, "torch.float64, expected [3] of torch.float32"),
        ({"sent": torch.zeros(3, dtype=torch.int64)}, "torch.int64"),
        ({"sent": torch.tensor([0.0, torch.nan, 0.0])}, "not finite"),
        ({"sent": torch.tensor([0.0, -torch.inf, 0.0])}, "not finite"),
    ],
)
def test_tensors_unlike_the_expected_are_told_in_words(tensors, said):
    assert said in same_shape(tensors, NUMBERS)


def test_tensors_like_the_expected_are_fine():
    assert same_shape({"sent": torch.ones(3)}, NUMBERS) == ""
