"""Parts of sentences: names and numbers, and what other parties say.

Their words are shown on one line, cut, and without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST, LONGEST_NAME, MOST_NAMES = 500, 40, 5
"""Characters of a sentence and of a name that are shown, and how many names are."""


def tame(text: str) -> str:
    """One line that steers no terminal: what cannot be printed is replaced."""
    return "".join(c if c.isprintable() else " " if c == "\n" else "�" for c in text)


def shortened(text: str, most: int = LONGEST) -> str:
    """The beginning of a text, tamed; whoever reads it sees that there was more."""
    text = text[: most + 1]
    return tame(text if len(text) <= most else text[: most - 1] + "…")


def quoted(said: object, most: int = LONGEST) -> str:
    """Somebody else's words, between quotation marks that they cannot close."""
    inside = shortened(str(said), most).translate(str.maketrans("“”", "''"))
    return f"“{inside}”"


def listed(names: Iterable[str]) -> str:
    """Names that somebody else chose: the first few, each cut, and how many more there are."""
    known = list(names)
    shown = ", ".join(shortened(name, LONGEST_NAME) for name in known[:MOST_NAMES])
    more = len(known) - MOST_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def some(names: Iterable[object], most: int = 3) -> str:
    """The first few of our own names, and whether there are more."""
    known = list(map(str, names))
    return ", ".join(known[:most]) + (", …" if len(known) > most else "")
