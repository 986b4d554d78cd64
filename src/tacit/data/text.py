"""Texts with an author each: a CSV file of your own, or the posts of a Stack Exchange site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.cells import Table, missing, texts
from tacit.data.federation import Federation
from tacit.data.folders import find, only
from tacit.data.reading import read_table
from tacit.data.targets import RawTarget
from tacit.data.words import (
    Texts,
    sizes_and_rule,
    tag_federation,
    text_federation,
    without_markup,
    words_of,
)
from tacit.errors import TacitError

POSTS = ("Posts.csv.gz", "Posts.csv")
_TAG = re.compile(r"<([^<>]+)>")


def text(
    path: str | Path | None = None,
    *,
    task: str = "user",
    text: str = "text",
    target: str = "tags",
    separator: str | None = "|",
    **sized: Any,
) -> Federation:
    """A table (.csv, .csv.gz, .parquet) with the columns `task`, `text` and `target`.

    The target is several tags with a separator between them, or one label where `separator` is
    None (then `tags` and `tags_file` do not matter). A row without tags has none of them.
    """
    sizes, rule = sizes_and_rule({"min_rows": 3} | sized)
    if separator == "":
        raise TacitError("separator is empty; pass the mark between tags, or None for one label")
    if path is None:
        raise TacitError("the data set 'text' is a file of yours; pass path=... to a .csv file")
    table = read_table(path)
    users, written = _fill(table, task), texts(table.column(text), text)
    found = Texts([], [], [])
    label = texts(table.column(target), target) if separator else _fill(table, target)
    for user, own, cell in zip(users, written, label, strict=True):
        parts = [part.strip() for part in (cell or "").split(separator)] if separator else []
        found.add(user, words_of(own or ""), [part for part in parts if part])
    if separator:
        return tag_federation(found, sizes, rule, table.source)
    answer = RawTarget(label, "multiclass", "the label")
    return text_federation(found, answer, sizes, rule, table.source)


def _fill(table: Table, name: str) -> np.ndarray:
    cells = texts(table.column(name), name)
    table.refuse_gaps(missing(cells), name, "entry")
    return cells


def stackexchange(path: str | Path | None = None, **sized: Any) -> Federation:
    """The posts of a site (Posts.csv or Posts.csv.gz): words to tags, a task for each author.

    Questions are their title and body; answers are their body and have the tags of their question.
    Posts without an author, and answers whose question is not in the file, are left out.
    """
    sizes, rule = sizes_and_rule({"length": 256, "min_rows": 5} | sized)
    folder = find("stackexchange", path, ("stackexchange", "stackexchange_travel"))
    table = read_table(only(folder, POSTS, "the posts of a Stack Exchange site as CSV"))
    of = {
        name: texts(table.column(name), name).tolist()
        for name in ("Id", "OwnerUserId", "ParentId", "Title", "Body", "Tags")
    }
    asked = {
        _whole(number): _TAG.findall(own)
        for number, own in zip(of["Id"], of["Tags"], strict=True)
        if own is not None
    }
    found = Texts([], [], [])
    for number, author, parent, title, body, _ in zip(*of.values(), strict=True):
        own = asked.get(_whole(number)) or asked.get(_whole(parent))
        if author is not None and own:
            plain = without_markup(f"{title or ''} {body or ''}")
            found.add(f"user-{_whole(author)}", words_of(plain), own)
    if not found.users:
        raise TacitError(f"{table.source} has no post with an author and tags; is it Posts.csv?")
    said = "answers have the tags of their question, which are taken to be public whoever asked"
    return tag_federation(found, sizes, rule, "Stack Exchange posts", (said,))


def _whole(number: str | None) -> str | None:
    """Ids that met a gap in a data frame were written as 9.0."""
    return None if number is None else number.removesuffix(".0")
