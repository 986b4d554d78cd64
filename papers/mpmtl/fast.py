"""MP-MTL's rounds for all tasks at once: what the engine computes, some thirty times as fast.

The engine runs any method, one task's function at a time, and solves every task's first model anew
in every round. Hundreds of runs of Algorithms 2 and 3 with many settings need less: their steps are
a few batched products. Operator, schedule and noise are those of `methods.mpmtl` and of the
channel, with the same random streams; tests hold the models against the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from papers.mpmtl.trials import MPMTLTrial
from papers.mpmtl.wishart import PrintedMPMTL
from tacit.data.federation import Kind
from tacit.local.batches import Batches
from tacit.methods.base import Board
from tacit.methods.linear import ridge
from tacit.methods.mpmtl import MPMTL
from tacit.privacy.covariance import unflatten
from tacit.privacy.grid import LONGEST
from tacit.randomness import Randomness

Seen = Callable[[int, Tensor, Tensor], None]
"""Round, sum of the clipped covariances, and the noise on it, as matrices."""


class Batched:
    """All tasks' training rows, filled up with zeros, and the models they begin with."""

    def __init__(self, trial: MPMTLTrial, device: torch.device) -> None:
        rows = trial.federation.train.to(device)
        self.kind: Kind = trial.federation.kind
        m, most = trial.tasks, int(rows.counts.max())
        within = torch.arange(len(rows.y), device=device)
        owner = torch.arange(m, device=device).repeat_interleave(rows.counts)
        within = within - rows.offsets[owner]
        d = rows.x.shape[1] + trial.intercept
        self.x = torch.zeros(m, most, d, dtype=torch.float64, device=device)
        self.y = torch.zeros(m, most, dtype=torch.float64, device=device)
        self.weight = torch.zeros_like(self.y)
        x = rows.x.double()
        if trial.intercept:
            x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        self.x[owner, within], self.y[owner, within] = x, rows.y.double()
        self.weight[owner, within] = 1.0
        self.counts = rows.counts.double().unsqueeze(1)
        self.start = vmap(self._first)(self.x, self.y, self.weight)
        small = self.kind == "regression" and d <= 2 * most
        self.gram = torch.bmm(self.x.mT, self.x) / self.counts[..., None] if small else None
        self.product = (self.y.unsqueeze(1) @ self.x).squeeze(1) / self.counts

    def _first(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        batches = Batches(x.unsqueeze(0), y.unsqueeze(0), weight.unsqueeze(0))
        return ridge(self.kind, batches, x.shape[1])

    def slope(self, z: Tensor) -> Tensor:
        """Gradient of every task's mean loss [m, d]."""
        if self.gram is not None:
            return (z.unsqueeze(1) @ self.gram).squeeze(1) - self.product
        scores = (self.x @ z.unsqueeze(2)).squeeze(2)
        error = (scores if self.kind == "regression" else torch.sigmoid(scores)) - self.y
        return ((self.weight * error).unsqueeze(1) @ self.x).squeeze(1) / self.counts


def run(
    batched: Batched,
    method: MPMTL,
    rounds: int,
    one: float,
    seed: int,
    *,
    floor: bool = True,
    seen: Seen = lambda round, signal, noise: None,
) -> Tensor:
    """Models [m, d]; `one` is the noise of a single release with the wanted ε, in clips.

    Without `floor`, eigenvalues are taken as they come, as the paper prints it; the library's
    method counts those that noise alone could have made as that large. Neither costs privacy.
    """
    assert method.outliers is None
    randomness, start = Randomness.of(seed), batched.start
    m, d = start.shape
    printed = method.noise(d) if isinstance(method, PrintedMPMTL) else None
    weights = method.weights(rounds)
    every = one * math.sqrt(sum(weight**2 for weight in weights))
    shared = torch.eye(d, dtype=torch.float64, device=start.device)
    w, last = start, _clipped(method, start)
    for round in range(rounds):
        if round > 0:
            hat = _clipped(method, w) @ shared.T
            z = hat + method.momentum(Board({}, round)) * (hat - last)
            w, last = z - method.lr * (batched.slope(z) + method.ridge * z), hat
        bound = method.clip * LONGEST
        sent = w * (bound / torch.linalg.vector_norm(w, dim=1, keepdim=True)).clamp(max=1.0)
        signal = sent.T @ sent
        if printed is not None:
            flat, spread = printed[round], 0.0
        else:
            drawn = torch.from_numpy(randomness.normal("noise", round, d * (d + 1) // 2))
            spread = method.clip**2 * every / weights[round]
            flat = drawn * spread
        noise = unflatten(flat, d).to(start.device)
        seen(round, signal, noise)
        shared = method.shared((signal + noise) / m, floor * spread / m)
    return _clipped(method, w) @ shared.T


def _clipped(method: MPMTL, w: Tensor) -> Tensor:
    return vmap(method.clipped)(w)
