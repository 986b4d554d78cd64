"""The exchange: clients upload to a curator, which answers each of them personally.

    own rows ──► client ──► upload ──► curator: weights of who learns from whom
                   ▲                      │
                   └──── own answer ◄─────┘  (weighted sums of uploads)

This is the second way in which tasks talk. Nothing is noised: *it protects nothing between clients,
and the curator sees all models.* A method says with which weights uploads are mixed, and nothing
else; the mixing itself is one matrix product, done here, so that what an answer reveals can be
read off the weights (`reveals`), and so that the same product can be computed on secret shares.

Answers are weighted sums of uploads. Weights are [copies, parts, receivers, senders]: a client may
be sent several vectors, and each part of a vector (shared layers, every head, the rest) has weights
of its own.

How similar clients are is found from their task layers, by FedMTL's equations 4 to 6.

| paper                                                    | here                    |
|----------------------------------------------------------|-------------------------|
| eq. 4: A_ij[a, b] = cos(W_i^T[a], W_j^T[b])               | `cosines`               |
| eq. 5: H_ij = value of the best one-to-one mapping        | `assignment_scores`     |
| eq. 6: S_ij = H_ij / K_i                                  | `similarity`            |

Two points the paper leaves open. A mapping may leave a layer without a partner, so a pair with a
negative cosine is never counted: only then is S in [0, 1] as the paper says, and only then do
layers of zeros (fake tasks of the secure version, whose cosine with everything is 0) change
nothing. And S_ii is 1, also for a client whose layers are all zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Uploads:
    """The uploads of the tasks that are there in this round, one row each.

    Parts of a vector: the shared layers, each head, and last whatever else the method sends (its
    width may be zero). A head that a task does not hold is there too, as everybody began with it.
    """

    tasks: Tensor
    """Which tasks they are: [n]."""
    vectors: Tensor
    """[n, model and rest]."""
    sizes: Tensor
    """Training rows of each task: [n]."""
    holds: Tensor
    """Which heads each task works on: bool [n, heads]."""
    parts: list[slice]
    round: int
    rounds: int

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def model(self) -> Tensor:
        """Without the rest: [n, d]."""
        return self.vectors[:, : self.parts[-1].start]

    @property
    def rest(self) -> Tensor:
        """What the method sends beside the model: [n, width]."""
        return self.vectors[:, self.parts[-1]]

    @property
    def heads(self) -> Tensor:
        """The task layers, zeros where a task has none, padded to the longest: [n, heads, size]."""
        layers = self.parts[1:-1]
        longest = max(part.stop - part.start for part in layers)
        found = self.vectors.new_zeros(len(self), len(layers), longest)
        for number, part in enumerate(layers):
            found[:, number, : part.stop - part.start] = self.vectors[:, part]
        return torch.where(self.holds.unsqueeze(2), found, 0.0)

    @property
    def progress(self) -> float:
        """From 0 in the first round to 1 in the last."""
        return self.round / max(1, self.rounds - 1)


@dataclass(frozen=True)
class Answer:
    """What the curator decides in a round."""

    weights: Tensor
    """[copies, parts, n, n]."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """What it remembers for the next round."""
    similarity: Tensor | None = None
    """How similar it finds the clients, where it asks: [n, n]."""


def mixed(weights: Tensor, uploads: Uploads, receivers: Tensor) -> Tensor:
    """What these receivers (positions among the uploads) are sent: [m, copies, length]."""
    chosen = weights[:, :, receivers].to(uploads.vectors.dtype)
    parts = [
        chosen[:, number] @ uploads.vectors[:, part] for number, part in enumerate(uploads.parts)
    ]
    return torch.cat(parts, dim=2).transpose(0, 1)


def normalised(scores: Tensor) -> Tensor:
    """Rows [.., n, n] that sum to one; a client that nobody scores keeps itself."""
    total = scores.sum(dim=-1, keepdim=True)
    own = torch.eye(scores.shape[-1], dtype=scores.dtype, device=scores.device)
    return torch.where(total > 0, scores / total, own)


SAY = 10
"""One peer alone never has more than all but one part in `SAY` of what others weigh."""


def guarded(weights: Tensor, min_peers: int) -> Tensor:
    """Where fewer than `min_peers` others have a say in a part, the client keeps its own.

    A mixture with one other client is that client's model up to one number: w_j is (answer − own
    share · w_i) / the rest, and the client knows its own w_i. So is, nearly, a mixture with one
    other and some whose weights are next to nothing. A peer is heavy with more than one part in
    `SAY` (`min_peers` − 1) of what all others weigh. Enough have a say where so many are heavy, or
    where light ones, who are then at least as many, weigh one part in `SAY` together. Whichever
    `min_peers` − 1 others one takes away, more than a heavy one's part is left.
    """
    own = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    others = torch.where(own > 0, 0.0, weights)
    total = others.sum(dim=-1, keepdim=True) * (1 + 1e-9)  # ties stay ties in spite of rounding
    heavy = SAY * max(1, min_peers - 1) * others > total
    light = torch.where(heavy, 0.0, others).sum(dim=-1, keepdim=True)
    enough = (heavy.sum(dim=-1, keepdim=True) >= min_peers) | (SAY * light > total)
    return torch.where(enough, weights, own)


def reveals(weights: Tensor) -> Tensor:
    """Whose upload an answer gives away up to one number: bool [receivers, senders].

    True where some part of some copy depends on a single other client.
    """
    others = _others(weights)
    alone = others & (others.sum(dim=-1, keepdim=True) == 1)
    return alone.flatten(0, 1).any(dim=0)


def _others(weights: Tensor) -> Tensor:
    """Who else has a say: bool, like the weights."""
    own = torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device)
    return (weights != 0) & ~own


def cosines(heads: Tensor) -> Tensor:
    """All pairs of task layers [n, k, size]: [n, k, n, k]; 0 for a layer of zeros, never NaN."""
    n, k, _ = heads.shape
    lengths = torch.linalg.vector_norm(heads, dim=2, keepdim=True)
    unit = torch.where(lengths > 0, heads / lengths, 0.0).reshape(n * k, -1)
    return (unit @ unit.T).clamp(-1, 1).reshape(n, k, n, k)


def assignment_scores(pairs: Tensor) -> Tensor:
    """The largest total of a one-to-one mapping between layers of every two clients: [n, n].

    Where the best partners of all layers differ, they are that mapping; the Hungarian algorithm
    decides about the other pairs of clients.
    """
    from scipy.optimize import linear_sum_assignment  # takes long to load, and few runs need it

    worth = pairs.double().cpu().numpy().transpose(0, 2, 1, 3).clip(min=0.0)
    n, _, k, _ = worth.shape
    best, partner = worth.max(axis=3), worth.argmax(axis=3)
    wanted = np.zeros((n, n, k), dtype=np.int64)
    matters = best > 0
    i, j, a = np.nonzero(matters)
    np.add.at(wanted, (i, j, partner[i, j, a]), 1)
    found = best.sum(axis=2)
    for i, j in np.argwhere(np.triu(wanted.max(axis=2) > 1)).tolist():
        pair = worth[i, j]
        found[i, j] = pair[linear_sum_assignment(pair, maximize=True)].sum()
    # The same number both ways: rows of the one are columns of the other.
    upper = np.triu(found)
    return torch.from_numpy(upper + np.triu(upper, 1).T).to(pairs.device)


def distances(models: Tensor) -> Tensor:
    """Squared Euclidean distances of all pairs of models [n, d]: [n, n], symmetric to the bit.

    Measured from one of them: models have most of their length in common, and differences of large
    squares would be rounding. It is one of the shorter ones, because some may have run away. A
    model whose square is not finite is infinitely far from all others.
    """
    lengths = torch.linalg.vector_norm(models, dim=1)
    centred = models - models[lengths.argsort()[len(models) // 4]]
    squares = centred.square().sum(dim=1)
    far = ~squares.isfinite()
    centred = torch.where(far.unsqueeze(1), 0.0, centred)
    half = squares / 2  # so that the sum of two finite squares is finite
    # One half of the product serves both ways: kernels round entry (i, j) and (j, i) differently.
    products = (centred @ centred.T).triu()
    found = 2 * (half.unsqueeze(1) + half - products - products.triu(1).T)
    found = torch.where(far.unsqueeze(1) | far, torch.inf, found.clamp(min=0))
    return found.fill_diagonal_(0.0)


def similarity(heads: Tensor, holds: Tensor) -> Tensor:
    """S [n, n] in [0, 1]: how much of client i's task layers has a like in client j."""
    scores = assignment_scores(cosines(heads)) / holds.sum(dim=1, keepdim=True)
    return scores.clamp(0, 1).fill_diagonal_(1.0).to(heads.dtype)
