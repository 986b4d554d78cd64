"""Who is there: clients that join later, and clients that are lost in the middle of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.randomness import Randomness, scramble


@dataclass(frozen=True)
class Attendance:
    """A plan of a simulation. A lost client has trained, but nobody hears of it in that round:
    it keeps what it trained, and takes part again when it is next drawn."""

    joins: Mapping[str, int] = field(default_factory=dict)
    """The first round (from 0) of tasks that are not there from the beginning."""
    lost: float = 0.0
    """Chance that a task is lost in a round, after it trained."""

    def __post_init__(self) -> None:
        if not 0 <= self.lost <= 1:
            raise TacitError(f"Attendance(lost={self.lost!r}): a chance from 0 to 1 is needed")
        early = next((name for name, round in self.joins.items() if round < 0), None)
        if early is not None:
            raise TacitError(f"task {early!r} joins in a round before the first: use 0 or more")

    def since(self, federation: Federation) -> Tensor:
        """The first round of every task."""
        first = torch.zeros(len(federation), dtype=torch.int64)
        for name, round in self.joins.items():
            first[federation.index(name)] = round
        return first

    def stays(self, tasks: Tensor, round: int, randomness: Randomness) -> Tensor:
        """Which of these tasks are still there at the end of the round."""
        if not self.lost:
            return torch.ones(len(tasks), dtype=torch.bool, device=tasks.device)
        key = randomness.key("attendance", round)
        chance = (scramble(key, tasks) >> 11 & (1 << 52) - 1).double() / 2**52
        return chance >= self.lost

    def to_json(self) -> dict[str, Any]:
        return {"joins": dict(self.joins), "lost": self.lost}
