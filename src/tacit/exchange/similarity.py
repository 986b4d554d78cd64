"""How similar clients are, from their task layers: FedMTL's equations 4 to 6.

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

import numpy as np
import torch
from torch import Tensor


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
