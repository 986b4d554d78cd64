"""Seeded changes to the content of a file, as a bad disk or a bad author would make them."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from random import Random

NUMBERS = (
    b"0", b"-1", b"1", b"2", b"255", b"65536", b"2147483648", b"-9223372036854775809", b"1e999",
    b"1e-400", b"NaN", b"Infinity", b"0.5", b"99999999999999999999999", b"9" * 5000,
)  # fmt: skip
WORDS = (
    b"null", b"true", b"{}", b"[]", b'""', b'"', b"'", b",", b";", b"\t", b"\r", b"\n", b"\r\n",
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"=", b"[", b"{", b".", b"#", b"\\u0000", b"a" * 300,
    b"[" * 3000, b'{"a":' * 3000, b"a." * 300, b"x = [" * 50,
)  # fmt: skip
Mutator = Callable[[bytes, Random], bytes]


def mutated(content: bytes, random: Random) -> bytes:
    """A few changes in a row."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        content = random.choice(CHANGES)(content, random)
    return content[: 1 << 20]


def _place(content: bytes, random: Random) -> int:
    return random.randrange(len(content) + 1)


def _span(content: bytes, random: Random) -> slice:
    begin = _place(content, random)
    return slice(begin, begin + random.choice((1, 2, 4, 16, 100)))


def flip(content: bytes, random: Random) -> bytes:
    if not content:
        return b"\x01"
    changed = bytearray(content)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def remove(content: bytes, random: Random) -> bytes:
    span = _span(content, random)
    return content[: span.start] + content[span.stop :]


def double(content: bytes, random: Random) -> bytes:
    span = _span(content, random)
    return (
        content[: span.stop] + content[span] * random.choice((1, 1, 2, 50)) + content[span.stop :]
    )


def insert(content: bytes, random: Random) -> bytes:
    place = _place(content, random)
    new = random.choice((*WORDS, *NUMBERS, random.randbytes(random.randrange(9))))
    return content[:place] + new + content[place:]


def renumber(content: bytes, random: Random) -> bytes:
    """One of the numbers in it becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    if not found:
        return insert(content, random)
    one = random.choice(found)
    return content[: one.start()] + random.choice(NUMBERS) + content[one.end() :]


def move(content: bytes, random: Random) -> bytes:
    span = _span(content, random)
    rest = content[: span.start] + content[span.stop :]
    place = _place(rest, random)
    return rest[:place] + content[span] + rest[place:]


CHANGES: tuple[Mutator, ...] = (flip, flip, cut, remove, double, insert, insert, renumber, move)


def in_zip(content: bytes, random: Random) -> bytes:
    """Inside one member, so that sums are right; or around them."""
    if random.random() < 0.3:
        return mutated(content, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = random.choice(names)
        for name in names:
            inner = old.read(name)
            if name == chosen:
                # Most of an array is numbers; what it is stands at its beginning.
                head = 128 if random.random() < 0.7 else len(inner)
                inner = mutated(inner[:head], random) + inner[head:]
                other = random.choice((name, name, name, name[:-4], "names.npy", "features.npy"))
                name = name if other in names else other
            new.writestr(name, inner)
    return out.getvalue()


def in_tensors(content: bytes, random: Random) -> bytes:
    """Inside the header of a safetensors file, whose length is right; or anywhere."""
    if random.random() < 0.3:
        return mutated(content, random)
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    plain = json.loads(header)
    notes = plain.get("__metadata__", {}).get("notes")
    if notes is not None and random.random() < 0.6:
        changed = mutated(notes.encode(), random).decode("utf-8", "replace")
        plain["__metadata__"]["notes"] = changed
        header = json.dumps(plain).encode()
    else:
        header = mutated(header, random)
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]
