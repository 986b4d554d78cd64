"""Answers as weighted sums of uploads, and what they give away.

Weights are [copies, parts, receivers, senders]: a client may be sent several vectors, and each part
of a vector (shared layers, every head, the rest) has weights of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.exchange.uploads import Uploads


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
