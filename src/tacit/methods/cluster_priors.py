"""Cluster priors: linear models in groups that find each other, each with a prior of its own.

Our own: `clusters` with exact solutions in the place of gradient steps, and `prior` with a mean for
each group. A task solves its regression around every group's mean and joins the group with the most
evidence on its own rows; nobody learns which. `methods.grouping` says how groups are found and what
a task's vector is, with the proof for both neighbours.

    moments   w around what public rows say, as mean and second moment; and the prior strength that
              the task would use by itself
    votes     for the point that is nearest to w
    (rounds)  w − μ_g for its group g, at most as long as the covariance within groups says is usual
    settle    w averaged by evidence over training alone, the candidates of `prior` around the mean
              of all, and each group's mean with how many tasks are in it

So a task that belongs nowhere loses nothing, and where no groups are found this is `prior`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from tacit.local.batches import Batches
from tacit.local.bayes import bell, design, grid, posterior
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State
from tacit.methods.grouping import Grouped, contributed, reaching, within
from tacit.methods.grouping_start import (
    direction,
    moments_of,
    nearest,
    one_hot,
    told_of,
)
from tacit.methods.linear import alone
from tacit.methods.prior import LOOSE, POINTS, STRENGTH_SHARE, Rows, SharedPrior, roots_of
from tacit.privacy.covariance import flatten, unflatten

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

FINDING = ("moments", "votes", "first")
ROUNDS = 3
"""Rounds in which groups learn their means, if nobody says."""
IN_GROUP = (0.0, 0.75)
"""Strength and spread of a prior inside a group."""
MEAN_SHARE = 0.3
"""Part of the first release (in inverse variance) for the mean; the rest is for the covariance."""
SEVERAL = 3.0
"""How likely groups are beforehand (logarithm), as `prior` has it for its first shape."""


@dataclass(frozen=True, kw_only=True)
class ClusterPriors(Grouped, SharedPrior):
    """Linear models under a private prior for each of several groups, which tasks find."""

    known_as = "cluster-priors"

    mean: float = 0.75
    """Share of a later release for the means of the groups; the rest is for the covariance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("mean", 0 < self.mean < 1, "above 0 and below 1")

    def for_run(self, federation: Federation, privacy: Privacy | None) -> ClusterPriors:
        return replace(self, clip=math.inf) if privacy is None else self

    @property
    def usual_rounds(self) -> int:
        return len(FINDING) + ROUNDS

    @property
    def moments(self) -> None:
        """What is summed are the contributions themselves: each stage has its own."""
        return None

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        return self.staged(rounds, FINDING if self.most > 1 else FINDING[-1:])

    def weights(self, rounds: int, tasks: int) -> tuple[float, ...]:
        # In the end only the noise of the last rounds is left.
        return self.spread(rounds, rising=True)

    def workspace(self, rows: int, size: int) -> int:
        return (1 + self.most) * super().workspace(rows, size)

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        board = super().board(model) | self.room(model.known, model.size)
        return board | {"variance": model.start.new_ones(1)}

    def state(self, model: FlatModel, board: Board) -> State:
        return super().state(model, board) | {"joined": torch.zeros_like(board["share"])}

    @property
    def _shares(self) -> tuple[float, float]:
        """Of a later release: for the update with its count, and for the covariance."""
        rest = 1 - STRENGTH_SHARE
        return rest * self.mean, rest * (1 - self.mean)

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        rows = design(batches, len(board["mean"]), board["mean"].dtype)
        if board.stage not in FINDING:
            _, worth = self.compared(model, board, state["buffers"], batches)
            return self._tell(model.kind, board, state, rows, worth)
        w = alone(model.kind, rows, model.known)[2][LOOSE]
        x = direction(w - model.known)
        if board.stage == "moments":
            return state, self.unit * moments_of(x, MEAN_SHARE, 1 - MEAN_SHARE)
        if board.stage == "votes":
            return state, self.unit * nearest(x, board["points"])
        joined = one_hot(self.there(board) - ((x - board["centres"]) ** 2).sum(dim=1))
        worth = torch.zeros_like(board["worth"][0])
        sent = contributed(w - model.known, joined, worth, self.clip)
        return state | {"w": w, "joined": joined}, sent

    def _tell(
        self, kind: Kind, board: Board, state: State, rows: Rows, worth: Tensor
    ) -> tuple[State, Tensor]:
        """How far a task is from the mean of its group, its square, and the strength it expects."""
        joined = self._joined(kind, board, rows)
        mean, (share, covariance) = joined @ board["models"], self._shares
        _, strength, each = alone(kind, rows, mean)
        w = each[LOOSE]
        away = (w - mean) / board["reach"]
        x = within(away / self.unit, self.clip / self.unit)
        strength = self.part(STRENGTH_SHARE) * strength.clamp(-1.0, 1.0).reshape(1)
        square = self.part(covariance) * flatten(torch.outer(x, x))
        sent = torch.cat([contributed(away, joined, worth, self.clip, share), strength, square])
        return state | {"w": w, "joined": joined}, sent

    def _joined(self, kind: Kind, board: Board, rows: Rows) -> Tensor:
        """One-hot: the group with the most evidence on the task's own rows."""
        strengths, models = grid(*IN_GROUP, POINTS).to(rows[0]), board["models"].to(rows[0])
        _, evidence = vmap(lambda mean: posterior(kind, rows, mean, None, strengths))(models)
        likely = torch.logsumexp(evidence + bell(POINTS).to(rows[0]), dim=1)
        return one_hot(likely + torch.log(board["share"].to(rows[0])))

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        noise, after = torch.as_tensor(board.noise).double(), board.tensors
        if board.stage == "moments":
            told = told_of(mean.double() / self.unit, MEAN_SHARE, 1 - MEAN_SHARE, noise)
            return after | self.votable(board, *told)
        if board.stage == "votes":
            return after | self.counted(board, mean)
        if board.stage == "first":
            after = after | self.stepped(board, mean)
            return after | {"mean": after["share"] @ after["models"]}
        d, (share, covariance) = len(board["mean"]), self._shares
        size = d * (d + 1) // 2
        after = after | self.stepped(board, mean[: -size - 1], share)
        strength = mean[-size - 1 : -size].double() / self.part(STRENGTH_SHARE)
        moment = unflatten(mean[-size:].double(), d) / self.part(covariance)
        # All rounds see the same tasks: averaged, they have the noise of one release for all.
        before = board["variance"] + 1e-12
        gain = before / (before + noise**2)
        variance = gain * noise**2
        bounded, reach = math.isfinite(self.clip), board["reach"]
        moment = board["moment"] + gain * (moment - board["moment"])
        found = {
            "mean": after["share"] @ after["models"],
            "reach": reaching(reach, moment.trace()) if bounded else reach,
            "moment": moment,
            "strength": board["strength"] + gain * (strength - board["strength"]),
            "variance": variance,
            "roots": roots_of(moment, torch.sqrt(variance / covariance)),
        }
        return after | {name: value.to(board[name]) for name, value in found.items()}

    def settle(self, model: FlatModel, board: Board, state: State, batches: Batches) -> State:
        joined = self._joined(model.kind, board, design(batches, len(state["w"])))
        state = state | {"joined": joined.to(state["joined"])}
        return super().settle(model, board, state, batches)

    def _found(self, kind: Kind, board: Board, rows: Rows) -> list[tuple[Tensor, Tensor]]:
        found = super()._found(kind, board, rows)
        several = (board["share"] > 0).sum() > 1
        for mean, share in zip(board["models"].double(), board["share"].double(), strict=True):
            strengths = grid(*IN_GROUP, POINTS).to(mean.device)
            weights, evidence = posterior(kind, rows, mean, None, strengths)
            prior = torch.where(several, torch.log(share), -torch.inf)
            found.append((weights, evidence + bell(POINTS).to(mean.device) + prior + SEVERAL))
        return found
