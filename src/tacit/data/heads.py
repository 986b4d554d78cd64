"""Heads: the kinds of prediction that exist in a federation, and which task works on which.

Every hospital has patients, but one predicts readmission, the next two outcomes after surgery. What
a task predicts is a set of *heads* (FedMTL calls them task types): each a few labels of a row, or
the classes of its pixels. A task holds some of them. The target columns of a head that a task does
not hold are missing, like any label that nobody wrote down: NaN for labels, -1 for pixels. They
count nowhere, in no loss and no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import TacitError

MISSING = -1
"""The class of a pixel that has none."""


PUBLIC = "which heads a task works on is taken to be public"
"""What the billboard assumes where tasks work on different heads."""


@dataclass(frozen=True)
class Heads:
    """Head k is called `names[k]` and has `outputs[k]` numbers per row (or pixel)."""

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    holds: Tensor
    """Whether a task works on a head: bool [tasks, heads]."""

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) != len(self.outputs):
            raise TacitError(f"heads {self.names} with outputs {self.outputs}: name each head once")
        if self.holds.ndim != 2 or self.holds.shape[1] != len(self.names):
            raise TacitError(
                f"holds has shape {tuple(self.holds.shape)}: a row for each task and a column for "
                f"each of the {len(self.names)} heads is needed"
            )
        empty = (~self.holds.any(dim=1)).nonzero()
        if len(empty):
            raise TacitError(f"task number {int(empty[0])} holds no head: give it at least one")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> list[slice]:
        """Where the outputs of each head lie among all outputs."""
        ends = torch.tensor(self.outputs).cumsum(0).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.outputs, strict=True)]

    @property
    def holders(self) -> Tensor:
        """How many tasks work on each head."""
        return self.holds.sum(dim=0)

    def of(self, task: int) -> tuple[str, ...]:
        """The heads of one task, by name."""
        return tuple(
            name for name, held in zip(self.names, self.holds[task].tolist(), strict=True) if held
        )

    def to(self, device: torch.device | str) -> Heads:
        return Heads(self.names, self.outputs, self.holds.to(device))

    def to_json(self) -> dict[str, Any]:
        """Names, outputs, and the numbers of the heads that each task holds."""
        holds = [row.nonzero().squeeze(1).tolist() for row in self.holds.cpu()]
        return {"names": list(self.names), "outputs": list(self.outputs), "holds": holds}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Heads:
        holds = torch.zeros(len(found["holds"]), len(found["names"]), dtype=torch.bool)
        for row, held in enumerate(found["holds"]):
            holds[row, held] = True
        return cls(tuple(found["names"]), tuple(found["outputs"]), holds)


def holding(
    names: Sequence[str], tasks: Sequence[str], given: Mapping[str, Sequence[str]]
) -> Tensor:
    """The table of who holds what, from head names by task; errors name what is unknown."""
    absent = next((task for task in tasks if task not in given), None)
    if absent is not None:
        raise TacitError(f"task {absent!r} has no heads: say which it works on")
    number = {name: k for k, name in enumerate(names)}
    holds = torch.zeros(len(tasks), len(names), dtype=torch.bool)
    for row, task in enumerate(tasks):
        for name in given[task]:
            if name not in number:
                raise TacitError(
                    f"task {task!r} works on head {name!r}, but heads are {', '.join(names)}"
                )
            holds[row, number[name]] = True
    return holds
