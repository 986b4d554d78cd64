"""FedFomo: every client is sent others' models and weighs them by its own validation loss.

Michael Zhang, Karan Sapra, Sanja Fidler, Serena Yeung, Jose M. Alvarez. "Personalized Federated
Learning with First Order Model Optimization." ICLR, 2021.

| paper                                                                  | here                |
|------------------------------------------------------------------------|---------------------|
| eq. 5: weight of model n ∝ max((L(own) − L(θ_n)) / ‖θ_n − own‖, 0)       | `first_order`       |
| eq. 4: own ← own + Σ_n weight_n (θ_n − own)                              | `receive`           |
| section 3.3: matrix P of who liked whom, largest entries are sent       | `answer`, `memory`  |
| ε-greedy choice of whom to send                                         | `explore`           |

"Own" is the client's model before this round's training; what it has just trained is one of the
candidates. Where another client does not hold a head, its candidate has the receiver's own. Here
clients are handed single models of others: nothing hides them at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from tacit.exchange import Answer, Uploads
from tacit.local.batches import Batches
from tacit.local.flat import FlatModel
from tacit.local.losses import weighted_loss
from tacit.local.sgd import sgd
from tacit.methods.base import Board, State
from tacit.methods.exchange import ExchangeMethod
from tacit.randomness import scramble


def first_order(before: Tensor, losses: Tensor, own_loss: Tensor, models: Tensor) -> Tensor:
    """Weights of candidate models [m, d]: how much better each is, per distance; sum to 1 or 0."""
    apart = torch.linalg.vector_norm(models - before, dim=1)
    # If a client's own loss is not finite, every model with a finite loss is better.
    better = torch.where(own_loss.isfinite(), own_loss - losses, 1.0)
    counts = (apart > 0) & losses.isfinite()
    worth = torch.where(counts, better / apart, 0.0).clamp(min=0.0)
    return worth / worth.sum().clamp(min=torch.finfo(worth.dtype).tiny)


@dataclass(frozen=True, kw_only=True)
class FedFomo(ExchangeMethod):
    """First-order mixtures, chosen by the receiver."""

    judges = True

    peers: int = 5
    """Models of others that a client is sent in a round (M)."""
    explore: float = 0.3
    """Share of the first round's models that are drawn at random; it falls evenly to zero (ε)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("peers", self.peers >= 1, "at least 1")
        self._require("explore", 0 <= self.explore <= 1, "from 0 to 1")

    @property
    def copies(self) -> int:
        return self.peers

    def state(self, model: FlatModel, board: Board) -> State:
        start, none = board["start"], board["start"].new_zeros(self.peers)
        return {"w": start, "before": start, "liked": none, "buffers": model.buffers}

    def client(
        self, model: FlatModel, board: Board, state: State, batches: Batches
    ) -> tuple[State, Tensor]:
        w, buffers = sgd(model, state["w"], state["buffers"], batches, self.rate(board))
        # What it thought of the models it was sent goes with the next upload; and a one, by which
        # a receiver knows that a place among the models it is sent is filled.
        sent = torch.cat([w, torch.ones_like(w[:1]), state["liked"]])
        return state | {"w": w, "before": state["w"], "buffers": buffers}, sent

    def memory(self, tasks: int) -> dict[str, Tensor]:
        nobody = torch.full((tasks, self.peers), -1.0)
        return {"liking": torch.zeros(tasks, tasks), "sent": nobody}

    def answer(self, uploads: Uploads, memory: dict[str, Tensor]) -> Answer:
        liking, sent = memory["liking"].clone(), memory["sent"].clone()
        here, n = uploads.tasks, len(uploads)
        before = sent[here].long()  # whom each was last sent
        seen = (before >= 0).to(liking.dtype) * uploads.rest[:, 1:]
        rows = here.unsqueeze(1).expand_as(before)
        liking.index_put_((rows, before.clamp(min=0)), seen, accumulate=True)
        chosen = self._chosen(liking[here][:, here], uploads)
        empty = self.peers - chosen.shape[1]  # places that nobody fills
        sent[here] = torch.nn.functional.pad(here[chosen].to(sent.dtype), (0, empty), value=-1.0)
        whole = torch.nn.functional.one_hot(chosen.T, n).to(uploads.vectors.dtype)
        own = torch.eye(n, dtype=whole.dtype, device=whole.device).expand_as(whole)
        both = uploads.holds.T[:, chosen.T] & uploads.holds.T.unsqueeze(1)
        heads = torch.where(both.movedim(1, 0).unsqueeze(3), whole.unsqueeze(1), own.unsqueeze(1))
        weights = torch.cat([whole.unsqueeze(1), heads, own.unsqueeze(1)], dim=1)
        weights = torch.cat([weights, weights.new_zeros(empty, *weights.shape[1:])])
        return Answer(weights, {"liking": liking, "sent": sent})

    def _chosen(self, liking: Tensor, uploads: Uploads) -> Tensor:
        """Whom each client is sent: those it liked most, and some at random."""
        here, n = uploads.tasks, len(uploads)
        count = min(self.peers, n - 1)
        # No data decide about luck: it is a scramble of the round and the pair.
        pairs = scramble(uploads.round, here.repeat_interleave(n), here.repeat(n)).reshape(n, n)
        luck = pairs.double().argsort(dim=1).argsort(dim=1).to(liking.dtype) / n
        liking = liking.clone().fill_diagonal_(-torch.inf)
        lucky = luck.argsort(dim=1, descending=True)
        order = liking.gather(1, lucky).argsort(dim=1, descending=True, stable=True)
        random = round(count * self.explore * (1 - uploads.progress))
        best = lucky.gather(1, order)[:, : count - random]
        rest = luck.fill_diagonal_(-torch.inf).scatter(1, best, -torch.inf)
        return torch.cat([best, rest.topk(random, dim=1).indices], dim=1)

    def receive(
        self, model: FlatModel, board: Board, state: State, answer: Tensor, rows: Batches
    ) -> State:
        x, y, weight = rows.x[0], rows.y[0], rows.weight[0]

        def loss(w: Tensor) -> Tensor:
            out = model.predict(w, state["buffers"], x)
            return weighted_loss(model.kind, out, y, weight)

        own, trained = state["before"], state["w"]
        filled = answer[:, model.size : model.size + 1] > 0
        theirs = torch.where(filled, answer[:, : model.size], own)  # no distance, so no weight
        models = torch.cat([theirs, trained.unsqueeze(0)])
        weights = first_order(own, vmap(loss)(models), loss(own), models)
        w = own + weights @ (models - own)
        return state | {"w": w, "liked": weights[: self.peers]}
