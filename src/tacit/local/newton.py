"""Most likely weights of families, and their evidence by Laplace, by whole Newton steps.

For models of few columns; `local.wide` finds the same for those of many.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.families import Family

NEWTON_STEPS = 12
MOST_PAIRS = 1 << 18
"""Products of two columns that are kept for the rows of one task: near the cache."""


def by_newton(
    family: Family,
    x: Tensor,
    roots: Tensor | None,
    offset: Tensor,
    y: Tensor,
    counts: Tensor,
    ratio: Tensor,
) -> tuple[Tensor, Tensor]:
    """Weights [s, outputs, k] around scores [.., n, outputs], and the evidence.

    They are of z = x·root and ~ N(0, ratio·I); the roots are [s, d, k], or None for the identity.
    Rows are summed as x, which is the same for all: z of each would leave the cache.
    """
    back, width = None, x.shape[1] if roots is None else roots.shape[2]
    if len(x) < width:  # the solution lies in the span of the rows
        back, triangle = torch.linalg.qr((x if roots is None else x @ roots).mT)
        x, roots = (triangle.mT, None) if roots is None else (torch.eye(len(x)).to(x), triangle.mT)
    outputs, d = offset.shape[-1], x.shape[1]
    shape = outputs, d if roots is None else roots.shape[2]
    size = outputs * shape[1]
    few = outputs == 1 and x.numel() * d <= MOST_PAIRS
    pairs = (x.unsqueeze(2) * x.unsqueeze(1)).flatten(1) if few else None

    def inside(each: Tensor) -> Tensor:
        """What is said of every row [s, n, outputs], summed over the rows of u [s, size]."""
        summed = (each.mT.flatten(0, 1) @ x).unflatten(0, (-1, outputs))  # x is not copied for each
        return (summed if roots is None else summed @ roots).flatten(1)

    def outside(u: Tensor) -> Tensor:
        """The weights of the columns [s, outputs, d]."""
        each = u.unflatten(-1, shape)
        return each if roots is None else each @ roots.mT

    def curvature(mean: Tensor) -> Tensor:
        found = curvature_of(family, x, mean, counts, pairs)
        if roots is not None:
            found = torch.einsum("soipj,sia,sjb->soapb", found, roots, roots)
        eye = torch.eye(size, dtype=x.dtype, device=x.device)
        return found.flatten(-2).flatten(-3, -2) + eye / ratio[:, None, None]

    def objective(u: Tensor, scores: Tensor) -> Tensor:
        return (u * u).sum(-1) / (2 * ratio) - family.likelihood(scores, y, counts)

    u, scores = x.new_zeros((len(ratio), size)), offset.expand(len(ratio), *offset.shape[-2:])
    for _ in range(NEWTON_STEPS):
        mean = family.mean(scores)
        slope = inside(counts.unsqueeze(1) * (mean - y)) + u / ratio[:, None]
        step = torch.linalg.solve_ex(curvature(mean), slope[..., None])[0][..., 0]
        along = (outside(step) @ x.T).mT  # scores are linear in the length
        lengths = step_lengths(along)
        tried = u - lengths[..., None] * step, scores - lengths[..., None, None] * along
        taken = lengths.gather(0, objective(*tried).argmin(dim=0, keepdim=True))[0]
        u, scores = u - taken[:, None] * step, scores - taken[:, None, None] * along
    logdet = logdet_of(torch.linalg.cholesky_ex(curvature(family.mean(scores)))[0])
    evidence = -objective(u, scores) - 0.5 * (logdet + size * torch.log(ratio))
    u = u.unflatten(-1, shape)
    return u if back is None else u @ back.mT, evidence


def curvature_of(
    family: Family, x: Tensor, mean: Tensor, counts: Tensor, pairs: Tensor | None = None
) -> Tensor:
    """Minus the second derivative of the likelihood where this is expected [.., n, k]:
    [.., k, d, k, d].

    `pairs` [n, d²] are all products of two columns, where they are at hand.
    """
    outputs, d = mean.shape[-1], x.shape[1]
    if outputs == 1:
        weight = family.variance(mean)[..., 0, 0] * counts
        if pairs is not None:
            found = (weight @ pairs).unflatten(-1, (d, d))
        else:
            found = x.T @ (weight.unsqueeze(-1) * x)
        return found.unsqueeze(-2).unsqueeze(-4)
    # The weight of several scores is diag μ − μμᵀ, so all but its blocks is one product.
    each = outputs, d
    spread = (mean.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    counted = (spread * counts.unsqueeze(1)).mT
    found = -(counted @ spread).unflatten(-1, each).unflatten(-3, each)
    blocks = (counted @ x).unflatten(-2, each).movedim(-3, -1)
    found.diagonal(dim1=-4, dim2=-2).add_(blocks)
    return found


def logdet_of(factor: Tensor) -> Tensor:
    """Of matrices with these Cholesky factors [.., d, d]."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def step_lengths(along: Tensor) -> Tensor:
    """Two lengths of a Newton step [2, ..], of which the better one is taken; `along` is what the
    whole step does to scores [.., n, k].

    The whole step may overshoot where classes are separable or counts large. The other one cannot:
    if no two scores of a row, of which one may be 0, move apart by more than r, then curvature
    grows by at most eʳᵗ along a part t of the step (the third derivatives of all families are
    bounded by their second ones), and t = log(1 + r)/r is the best for the worst of such curves.
    """
    most = min(along.shape[-1], 2) * along.abs().flatten(-2).amax(-1).clamp(min=1e-9)
    return torch.stack([torch.ones_like(most), torch.log1p(most) / most])
