"""Contributions that are zero but for a part of a long vector, and how they are summed.

A model that reads words begins with a table that has a column for every word; the rows of a task
move the columns of its own words, and all that lies behind the table. So a task's contribution is
known by its numbers there, a *short* vector. The short vector and the long one have the same
length, and the same steps of the grid where they are not zero; so a short one is bounded by what
bounds all others (`privacy.bounds`), is added to the long sum at its own places, and nothing else
changes: neither the sum nor what is proved of it. All that has to hold is that no place is named
twice, which is looked at here and not left to whoever made the vector.

Short vectors and their sum are *upright*, one column after the other: a task then writes where it
says something, and does not walk through the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reach:
    """Where a short vector lies in a long one, which begins with a table [height, width]."""

    height: int
    width: int
    columns: Tensor
    """Those of the table that the short vector has, in their order."""

    def __post_init__(self) -> None:
        inside = len(self.columns) and 0 <= int(self.columns[0]) <= int(self.columns[-1])
        rising = bool((self.columns[1:] > self.columns[:-1]).all())
        if not inside or int(self.columns[-1]) >= self.width or not rising:
            raise ValueError("columns must be those of a table, each after the one before")

    @property
    def table(self) -> int:
        """How many numbers of a short vector are in the table."""
        return self.height * len(self.columns)

    def short(self, upright: Tensor) -> Tensor:
        """Those numbers of a long vector, which is given upright."""
        table, rest = _apart(upright, self.height * self.width)
        found = upright.new_empty(self.table + len(rest))
        some, behind = _apart(found, self.table)
        rows = table.view(self.width, self.height)
        torch.index_select(rows, 0, self.columns, out=some.view(-1, self.height))
        behind.copy_(rest)
        return found

    def add(self, short: Tensor, upright: Tensor) -> None:
        """Add a short vector to a long one, which is upright."""
        table, rest = _apart(upright, self.height * self.width)
        some, behind = _apart(short, self.table)
        rows = table.view(self.width, self.height)
        rows.index_add_(0, self.columns, some.view(-1, self.height))
        rest += behind

    def whole(self, short: Tensor) -> Tensor:
        """Short vectors [k, .] as long ones."""
        found = short.new_zeros(len(short), self.height * self.width + short.shape[1] - self.table)
        for long, vector in zip(found, short, strict=True):
            table, rest = _apart(long, self.height * self.width)
            some, behind = _apart(vector, self.table)
            columns = some.view(-1, self.height).T
            table.view(self.height, -1).index_copy_(1, self.columns, columns)
            rest.copy_(behind)
        return found

    def blank(self, short: Tensor) -> Tensor:
        """A long vector of zeros, for short ones like this."""
        return short.new_zeros(self.height * self.width + len(short) - self.table)

    def lying(self, upright: Tensor) -> Tensor:
        """The reverse of `turned`."""
        return turned(upright, self.width, self.height)


def turned(vector: Tensor, rows: int, columns: int) -> Tensor:
    """A long vector with the columns of its table one after the other: upright."""
    found, size = torch.empty_like(vector), rows * columns
    found[:size].view(columns, rows).copy_(vector[:size].view(rows, columns).T)
    found[size:] = vector[size:]
    return found


def _apart(vector: Tensor, size: int) -> tuple[Tensor, Tensor]:
    return vector[:size], vector[size:]
