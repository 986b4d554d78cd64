"""Rounds before a method's own, in which tasks (or persons) vote for common units of columns.

They belong to the run and not to the method: any method on the billboard may ask for them
(`OnBillboard.units`). `local.units` has the votes of tasks, `local.ranges` those of persons, who
vote wherever no constants were given; what they cost is charged inside the promise.
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.data.common import FARTHEST, ends, in_common_units
from tacit.data.federation import Federation
from tacit.data.persons import in_found_units
from tacit.errors import TacitError
from tacit.local import ranges, units
from tacit.local.batches import Batches
from tacit.methods.base import Board, Method, OnBillboard

SHARE, MORE = 0.12, 0.21
"""Part of the budget for votes with many tasks, and how much more with few."""
FEW = 300
SPARED = (
    "every task keeps its own units: votes for common ones would drown in the noise that so few "
    "tasks need"
)


@dataclass(frozen=True)
class Votes:
    """Who votes on what; without columns nobody votes."""

    columns: int
    spared: bool
    """Nobody votes, because noise would drown the votes; then nobody knows common units."""
    clip: float
    """Votes have length one at most, and are measured in clips as all contributions are."""
    of_persons: bool = False
    farthest: float = FARTHEST
    """Values of features are at most so many units from the centre; a model that bounds nothing
    sees them as they are."""

    @classmethod
    def of(cls, method: Method, federation: Federation) -> Votes:
        clip = method.clip if isinstance(method, OnBillboard) else 1.0
        farthest = FARTHEST if math.isfinite(clip) else math.inf
        clip = clip if math.isfinite(clip) else 1.0
        if federation.unscaled is not None:
            return cls(len(federation.unscaled), False, clip, of_persons=True)
        asked = isinstance(method, OnBillboard) and method.units == "common"
        columns = 0 if federation.units is None or not asked else len(federation.units)
        spared = isinstance(method, OnBillboard) and method.units == "none"
        return cls(columns, spared, clip, farthest=farthest)

    @property
    def _ballot(self) -> types.ModuleType:
        return ranges if self.of_persons else units

    @property
    def stages(self) -> tuple[str, ...]:
        return self._ballot.STAGES if self.columns else ()

    def rounds_after(self, rounds: int) -> int:
        """What is left of these rounds for the method."""
        left = rounds - len(self.stages)
        if left < 1:
            raise TacitError(
                f"rounds={rounds}: the first {len(self.stages)} find common units, so more are "
                "needed; or leave rounds out"
            )
        return left

    def weights(
        self, tasks: int, rounds: int, others: tuple[float, ...] | None
    ) -> tuple[float, ...] | None:
        """How the budget is spread over all rounds, from how the method spreads its own."""
        if not self.columns:
            return others
        others = (1.0,) * self.rounds_after(rounds) if others is None else others
        share = SHARE + MORE * min(1.0, FEW / tasks)
        total = share / (1 - share) * sum(weight**2 for weight in others)
        each = *(math.sqrt(total * part) for part in self._ballot.SHARES), *others
        return tuple(weight / max(each) for weight in each)

    def blank(self, like: Tensor) -> dict[str, Tensor]:
        return self._ballot.blank(self.columns, like) if self.columns else {}

    def known(self, federation: Federation, tasks: Tensor) -> Batches:
        """What a task votes with in the place of rows: the centre and spread of its columns."""
        own = federation.units
        if self.of_persons:  # `Persons` fills it in
            x = torch.zeros(len(tasks), 1, self.columns, dtype=torch.float64, device=tasks.device)
            return Batches(x, x[..., 0], torch.ones_like(x[..., 0]))
        assert own is not None
        x = torch.stack([own.centre[tasks], own.spread[tasks]], dim=2).unsqueeze(1)
        return Batches(x, x[..., 0], torch.ones_like(x[..., 0]))

    def cast(self, board: Board, known: Tensor) -> Tensor:
        """What one task sends, from the centre and spread of its columns."""
        return self.clip * self._ballot.votes(board.stage, known, board.tensors)

    def counted(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        """The next billboard."""
        noise = torch.as_tensor(board.noise).double()
        found = self._ballot.read(board.stage, mean.double() / self.clip, noise, board.tensors)
        return board.tensors | found

    def without(self, board: Board) -> Board:
        """The billboard as a method and a server's rule know it."""
        own = {name: value for name, value in board.tensors.items() if name not in self.names}
        return Board(own, board.round, board.noise, board.stage)

    def kept(self, board: Board) -> dict[str, Tensor]:
        """What stays on the billboard after the votes."""
        return {name: board[name] for name in self.names}

    def before(self, federation: Federation) -> Federation:
        """The rows that a run begins with."""
        if not self.spared or federation.units is None:
            return federation
        unknown = torch.full((len(federation.units),), torch.nan)
        made = in_common_units(federation, unknown, unknown, self.farthest)
        said = (*federation.assumptions, SPARED, *ends(self.farthest))
        return replace(made, assumptions=said)

    def applied(self, federation: Federation, board: Board) -> Federation:
        """The rows in the units on the billboard; once is enough."""
        if self.of_persons and federation.unscaled is not None:
            return in_found_units(federation, board["centre"], board["spread"])
        if not self.columns or federation.units is None:
            return federation
        return in_common_units(federation, board["centre"], board["spread"], self.farthest)

    @property
    def names(self) -> tuple[str, ...]:
        """What is public about units; NaN where votes drowned, so that nobody knows one."""
        return self._ballot.NAMES if self.columns else ()
