"""What a method on the exchange is: a client step, a curator, and what a client does with answers.

    start ──► state ──► client ──► upload ──► answer (the curator: weights) ──► receive ──► state

`client` and `receive` run for one task, behind the same fence as on the billboard. `answer` sees
all uploads, and says only with which weights they are mixed (`tacit.exchange`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.exchange import Answer, Uploads
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.methods.base import Board, State, TrainedMethod


@dataclass(frozen=True, kw_only=True)
class ExchangeMethod(TrainedMethod):
    """A method with a curator. Everybody begins with the same public model."""

    channel = "exchange"
    judges: ClassVar[bool] = False
    """Whether clients look at answers with their validation rows."""

    local_steps: int = 4
    batch: int | None = 32

    @property
    def usual_rounds(self) -> int:
        return 20

    @property
    def copies(self) -> int:
        """How many vectors a client is sent."""
        return 1

    def board(self, model: FlatModel) -> dict[str, Tensor]:
        return {"start": model.start}

    def publish(self, board: Board, mean: Tensor) -> dict[str, Tensor]:
        return board.tensors

    def memory(self, tasks: int) -> dict[str, Tensor]:
        """What the curator remembers before the first round."""
        return {}

    @abstractmethod
    def answer(self, uploads: Uploads, memory: dict[str, Tensor]) -> Answer:
        """The curator: who learns from whom in this round."""

    @abstractmethod
    def receive(
        self, model: FlatModel, board: Board, state: State, answer: Tensor, rows: Batches
    ) -> State:
        """What a client makes of the vectors [copies, length] it is sent.

        `rows` are all its validation rows as one batch if the method `judges`, else none.
        """

    def personal(self, model: FlatModel, board: Board, state: State) -> Tensor:
        return state["w"]


@dataclass(frozen=True, kw_only=True)
class MixingMethod(ExchangeMethod):
    """A method whose answers are mixtures of several clients' models."""

    min_peers: int = 2
    """With fewer others in a mixture a client keeps its own; 1 mixes with anybody, as in papers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("min_peers", self.min_peers >= 1, "at least 1")
