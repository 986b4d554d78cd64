"""What a task does before anything of it leaves: drop what is no number, clip, find its place.

Both curators start here. The machine that sums in the clear takes `total` of a chunk of tasks, in
the contributions' own units. Servers that sum on shares take `vectors`: one for each task, measured
in clips, of length at most one whatever is released (a relation's loadings have rows of length at
most one, moments have the bound of `privacy.moments`, and the bit about the clip is paid for by a
share of the length).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.privacy.moments import Moments
from tacit.relation import Relation

ROUNDING = 1e-5
"""Clipping aims this much below the clip, so that single-precision rounding cannot pass it."""
BITS_SHARE = 0.05
"""Part of an adaptive release (in inverse variance) that pays for the bits about the clip."""


@dataclass(frozen=True)
class Bounded:
    """Contributions of k tasks and what brings them within the clip."""

    kept: Tensor
    """[k, length]; zero where something was not finite."""
    scale: Tensor
    """[k], at most one: times this, a contribution is within the clip."""
    bits: Tensor
    """[k]: +½ for a contribution that was within the clip, −½ for one that was not, 0 for none."""
    dropped: int

    @classmethod
    def of(cls, contributions: Tensor, clip: float, moments: Moments | None) -> Bounded:
        d = contributions.shape[1] if moments is None else moments.vector(contributions.shape[1])
        norms = torch.linalg.vector_norm(contributions[:, :d], dim=1)
        finite = norms.isfinite() & contributions[:, d:].isfinite().all(dim=1)
        scale = torch.where(finite, (clip * (1 - ROUNDING) / norms).clamp(max=1.0), 0.0)
        kept = torch.where(finite.unsqueeze(1), contributions, 0.0)
        bits = torch.where(finite, (norms <= clip).double() - 0.5, 0.0)
        return cls(kept, scale.to(kept.dtype), bits, int((~finite).sum()))

    def total(
        self, unit: float, moments: Moments | None, relation: Relation | None, tasks: Tensor | None
    ) -> Tensor:
        """Their sum: of moments in units, otherwise of the contributions themselves."""
        if moments is not None:
            return moments.total(self.kept, self.scale / unit)
        weights = self.scale.unsqueeze(0)
        if relation is not None:
            assert tasks is not None
            weights = weights * relation.loadings[tasks].T
        return (weights @ self.kept).reshape(-1)

    def vectors(
        self,
        unit: float,
        moments: Moments | None,
        relation: Relation | None,
        tasks: Tensor,
        *,
        with_bits: bool,
    ) -> Tensor:
        """What each task adds to the sum, in units and double precision: [k, size (+ 1)]."""
        kept, scale = self.kept.double(), self.scale.double() / unit
        if moments is not None:
            found = moments.each(kept, scale)
        else:
            found = kept * scale.unsqueeze(1)
            if relation is not None:
                spread = relation.loadings[tasks].double().unsqueeze(2) * found.unsqueeze(1)
                found = spread.reshape(len(kept), -1)
        if not with_bits:
            return found
        bits = math.sqrt(BITS_SHARE) * 2 * self.bits
        return torch.cat([math.sqrt(1 - BITS_SHARE) * found, bits.unsqueeze(1)], dim=1)
