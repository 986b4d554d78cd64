"""Naive joint privacy: every personal model is published with noise. A warning, not a method.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. "Private Multi-Task Learning: Formulation and
Applications to Federated Learning." Transactions on Machine Learning Research, 04/2023, Figure 1.

| paper                                                             | here                     |
|-------------------------------------------------------------------|--------------------------|
| client-level DP of the concatenation [w_1 … w_m]: noise on each w_k | the channel, m sums      |
| mean regularisation on what was published                          | `client`                 |

Plain differential privacy of the whole collection: a task is protected even from whoever is handed
its own model. That holds for all of a model or not at all, so models with statistics of the task's
rows (BatchNorm) are refused, and where tasks scale their rows by constants of their own the promise
is the joint one, like everybody's. The price is that no averaging takes place: the noise that a
shared mean divides by the number of tasks, every model here gets undivided.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.data.federation import Federation
from tacit.data.relation import Relation, parts, separate
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, RelatedMethod, State


@dataclass(frozen=True, kw_only=True)
class NaiveDP(RelatedMethod):
    """A warning: noise on every personal model, as plain differential privacy of them all needs."""

    known_as = "naive"

    personal_is_public = True
    asks_persons = True

    pull: float = 1.0
    """Strength of the pull towards the mean of the published models (λ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("pull", self.pull >= 0, "zero or more")

    def relation(self, federation: Federation) -> Relation:
        return separate(len(federation))

    def sums(self, model: FlatModel, relation: Relation) -> dict[str, Tensor]:
        if model.buffers.numel():
            raise TacitError(
                "NaiveDP publishes whole models, but the statistics of BatchNorm would go along "
                "without noise: use a model without them (GroupNorm, LayerNorm)"
            )
        return {"models": relation.start.to(model.start).outer(model.start)}

    def read(self, board: Board, place: Tensor) -> Board:
        models = board["models"]
        mine = parts(place, len(models))[0] @ models
        return Board({"own": mine, "mean": models.mean(dim=0)}, board.round)

    def state(self, model: FlatModel, board: Board) -> State:
        return {"buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        own, mean, rate = board["own"], board["mean"], self.rate(board)
        w, buffers = sgd(model, own, state["buffers"], batches, rate, pull=self.pull, towards=mean)
        return {"buffers": buffers}, w - own

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return {"models": board["models"] + mean.reshape(board["models"].shape)}

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return board["own"]
