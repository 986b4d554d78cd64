"""Text as short lists of word ids, and tags as columns of 0 and 1.

A row of `x` is the ids of a text's words in order, filled up with 0 to a fixed length: 1 to V are
the words of the vocabulary, V + 1 is any other word. Longer texts are cut. With 10 000 words such
a row takes 64 numbers instead of 10 000; `tacit.models.bag` learns from it what logistic regression
learns from the dense bag (each word's share of the text, as in TFF's tag prediction). Ids are kept
as floats, which hold them exactly, because the engine's rows are floats everywhere.

A vocabulary from a file is taken to be public. One that is counted here is counted over all users
without noise, and goes into `Federation.leaks`.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.assemble import About, assemble
from tacit.data.federation import Federation
from tacit.data.split import SplitRule
from tacit.data.targets import RawTarget, Target
from tacit.errors import TacitError

MOST_WORDS = 2**24 - 2
"""Above, a float of 32 bits no longer holds every id."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MARKUP = re.compile(r"<[^>]*>")


def words_of(text: str) -> list[str]:
    """Lower-case words: letters and digits, with apostrophes inside."""
    return _WORD.findall(text.lower())


def without_markup(text: str) -> str:
    """HTML as plain text."""
    return html.unescape(_MARKUP.sub(" ", text))


@dataclass(frozen=True)
class Sizes:
    """How many words and tags, where they come from, and how long a row is."""

    words: int = 10_000
    tags: int = 500
    words_file: str | Path | None = None
    tags_file: str | Path | None = None
    length: int = 64

    def __post_init__(self) -> None:
        limits = {"words": (1, MOST_WORDS), "tags": (2, 100_000), "length": (1, 100_000)}
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value <= most:
                raise TacitError(
                    f"{name} is {value!r}, expected a whole number from {least} to {most}"
                )


def sizes_and_rule(options: Mapping[str, Any]) -> tuple[Sizes, SplitRule]:
    """The options that all sets of texts share."""
    own = {one.name for one in fields(Sizes)}
    sizes = {name: value for name, value in options.items() if name in own}
    return Sizes(**sizes), SplitRule(**{n: v for n, v in options.items() if n not in own})


@dataclass
class Texts:
    """One entry per row: whose it is, its words, its tags."""

    users: list[str]
    words: list[list[str]]
    tags: list[list[str]]

    def add(self, user: str, words: list[str], tags: list[str]) -> None:
        self.users.append(user)
        self.words.append(words)
        self.tags.append(tags)


def tag_federation(
    texts: Texts, sizes: Sizes, rule: SplitRule, source: str, said: tuple[str, ...] = ()
) -> Federation:
    """Words to tags (multilabel): the words and tags that occur most, or those of the files."""
    tags, about_tags, tag_leaks = _vocabulary(texts.tags, sizes.tags, sizes.tags_file, "tags")
    y = np.zeros((len(texts.users), len(tags)), dtype=np.uint8)
    column = {tag: number for number, tag in enumerate(tags)}
    for row, own in enumerate(texts.tags):
        y[row, [column[tag] for tag in own if tag in column]] = 1
    target = Target("multilabel", y, len(tags), tags)
    return text_federation(
        texts, target, sizes, rule, source, (*said, *about_tags), leaks=tag_leaks
    )


def text_federation(
    texts: Texts,
    target: Target | RawTarget,
    sizes: Sizes,
    rule: SplitRule,
    source: str,
    said: tuple[str, ...] = (),
    leaks: tuple[str, ...] = (),
) -> Federation:
    """Words to any target."""
    words, about_words, word_leaks = _vocabulary(
        texts.words, sizes.words, sizes.words_file, "words"
    )
    cut = f"texts are cut after {sizes.length} words, a length chosen without looking at them"
    about = About(
        source=source,
        features=words,
        assumptions=(*said, *about_words, cut),
        leaks=(*word_leaks, *leaks),
    )
    x, users = word_ids(texts.words, words, sizes.length), np.array(texts.users, dtype=object)
    return assemble(x, target, users, about, rule=rule)


def word_ids(texts: Sequence[Sequence[str]], words: Sequence[str], length: int) -> np.ndarray:
    """float32 [N, length] of ids; also what turns new texts into rows to predict for."""
    # A row must not be as long as the vocabulary: that is how a row of numbers looks.
    wide = length + (length == len(words))
    number = {word: place for place, word in enumerate(words, start=1)}
    other = len(words) + 1
    rows = np.zeros((len(texts), wide), dtype=np.float32)
    for row, text in enumerate(texts):
        ids = [number.get(word, other) for word in text[:length]]
        rows[row, : len(ids)] = ids
    return rows


def _vocabulary(
    texts: Iterable[Iterable[str]], most: int, file: str | Path | None, what: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The words (or tags), what is assumed of them, and what they leak."""
    if file is not None:
        said = f"the {what} were given as the file {Path(file).name} and are taken to be public"
        return read_words(file, most), (said,), ()
    counts = Counter(word for text in texts for word in text)
    if not counts:
        raise TacitError(f"there are no {what} in any row; check the columns that hold them")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    leak = f"the {what} were chosen by counting over all tasks' rows, without noise"
    return tuple(ranked[:most]), (), (leak,)


def read_words(path: str | Path, most: int) -> tuple[str, ...]:
    """The first words of a public file.

    One word per line, with or without a count behind it (TFF's `stackoverflow.word_count`), or
    JSON: a list of words, or counts by word (TFF's `stackoverflow.tag_count`), largest first.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TacitError(f"{path} cannot be read: {error}; pass a text file of words") from None
    if text.lstrip()[:1] in ("{", "["):
        found = _from_json(text, path)
    else:
        found = [line.split()[0] for line in text.splitlines() if line.strip()]
    distinct = tuple(dict.fromkeys(found))[:most]
    if not distinct:
        raise TacitError(f"{path} holds no words; write one per line")
    return distinct


def _from_json(text: str, path: Path) -> list[str]:
    try:
        content = json.loads(text)
        if isinstance(content, dict):
            counts = {word: float(count) for word, count in content.items()}
            return sorted(counts, key=lambda word: (-counts[word], word))
    except (TypeError, ValueError):
        content = None
    if not isinstance(content, list) or not all(isinstance(word, str) for word in content):
        raise TacitError(
            f"{path} is JSON, but neither a list of words nor counts by word; correct it"
        )
    return content
