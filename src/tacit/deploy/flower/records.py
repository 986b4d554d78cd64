"""Our messages inside Flower's: bytes, which nobody but us interprets.

Flower makes several requests for an array and fewer for a plain value, but cuts only arrays into
parts: what is small travels as the one, what is large as the other.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from tacit.deploy.messages import Unreadable

NAME, FORM = "tacit", "safetensors"
SMALL = 1 << 20


def pack(content: bytes) -> RecordDict:
    if len(content) <= SMALL:
        return RecordDict({NAME: ConfigRecord({NAME: content})})
    array = Array(dtype="uint8", shape=(len(content),), stype=FORM, data=content)
    return RecordDict({NAME: ArrayRecord({NAME: array})})


def unpack(records: RecordDict) -> bytes:
    """What `pack` packed; raises `Unreadable`. Flower's own decoding of arrays is not used."""
    record = records.get(NAME)
    if isinstance(record, ConfigRecord | ArrayRecord) and set(record) == {NAME}:
        value = record[NAME]
        content = value.data if isinstance(value, Array) else value
        if isinstance(content, bytes):
            return content
    raise Unreadable("without content")
