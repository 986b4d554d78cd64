"""DP-MTRL and DP-AGGR: privacy of one row, turned into privacy of a task (MP-MTL, Proposition 3).

Sunil Kumar Gupta, Santu Rana, Svetha Venkatesh. "Differentially Private Multi-task Learning."
PAISI 2016 (DP-MTRL). Manas Pathak, Shantanu Rane, Bhiksha Raj. "Multiparty Differential Privacy via
Aggregation of Locally Trained Classifiers." NIPS 2010 (DP-AGGR).

For a task to be (ε, δ)-private as a whole, each row is (ε/n, δ/(n e^ε))-private, n the rows of the
largest task. A neighbour has one row of one task replaced; the numbers of rows are public. MP-MTL
*estimates* the slope of the loss that the noise follows from, and says that this is too little
noise. Here it is bounded: rows are clipped to length 1, targets to [−B, B], and both methods solve

    min_w  1/(2n) Σ_j (x_j·w − y_j)² + a/2 ‖w − c‖²,      c public.

**Claim.** With R = B + ‖c‖: (1) ‖w − c‖ ≤ R/(2√a). (2) Replacing a row moves w by at most
min(2L/(na), R/√a), L = R + R/(2√a).

*Proof.* v = w − c solves ridge regression of r = y − Xc, where |r_j| ≤ R because ‖x_j‖ ≤ 1. So
v = (XᵀX/n + aI)⁻¹Xᵀr/n. In the singular values s of X/√n it multiplies r/√n, of length at most R,
by s/(s² + a) ≤ 1/(2√a): (1). For (2) let F and F' be the objectives, with minima w and w'. F is
a-strongly convex, hence a‖w − w'‖ ≤ ‖∇F(w')‖ = ‖∇F(w') − ∇F'(w')‖, which is 1/n times a difference
of two rows' gradients at w'. Each is (x·v' − r)x, of length at most ‖v'‖ + R ≤ L. The other bound
is the diameter of the ball of (1). ∎

DP-MTRL releases each w_k with Gaussian noise, T times. A row is in one task, so a round is one
release, and T rounds need noise √T times as large (exact; equation (7) of MP-MTL needs more). After
a round Ω = (WᵀW)^½ of the *noisy* W, scaled to mean diagonal one, is public; with it the penalty
λ/2 Σ‖w_k‖² + κ/2 tr(WΩ⁻¹Wᵀ) is, for task k with the others' published models held, the square above
with a = λ + κ(Ω⁻¹)_kk and c = −κ Σ_{j≠k} (Ω⁻¹)_kj w_j / a. DP-AGGR releases the mean of all tasks'
ridge models (c = 0), which one row of task k moves by 1/m of (2), as one model for everybody.
"""

from __future__ import annotations

import math

import torch
from scipy.special import log_ndtr
from torch import Tensor

from papers.mpmtl.composition import data_level
from tacit.data.federation import Federation
from tacit.randomness import Randomness

SMALLEST = 1e-2
"""Added to the diagonal of Ω: with more tasks than features it is singular."""


def noise_of(epsilon: float, delta: float) -> float:
    """Noise in units of the sensitivity for one Gaussian release (Balle and Wang 2018, exact).

    An accountant's grid of losses is too coarse for an ε of 0.0001.
    """

    def spent(noise: float) -> float:
        near, far = 0.5 / noise - epsilon * noise, -0.5 / noise - epsilon * noise
        return math.exp(log_ndtr(near)) - math.exp(epsilon + log_ndtr(far))

    low, high = 1e-3, 1.0
    while spent(high) > delta:
        low, high = high, 2 * high
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def sensitivity(rows: Tensor | int, a: Tensor | float, reach: Tensor | float) -> Tensor:
    """How far replacing one of `rows` moves w at most; `reach` is R."""
    rows, a, reach = (torch.as_tensor(v, dtype=torch.float64) for v in (rows, a, reach))
    radius = reach / (2 * a.sqrt())
    return torch.minimum(2 * (reach + radius) / (rows * a), 2 * radius)


class RowMoments:
    """XᵀX/n and Xᵀy/n of every task, rows and targets clipped: all that the solutions need."""

    def __init__(self, federation: Federation, bound: float, intercept: bool) -> None:
        rows = federation.train
        x, y = rows.x.double(), rows.y.double()
        if intercept:
            x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        if federation.kind == "binary":
            y = (2 * y - 1) * bound
        x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=1.0)
        y, self.bound, self.counts = y.clamp(-bound, bound), bound, rows.counts.double()
        tasks = range(len(federation))
        parts = [slice(int(rows.offsets[k]), int(rows.offsets[k + 1])) for k in tasks]
        self.squares = torch.stack([x[p].T @ x[p] for p in parts]) / self.counts[:, None, None]
        self.products = torch.stack([x[p].T @ y[p] for p in parts]) / self.counts[:, None]

    def solve(self, a: Tensor, c: Tensor) -> Tensor:
        """The minimum [m, d] of every task, around c [m, d]."""
        eye = torch.eye(c.shape[1], dtype=c.dtype)
        left = self.squares + a[:, None, None] * eye
        return torch.linalg.solve(left, self.products + a[:, None] * c)

    def sensitivity(self, a: Tensor, c: Tensor) -> Tensor:
        """For every task [m]."""
        return sensitivity(self.counts, a, self.bound + torch.linalg.vector_norm(c, dim=1))


def row_noise(epsilon: float, delta: float, rows: int, releases: int = 1) -> float:
    """Noise in units of a row's sensitivity with which tasks of at most `rows` are private."""
    return math.sqrt(releases) * noise_of(*data_level(epsilon, delta, rows))


def dp_mtrl(
    moments: RowMoments,
    epsilon: float,
    delta: float,
    *,
    ridge: float,
    pull: float,
    rounds: int,
    randomness: Randomness,
) -> Tensor:
    """Published models [m, d] after the last round."""
    m, d = moments.products.shape
    noise = row_noise(epsilon, delta, int(moments.counts.max()), rounds)
    inverse, w = torch.eye(m, dtype=torch.float64), torch.zeros(m, d, dtype=torch.float64)
    for round in range(rounds):
        a = ridge + pull * inverse.diagonal()
        c = -pull * (inverse - torch.diag(inverse.diagonal())) @ w / a[:, None]
        drawn = torch.from_numpy(randomness.normal("noise", round, m * d)).reshape(m, d)
        w = moments.solve(a, c) + noise * moments.sensitivity(a, c)[:, None] * drawn
        if round + 1 < rounds:
            inverse = torch.linalg.inv(relationship(w))
    return w


def relationship(w: Tensor) -> Tensor:
    """Ω [m, m] of models [m, d], mean diagonal one (and a little more)."""
    u, values, _ = torch.linalg.svd(w, full_matrices=False)
    omega = (u * (values / values.sum().clamp(min=1e-300) * len(w))) @ u.T
    return omega + SMALLEST * torch.eye(len(w), dtype=w.dtype)


def dp_aggr(
    moments: RowMoments, epsilon: float, delta: float, *, ridge: float, randomness: Randomness
) -> Tensor:
    """The one published model, for every task [m, d]."""
    m, d = moments.products.shape
    a, c = torch.full((m,), ridge, dtype=torch.float64), torch.zeros(m, d, dtype=torch.float64)
    noise = row_noise(epsilon, delta, int(moments.counts.max()))
    drawn = torch.from_numpy(randomness.normal("noise", 0, d))
    mean = moments.solve(a, c).mean(dim=0)
    return (mean + noise * moments.sensitivity(a, c).max() / m * drawn).expand(m, d).clone()
