"""Clusters: similar tasks find each other, and nobody learns who joined whom.

Avishek Ghosh, Jichan Chung, Dong Yin, Kannan Ramchandran. "An Efficient Framework for Clustered
Federated Learning." NeurIPS, 2020; made private, with personal models as in PMTL (Shengyuan Hu,
Zhiwei Steven Wu, Virginia Smith. "Private Multi-Task Learning." TMLR, 04/2023).

| paper                                                     | here                              |
|-----------------------------------------------------------|-----------------------------------|
| ĵ = argmin_j F_i(θ_j), the cluster of machine i           | `grouping.compared`, on its rows  |
| one-hot s_i, θ̃_i by local steps from θ_ĵ                  | `client`, with PMTL's pull λ      |
| θ_j ← mean of θ̃_i over the machines with ĵ = j            | `grouping.contributed`, `.steps`  |
| random starts, or some that are near enough               | stages "moments", "votes", "first"|

On the billboard a task may compare itself with everything that is public, and tell nobody what it
found; so similarity is computed by the task, and not by a curator as in FedMTL. What a task sends
is one bounded vector (`methods.grouping` has the proof, for both neighbours).

Identical starts never part and random ones collapse, so the first rounds find where groups begin.
In stage "first" all groups still have the same model, and tasks join by where their update points;
in stage "early", too, if the votes told groups apart. With one group there are no such stages, and
this is PMTL, or private FedAvg without a pull.

Where persons are the unit of privacy, each person is asked what a task is asked otherwise: it joins
by its own rows, and begins at its group's model, since persons keep nothing. So nobody has to be
bounded but persons. The task chooses its own group by all of its rows, and tells nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import BillboardMethod, Board, State
from tacit.methods.grouping import Grouped, contributed, reaching, within
from tacit.methods.grouping_start import (
    NUMBERS,
    direction,
    moments_of,
    nearest,
    one_hot,
    signs_for,
    sketched,
    told_of,
)

if TYPE_CHECKING:
    from tacit.data.federation import Federation, Kind
    from tacit.privacy import Privacy

FINDING = ("moments", "votes", "first")
"""Stages in which groups are found; the last is the first round of learning."""
EARLY, EARLY_SHARE = "early", 0.25
"""The next rounds, and their part of all rounds of learning. Models that have learned little are
mostly noise, and a group that noise hits would lose its tasks for good: so tasks still join by
where they stand by themselves, if the votes told groups apart."""
MEAN_SHARE = 0.3
"""Part of the first release (in inverse variance) for the mean; the rest is for the covariance."""
LENGTH_SHARE = 0.02
"""Part of a round's release for the lengths of updates, which their bound follows."""


@dataclass(frozen=True, kw_only=True)
class Clusters(Grouped, BillboardMethod):
    """Several models on the billboard: a task joins the best for its rows, and trains near it."""

    asks_persons = True

    pull: float | None = 1.0
    """Strength of the pull towards the group's model (λ); None: no models of their own, and tasks
    predict with the model of their group."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull is None or self.pull >= 0, "zero or more, or None")
        self._require(
            "clip_quantile", self.clip_quantile is None, "None, because counts are told in clips"
        )

    def for_run(self, federation: Federation, privacy: Privacy | None) -> Clusters:
        return replace(self, clip=math.inf) if privacy is None else self

    def stages(self, kind: Kind, rounds: int) -> tuple[str, ...]:
        if self.most == 1:
            return ("",) * rounds
        early = round(EARLY_SHARE * max(0, rounds - len(FINDING)))
        return self.staged(rounds, (*FINDING, *(EARLY,) * early))

    def weights(self, rounds: int, tasks: int) -> tuple[float, ...] | None:
        return None if self.most == 1 else self.spread(rounds, rising=False)

    def updates(self, stage: str, length: int, size: int) -> int:
        return self.most if stage not in FINDING[:2] else 0

    def join(self, model: FlatModel, board: Board, batches: Batches) -> State:
        fresh = self.state(model, board)
        joined, _ = self.compared(model, board, fresh["buffers"], batches)
        return fresh | {"w": joined @ board["models"], "joined": joined}

    @property
    def gradients(self) -> int:
        """Measuring all models costs about a third of a gradient each."""
        return self.steps * (1 + self.most // 3)

    def workspace(self, rows: int, size: int) -> int:
        return (6 + 2 * self.most) * size

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        room = self.room(model.start, min(model.size, NUMBERS))
        return room | {"signs": signs_for(model.start)}

    def state(self, model: FlatModel, board: Board) -> State:
        nobody = torch.zeros_like(board["share"])
        return {"w": board["share"] @ board["models"], "joined": nobody, "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        if board.stage in (*FINDING, EARLY):
            return self._find(model, board, state, batches)
        where = self.compared(model, board, state["buffers"], batches)
        return self._train(model, board, state, batches, *where)

    def _find(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        """Where a task stands after training by itself, told as the stage asks for it."""
        w, _ = sgd(model, model.start, state["buffers"], batches, self.rate(board))
        x = direction(sketched(w - model.start, board["signs"]))
        if board.stage == "moments":
            return state, self.unit * moments_of(x, MEAN_SHARE, 1 - MEAN_SHARE)
        if board.stage == "votes":
            return state, self.unit * nearest(x, board["points"])
        distance = ((x - board["centres"]) ** 2).sum(dim=1)
        joined = one_hot(self.there(board) - distance)
        if board.stage == EARLY:
            best, _ = self.compared(model, board, state["buffers"], batches)
            joined = torch.where(board["clear"] > 0, joined, best)
        worth = torch.zeros_like(board["worth"][0])
        return self._train(model, board, state, batches, joined, worth)

    def _train(
        self,
        model: FlatModel,
        board: Board,
        state: State,
        batches: Batches,
        joined: Tensor,
        worth: Tensor,
    ) -> tuple[State, Tensor]:
        """Near the group's model, from there or from where it was if it stays in its group."""
        mean, rate = joined @ board["models"], self.rate(board)
        stays = (joined * state["joined"]).sum() * (0.0 if self.pull is None else 1.0)
        before = torch.where(stays > 0, state["w"], mean)
        near = {} if self.pull is None else {"pull": self.pull, "towards": mean}
        w, buffers = sgd(model, before, state["buffers"], batches, rate, **near)
        after = {"w": w, "joined": joined, "buffers": buffers}
        if self.most == 1:
            return after, contributed(w - mean, joined, worth, self.clip)
        away = (w - mean) / board["reach"]
        length = torch.linalg.vector_norm(within(away, self.clip) / self.unit)
        told = self.part(LENGTH_SHARE) * length.reshape(1) ** 2
        sent = contributed(away, joined, worth, self.clip, 1 - LENGTH_SHARE)
        return after, torch.cat([sent, told])

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        if board.stage == "moments":
            noise = torch.as_tensor(board.noise).double()
            told = told_of(mean / self.unit, MEAN_SHARE, 1 - MEAN_SHARE, noise)
            return board.tensors | self.votable(board, *told)
        if board.stage == "votes":
            return board.tensors | self.counted(board, mean)
        if self.most == 1:
            return board.tensors | self.stepped(board, mean)
        after = self.stepped(board, mean[:-1], 1 - LENGTH_SHARE)
        if math.isfinite(self.clip):
            square = mean[-1] / self.part(LENGTH_SHARE)
            after["reach"] = reaching(board["reach"], square)
        return board.tensors | after

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        if self.pull is not None:
            return state["w"]
        known = state["joined"].sum() > 0
        return torch.where(known, state["joined"], board["share"]) @ board["models"]
