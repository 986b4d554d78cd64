"""What coordinator and silos say to each other: plain values and tensors, as one safetensors file.

    coordinator ──► Request ──► silo ──► Reply ──► coordinator

Nothing that arrives is code, and nothing is unpickled. Whoever reads a message checks it; a message
that cannot be read is an error of whoever sent it (`Unreadable`), and never a crash.
"""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tacit.checks import annotations_of, fits
from tacit.errors import TacitError
from tacit.words import listed

Kind = Literal["train", "receive", "share", "measure", "finish"]
State = Literal["done", "refused", "failed"]
MESSAGE = "message"
LONGEST_WORDS = 2000
MOST_ROWS = 1 << 40
"""No silo has more; larger numbers would not fit where they are weighed."""
LONGEST_HEADER = 8 << 20
"""Bytes of the plain values and the names of tensors: read into memory many times as large."""
WIDEST = 256
"""Bits of a whole number: larger ones are of no use, and slow to write down."""
UNREADABLE = (ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError)
"""What reading garbage raises; JSON that is nested too deeply is garbage, too."""


class Unreadable(TacitError):
    """Bytes that are not a message; `why` follows on from who sent it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a message {why}")
        self.why = why


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the coordinator asks of one silo."""

    kind: Kind
    run: str
    """Which run; a silo keeps what it has done in each."""
    round: int
    terms: Mapping[str, Any]
    """The coordinator's copy; see `terms`."""
    key: int = 0
    """Public: starts the model and shuffles rows, the same at every party."""
    noise: float = 0.0
    """The noise multiplier of a release of weight one; 0 where nothing is private."""
    spread: float = 0.0
    """Standard deviation of this round's noise in each published number, in clips."""
    clip: float | None = None
    takes_part: bool = True
    """Whether the silo is in this round's cohort; if not, it does the same work for nothing."""
    job: Mapping[str, Any] | None = None
    """What servers on shares do in this round; see `tacit.secure.jobs.job`."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    """Comes back with the reply: no other silo, and no earlier reply, can know it."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return _pack(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        found = _unpack(cls, content)
        if found.round < 0:
            raise Unreadable("with a wrong round")
        return found


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a silo answers. Reasons are about the request: they tell nothing about rows."""

    nonce: str
    state: State = "done"
    reason: str = ""
    size: int = 0
    """On the exchange: how many rows the silo trained on."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return _pack(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        found = _unpack(cls, content)
        if not 0 <= found.size < MOST_ROWS:
            raise Unreadable("with a wrong size")
        return dataclasses.replace(found, reason=found.reason[:LONGEST_WORDS])


class Broken(Reply):
    """Made at the coordinator for a reply that cannot be read: its reason is in our own words."""


def _pack(message: Request | Reply) -> bytes:
    plain = {
        field.name: getattr(message, field.name)
        for field in dataclasses.fields(message)
        if field.name != "tensors"
    }
    tensors = {name: value.cpu().contiguous() for name, value in message.tensors.items()}
    # `true` is shorter than `false`, and whoever watches the network sees lengths.
    even = " " * sum(value is True for value in plain.values())
    return safetensors.torch.save(tensors, {MESSAGE: json.dumps(plain) + even})


def _unpack(kind: type[Any], content: bytes) -> Any:
    try:
        length = int.from_bytes(content[:8], "little")
        if length > min(len(content), LONGEST_HEADER):
            raise ValueError("cut short, or too long")
        header = json.loads(content[8 : 8 + length])
        plain = json.loads(header["__metadata__"][MESSAGE], parse_constant=_no_constant)
        tensors = safetensors.torch.load(content)
        made = kind(**plain, tensors=tensors)
    except UNREADABLE as error:
        raise Unreadable(f"that cannot be read ({type(error).__name__})") from None
    for name, annotation in annotations_of(kind).items():
        value = getattr(made, name)
        if not fits(annotation, value) or _beyond(value):
            raise Unreadable(f"with a wrong {name}")
    return made


def _beyond(value: Any) -> bool:
    """Whether it is a number that is not finite, or has too many bits."""
    if isinstance(value, int):
        return value.bit_length() > WIDEST
    return isinstance(value, float) and not math.isfinite(value)


def _no_constant(text: str) -> float:
    raise ValueError(text)


def padding(size: int) -> Tensor:
    """Random numbers in place of a contribution, so that the reply is as large as any other.

    Zeros would not do: Flower sends parts of a message that are alike only once.
    """
    drawn = np.frombuffer(secrets.token_bytes(4 * size), np.int32)
    return torch.from_numpy(drawn / (2.0**31 * math.sqrt(size))).float()


def same_shape(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], unknown: Collection[str] = ()
) -> str:
    """What is wrong with these tensors, in words; nothing if they are like the expected ones.

    Those that are named as `unknown` may hold NaN.
    """
    if tensors.keys() != expected.keys():
        return f"has {listed(sorted(tensors)) or 'nothing'}, expected {', '.join(expected)}"
    for name, value in tensors.items():
        wanted = expected[name]
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            found = f"{list(value.shape)} of {value.dtype}"
            return f"has {name} {found}, expected {list(wanted.shape)} of {wanted.dtype}"
        known = value[~value.isnan()] if name in unknown else value
        if value.dtype.is_floating_point and not bool(torch.isfinite(known).all()):
            return f"has {name} with values that are not finite"
    return ""
