"""Seeded changes to what travels: bytes on a wire, and values inside JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

EXTREMES = (
    b"\0",
    b"\xff",
    b"\0" * 8,
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"{}",
    b"[" * 3000,
    b"\r\n",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63), 10**9, 10**30, 10**4000, 0.5, 1e-300,
    1e308, float("nan"), float("inf"), "", "x", "\x1b[2J\n\u202e", "y" * 5000, "0" * 32, "ann",
    [], [[]], ["ann", "ann"], [None], {}, {"a": {}}, {"kind": "sum"}, "coordinator", "server-0",
)  # fmt: skip


def changed(content: bytes, random: Random) -> bytes:
    """Bytes that were flipped, cut, repeated, moved or made up, a few times over."""
    for _ in range(random.choice((1, 1, 2, 4))):
        at, length = random.randrange(len(content) + 1), random.choice((1, 2, 8, 100))
        before, piece, after = content[:at], content[at : at + length], content[at + length :]
        match random.randrange(7):
            case 0:
                flipped = bytes([piece[0] ^ 1 << random.randrange(8)]) if piece else b"\1"
                content = before + flipped + piece[1:] + after
            case 1:
                content = before
            case 2:
                content = before + after
            case 3:
                content = before + piece * random.choice((2, 3, 50)) + after
            case 4:
                content = before + random.choice(EXTREMES) + piece + after
            case 5:
                content = before + random.randbytes(len(piece)) + after
            case _:
                content = after + before + piece
    return content[: 1 << 20]


def changed_value(value: Any, random: Random) -> Any:
    """A value of JSON in which something, at any depth, is something else."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value))
        other = dict(value)
        match random.randrange(6):
            case 0:
                del other[key]
            case 1:
                other[random.choice(("", "kind", "x" * 999, "\x1b[2J", "servers"))] = _made_up(
                    random
                )
            case _:
                other[key] = changed_value(value[key], random)
        return other
    if isinstance(value, list | tuple) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        return [*value[:at], changed_value(value[at], random), *value[at + 1 :]]
    return _made_up(random)


def _made_up(random: Random) -> Any:
    if random.random() < 0.02:
        deep: Any = 0
        for _ in range(900):
            deep = [deep]
        return deep
    return random.choice(VALUES)


def changed_json(text: bytes, random: Random) -> bytes:
    """Mostly still JSON, now and then not even that."""
    if random.random() < 0.2:
        return changed(text, random)
    value = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 5))):
        value = changed_value(value, random)
    return json.dumps(value).encode()
