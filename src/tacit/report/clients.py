"""The clients of an exchange in the order in which pictures show them: by the heads they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from tacit.report.svg import SERIES
from tacit.report.words import plural

COLOURS = tuple(colour for colour in SERIES if colour != "#3f8fc4")
"""Without the second blue: dots must be told apart without a line to follow."""
NAMED = 40
"""Up to this many clients are named in pictures."""


@dataclass(frozen=True)
class Clients:
    """Clients that a picture shows, ordered; `place[k]` is where the k-th stands in the result."""

    names: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    """The heads that each holds; empty where all predict the same."""
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @property
    def named(self) -> bool:
        return len(self) <= NAMED

    @property
    def blocks(self) -> list[tuple[tuple[str, ...], int, int]]:
        """Neighbours with the same heads: the heads, the first, and the one after the last."""
        found, begin = [], 0
        for heads, members in groupby(self.sets):
            end = begin + len(list(members))
            found.append((heads, begin, end))
            begin = end
        return found

    def ordered(self, table: Sequence[Sequence[float | None]]) -> np.ndarray:
        """A table of pairs, as the result has it, in this order; NaN for pairs that never met."""
        values = np.array(table, dtype=np.float64).reshape(len(self), len(self))
        return values[np.ix_(self.place, self.place)]

    @property
    def by_set(self) -> bool:
        """Whether colours stand for sets of heads; with many sets, for how many heads there are."""
        return len(set(self.sets)) <= len(COLOURS)

    @property
    def colours(self) -> list[str]:
        """The colour of each client."""
        keys = [listed(heads) if self.by_set else f"{len(heads):6}" for heads in self.sets]
        found = list(dict.fromkeys(keys if self.by_set else sorted(keys)))
        return [COLOURS[min(found.index(key), len(COLOURS) - 1)] for key in keys]

    def legend(self) -> list[tuple[str, str]]:
        """What colours mean; nothing where all clients hold the same."""
        if len(set(self.sets)) < 2:
            return []
        words: dict[str, str] = {}
        for heads, colour in zip(self.sets, self.colours, strict=True):
            words.setdefault(colour, listed(heads) if self.by_set else plural(len(heads), "head"))
        ordered = sorted(words.items(), key=lambda item: COLOURS.index(item[0]))
        if not self.by_set and max(map(len, self.sets)) > len(COLOURS):
            ordered[-1] = (ordered[-1][0], "more heads")
        return [(said, colour) for colour, said in ordered]


def clients(result: Mapping[str, Any]) -> Clients:
    """Those that the exchange's tables are about, by the heads they hold and then by name."""
    everybody = list(result["metrics"]["per_task"])
    shown = list(result["exchange"]["shown"])
    heads = result["federation"].get("heads")
    holds = [tuple(heads["holds"][k]) if heads else () for k in shown]
    order = sorted(range(len(shown)), key=lambda k: (holds[k], everybody[shown[k]]))
    named = heads["names"] if heads else []
    return Clients(
        tuple(everybody[shown[k]] for k in order),
        tuple(tuple(named[h] for h in holds[k]) for k in order),
        np.array(order, dtype=np.int64),
    )


def listed(heads: Sequence[str]) -> str:
    return ", ".join(heads)
