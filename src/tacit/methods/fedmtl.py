"""FedMTL: personal models for clients that work on different tasks, mixed by their task layers.

Pritam Sen, Cristian Borcea. "FedMTL: Privacy-Preserving Federated Multi-Task Learning." European
Conference on Artificial Intelligence, 2024.

| paper                                                             | here                    |
|-------------------------------------------------------------------|-------------------------|
| eq. 4 to 6: similarity S_ij of task layers                         | `tacit.exchange`        |
| eq. 7: S_ij = 0 below the threshold Z_i, which rises by the round  | `_scores`               |
| eq. 2 and 8: shared layers, weights S_ij · size_j                  | `answer`, by `shared`   |
| eq. 3 and 9: the same for task layers, among those who hold them   | `answer`, by `heads`    |
| FedMTL-X, G, T, J, E, Z                                            | `VARIANTS`              |

What the paper calls tasks are *heads* here; a task is a client. A client keeps the heads that it
does not hold as everybody began with them. Statistics of BatchNorm layers belong to the client's
rows and stay with it, unless `statistics` says that they are mixed like the shared layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.exchange import Answer, Uploads, guarded, normalised, similarity
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.sgd import sgd
from tacit.methods.base import Board, State
from tacit.methods.exchange import MixingMethod

VARIANTS: dict[str, dict[str, Any]] = {
    "X": {"shared": "everyone", "heads": "own"},
    "G": {"shared": "everyone", "heads": "everyone"},
    "T": {"shared": "everyone", "heads": "similar"},
    "J": {"shared": "overlap", "heads": "overlap"},
    "E": {"shared": "equal", "heads": "equal"},
    "Z": {"threshold": 0.8, "last_threshold": 0.8},
}
"""The paper's ablations, as settings of `FedMTL`."""

CHOICES = ("similar", "everyone", "overlap", "equal", "own")


@dataclass(frozen=True, kw_only=True)
class FedMTL(MixingMethod):
    """Every client mixes the models of those whose task layers are like its own."""

    threshold: float = 0.75
    """Least similarity that counts in the first round (Z_min)."""
    last_threshold: float = 0.95
    """And in the last; it rises evenly in between."""
    shared: Literal["similar", "everyone", "overlap", "equal", "own"] = "similar"
    """Whose shared layers are mixed: of clients with similar task layers, of everyone, by overlap
    of the heads they hold (Jaccard), of clients with equal heads, or nobody else's."""
    heads: Literal["similar", "everyone", "overlap", "equal", "own"] = "similar"
    """Whose task layers are mixed, in the same words, always among those who hold the head."""
    statistics: Literal["own", "mixed"] = "own"
    """Whether statistics of BatchNorm stay with the client or are mixed like shared layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("threshold", 0 <= self.threshold <= 1, "from 0 to 1")
        rises = self.threshold <= self.last_threshold <= 1
        self._require("last_threshold", rises, "from `threshold` to 1")
        self._require("shared", self.shared in CHOICES, f"one of {', '.join(CHOICES)}")
        self._require("heads", self.heads in CHOICES, f"one of {', '.join(CHOICES)}")
        self._require("statistics", self.statistics in ("own", "mixed"), "own or mixed")

    def state(self, model: FlatModel, board: Board) -> State:
        return {"w": board["start"], "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        w, buffers = sgd(model, state["w"], state["buffers"], batches, self.rate(board))
        sent = w if self.statistics == "own" else torch.cat([w, buffers])
        return {"w": w, "buffers": buffers}, sent

    def answer(self, uploads: Uploads, memory: dict[str, Tensor]) -> Answer:
        alike = similarity(uploads.heads, uploads.holds)
        sizes = uploads.sizes.to(alike.dtype)
        shared = self._scores(self.shared, alike, uploads) * sizes
        heads = self._scores(self.heads, alike, uploads) * sizes
        # Head k is mixed for clients that hold it, of clients that hold it; others keep theirs.
        held = uploads.holds.T.to(alike.dtype)
        each = heads * held.unsqueeze(1) * held.unsqueeze(2)
        weights = normalised(torch.cat([shared.unsqueeze(0), each, shared.unsqueeze(0)]))
        return Answer(guarded(weights, self.min_peers).unsqueeze(0), similarity=alike)

    def least(self, progress: float) -> float:
        """The similarity below which others do not count (Z), from the first round to the last."""
        return self.threshold + progress * (self.last_threshold - self.threshold)

    def _scores(self, choice: str, alike: Tensor, uploads: Uploads) -> Tensor:
        """S [n, n] as one of the choices has it, before sizes; a client always scores itself."""
        holds = uploads.holds.to(alike.dtype)
        if choice == "everyone":
            return torch.ones_like(alike)
        if choice == "own":
            return torch.eye(len(alike), dtype=alike.dtype, device=alike.device)
        if choice == "similar":
            # Equal layers are equal to rounding only: a threshold of 1 must not cut them off.
            return torch.where(alike >= self.least(uploads.progress) - 1e-6, alike, 0.0)
        both = holds @ holds.T
        either = holds.sum(dim=1, keepdim=True) + holds.sum(dim=1) - both
        return both / either if choice == "overlap" else (both == either).to(alike.dtype)

    def receive(
        self, model: FlatModel, board: Board, state: State, answer: Tensor, rows: Batches
    ) -> State:
        w, rest = answer[0, : model.size], answer[0, model.size :]
        return {"w": w, "buffers": state["buffers"] if self.statistics == "own" else rest}
