"""The texts in a serialised `tf.train.Example`, without TensorFlow.

The message is small: Example { 1: Features { 1: repeated entry { 1: name, 2: Feature } } } and
Feature { 1: bytes list { 1: repeated bytes } | 2: floats | 3: integers }. Only texts are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def first_texts(message: bytes) -> dict[str, str]:
    """The first text of every feature that holds texts; ValueError if it is not such a message."""
    found: dict[str, str] = {}
    for features in _parts(message, 1):
        for entry in _parts(features, 1):
            name = b"".join(_parts(entry, 1)).decode("utf-8")
            for feature in _parts(entry, 2):
                for values in _parts(feature, 1):
                    first = next(_parts(values, 1), b"")
                    found[name] = first.decode("utf-8", errors="replace")
    return found


def _parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """The fields of this number that hold bytes."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, at = _number(message, at)
        elif kind == _BYTES:
            size, at = _number(message, at)
            if at + size > len(message):
                raise ValueError("it ends too early")
            if field == wanted:
                yield message[at : at + size]
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"it has a field of unknown kind {kind}")


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A varint: seven bits a byte, the lowest first; the top bit says that more follow."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("it ends too early")
