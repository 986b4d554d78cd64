"""TFF's Stack Overflow data, for tag prediction: 10 000 words to 500 tags, a task for each user.

Two layouts are read, both as TensorFlow Federated publishes them:

| file                     | layout                                                               |
|--------------------------|----------------------------------------------------------------------|
| `stackoverflow_train.h5` | group `examples`, in it a group per user with arrays of bytes        |
|                          | `tokens`, `title`, `tags`, one entry per row                         |
| `stackoverflow.sqlite`   | table `examples` (split_name, client_id, serialized_example_proto)   |
|                          | with `tf.train.Example` messages, and `client_metadata` (client_id,  |
|                          | split_name, num_examples)                                            |

Of either only the training split is used; each user's rows are then split as everywhere in tacit.
A text is the sentence and the title, tokenised by TFF (words with blanks between); tags are joined
with "|". `stackoverflow.word_count` and `stackoverflow.tag_count` in the same folder are taken as
the vocabularies: TFF publishes them, though it counted them over these very users.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.checks import check_whole, needing
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.words import Texts, sizes_and_rule, tag_federation
from tacit.errors import TacitError

FILES = ("stackoverflow_train.h5", "stackoverflow.sqlite")
FIELDS = ("tokens", "title", "tags")

Row = tuple[str, str, str]
User = tuple[str, list[Row]]


def stackoverflow(
    path: str | Path | None = None, *, users: int = 400, rows: int = 500, **sized: Any
) -> Federation:
    """The first `users` users (by id) with at least `min_rows` rows, `rows` of each at most."""
    sizes, rule = sizes_and_rule({"min_rows": 3} | sized)
    check_whole("users", users, 2)
    check_whole("rows", rows, 1)
    file = only(find("stackoverflow", path, ("stackoverflow",)), FILES, "TFF's file")
    for name in ("word", "tag"):
        beside = file.parent / f"stackoverflow.{name}_count"
        if beside.is_file() and not getattr(sizes, f"{name}s_file"):
            sizes = replace(sizes, **{f"{name}s_file": beside})
    read = _hdf5 if file.suffix in (".h5", ".hdf5") else _sqlite
    texts = Texts([], [], [])
    for user, own in read(file, users, rows, max(rule.min_rows, rule.needed)):
        for tokens, title, joined in own:
            texts.add(user, f"{tokens} {title}".split(), [t for t in joined.split("|") if t])
    if not texts.users:
        raise TacitError(f"{file} has no user with {rule.min_rows} rows or more; lower min_rows")
    said = f"the first {users} users (by id) with {rule.min_rows} rows or more, {rows} rows at most"
    return tag_federation(texts, sizes, rule, "TFF Stack Overflow", (said,))


def _hdf5(file: Path, users: int, rows: int, least: int) -> Iterator[User]:
    with needing("h5py", f"reading {file}", "data", ", or use the SQLite file"):
        import h5py
    try:
        archive = h5py.File(file, "r")
    except OSError as error:
        raise TacitError(f"{file} is not an HDF5 file that can be read: {error}") from None
    with archive:
        examples: Any = archive.get("examples")
        if not isinstance(examples, h5py.Group):
            raise TacitError(
                f"{file} has no group 'examples'; expected the file that TFF publishes"
            )
        taken = 0
        for user, group in examples.items():
            if not all(field in group for field in FIELDS):
                raise TacitError(f"user {user!r} of {file} lacks one of {', '.join(FIELDS)}")
            if len(group["tags"]) < least:
                continue
            columns = [[_text(cell) for cell in group[field][:rows]] for field in FIELDS]
            yield user, list(zip(*columns, strict=True))
            taken += 1
            if taken == users:
                return


def _sqlite(file: Path, users: int, rows: int, least: int) -> Iterator[User]:
    which = "SELECT client_id FROM client_metadata WHERE split_name = 'train' AND num_examples >= ?"
    theirs = "SELECT serialized_example_proto FROM examples WHERE client_id = ? AND split_name = ?"
    try:
        # `immutable`: nothing is written beside a file that may lie in a folder for reading only.
        place = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(place, uri=True)) as base:
            found = base.execute(f"{which} ORDER BY client_id LIMIT ?", (least, users)).fetchall()
            for (user,) in found:
                blobs = base.execute(f"{theirs} ORDER BY rowid LIMIT ?", (user, "train", rows))
                yield str(user), [_row(blob, user, file) for (blob,) in blobs]
    except sqlite3.Error as error:
        raise TacitError(
            f"{file} is not an SQLite file of TFF ({error}); unpack the .lzma archive it comes in"
        ) from None


def _row(blob: bytes, user: str, file: Path) -> Row:
    try:
        found = first_texts(blob)
        return found["tokens"], found["title"], found["tags"]
    except (KeyError, ValueError) as error:
        raise TacitError(
            f"a row of user {user!r} of {file} is not an example with {', '.join(FIELDS)} ({error})"
        ) from None


def _text(cell: Any) -> str:
    return cell.decode("utf-8", errors="replace") if isinstance(cell, bytes) else str(cell)


_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def first_texts(message: bytes) -> dict[str, str]:
    """The first text of every feature of a serialised `tf.train.Example` that holds texts.

    Without TensorFlow, because the message is small: Example { 1: Features { 1: repeated entry { 1:
    name, 2: Feature } } } and Feature { 1: bytes list { 1: repeated bytes } | 2: floats |
    3: integers }. Raises ValueError if it is not such a message.
    """
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
