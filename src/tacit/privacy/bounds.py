"""What a task does before anything of it leaves: drop what is not finite, clip, find its place.

Whoever sums starts here. A task's vector is measured in clips and has length at most one, whatever
is released: a relation's loadings have rows of length at most one, moments have the bound of
`privacy.moments`, and the bit about the clip is paid for by a share of the length. Lengths are
computed in double precision, whatever the precision of the model.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import gpu
from tacit.data.relation import Relation
from tacit.privacy.grid import LONGEST, Grid
from tacit.privacy.moments import Moments

LARGEST = sys.float_info.max
BITS_SHARE = 0.05
"""Part of an adaptive release (in inverse variance) that pays for the bits about the clip."""
AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 25}
"""Numbers that are turned into double precision, and into integers, at a time: near the cache of a
processor, and enough for a GPU to be busy."""

LONG = 1 << 12
"""Shorter vectors have no kernel."""
ABREAST = 8
"""So many vectors at least are summed together, if there are as many."""


@dataclass(frozen=True)
class Place:
    """Where a contribution goes in what is summed: public, and the same for every task's vector."""

    moments: Moments | None = None
    """What is summed of a contribution; None for itself."""
    relation: Relation | None = None
    """Which sums it goes to; None for the only one."""
    with_bits: bool = False
    """Whether tasks also say if they were within the clip."""

    def size(self, length: int) -> int:
        """How many numbers are summed, for contributions of this length."""
        size = length if self.moments is None else self.moments.size(length)
        return size * (1 if self.relation is None else self.relation.sums) + self.with_bits

    @property
    def rest(self) -> float:
        """The part of a vector's length that the bit leaves to all else."""
        return math.sqrt(1 - BITS_SHARE) if self.with_bits else 1.0

    def apart(self, opened: Tensor) -> tuple[Tensor, float]:
        """What was summed, and the sum of the bits, of a sum [size] in clips."""
        if not self.with_bits:
            return opened, 0.0
        return opened[:-1] / self.rest, float(opened[-1]) / (2 * math.sqrt(BITS_SHARE))


@dataclass(frozen=True)
class Bounded:
    """Contributions of k tasks and what brings them within the clip."""

    given: Tensor
    """[k, length]."""
    scale: Tensor
    """[k], double precision: times this, a contribution is measured in clips and at most one."""
    bits: Tensor
    """[k]: +½ for a contribution that was within the clip, −½ for one that was not, 0 for none."""
    parts: float = 1
    """At how many places the same one is: each has that part of what leaves."""

    @classmethod
    def of(cls, contributions: Tensor, clip: float, moments: Moments | None) -> Bounded:
        """An infinite clip leaves contributions as they are."""
        d = contributions.shape[1] if moments is None else moments.vector(contributions.shape[1])
        norms = lengths(contributions[:, :d])
        finite = norms.isfinite() & contributions[:, d:].isfinite().all(dim=1)
        unit = clip if math.isfinite(clip) else 1.0
        longest = LONGEST * clip / unit
        # Where a clip is below all numbers, what is zero must not become zero times infinity.
        scale = torch.where(finite, (longest / norms).clamp(max=min(1 / unit, LARGEST)), 0.0)
        bits = torch.where(finite, (norms <= clip).double() - 0.5, 0.0)
        return cls(contributions, scale, bits)

    def over(self, parts: float) -> Bounded:
        """The same, each bounded by a clip over so many."""
        return Bounded(self.given, self.scale, self.bits, parts)

    def first(self, count: int) -> Bounded:
        """Those of the first tasks: the others of a chunk only fill it."""
        return Bounded(self.given[:count], self.scale[:count], self.bits[:count], self.parts)

    @property
    def kept(self) -> Tensor:
        """[k, length]; zero where something was not finite."""
        finite = self.scale > 0
        # Hardly ever is one not: a copy of all for nothing. To look, a GPU would have to be waited
        # for, and it copies faster than that.
        every = not finite.is_cuda and bool(finite.all())
        return self.given if every else torch.where(finite.unsqueeze(1), self.given, 0.0)

    @property
    def dropped(self) -> Tensor:
        """How many were not finite: [], where the contributions are."""
        return (self.scale == 0).sum()

    def vectors(self, place: Place, tasks: Tensor | None) -> Tensor:
        """What each task adds to the sum, in clips and double precision: [k, size]."""
        kept, part = self.kept.double(), place.rest / self.parts
        if place.moments is not None:
            found = place.moments.each(kept, self.scale) * part
        else:
            found = kept * (self.scale * part).unsqueeze(1)
            if place.relation is not None:
                assert tasks is not None
                spread = place.relation.loadings[tasks].double().unsqueeze(2) * found.unsqueeze(1)
                found = spread.reshape(len(kept), -1)
        if not place.with_bits:
            return found
        return torch.cat([found, _paid(self.bits / self.parts).unsqueeze(1)], dim=1)

    def summed(
        self, place: Place, tasks: Tensor | None, grid: Grid | None, onto: Tensor | None = None
    ) -> Tensor:
        """Σ of the vectors: exact integers on a grid, or double precision where there is none.

        It is added to what there is already, which is written over.
        """
        length, at_once = self.given.shape[1], AT_ONCE[self.given.device.type]
        if onto is None:
            onto = _whole(self.scale.new_zeros(place.size(length)), grid)
        if place.with_bits:
            onto[-1] += told(self.bits / self.parts, grid)
        sums = onto[: len(onto) - place.with_bits]
        part = place.rest / self.parts
        if place.relation is None and place.moments is None:
            scale = self.scale * part
            if grid is not None and _fast(self.given):
                _add_up(self.given, scale, grid, sums)
                return onto
            # Long vectors are summed a piece of each at a time: one alone would fill the cache.
            scale, wide = scale.unsqueeze(1), at_once // max(2, min(ABREAST, len(scale)))
            for piece, to in zip(self.kept.split(wide, dim=1), sums.split(wide), strict=True):
                many = max(1, at_once // piece.shape[1])
                for block, by in zip(piece.split(many), scale.split(many), strict=True):
                    to += _added(block * by, grid)
            return onto
        if place.relation is None:
            many = max(1, at_once // place.size(length))
            for some in zip(self.kept.split(many), self.scale.split(many), strict=True):
                assert place.moments is not None
                sums += _added(place.moments.each(some[0].double(), some[1]) * part, grid)
            return onto
        assert tasks is not None
        # A task adds to few of the sums: only those are made.
        loadings, each = place.relation.loadings[tasks].double(), sums.view(-1, length)
        for pairs in loadings.nonzero().split(max(1, at_once // length)):
            task, to = pairs.unbind(dim=1)
            scale = self.scale[task] * part * loadings[task, to]
            values = self.kept[task].double() * scale.unsqueeze(1)
            each.index_add_(0, to, _whole(_steps(values, grid), grid))
        return onto


def lengths(vectors: Tensor) -> Tensor:
    """In double precision. Rows are filled up to whole vectors: a GPU adds up a row in another
    order where it begins elsewhere in memory, and the place of a task must not show.

    A piece at a time, cut the same way whoever else is there: to turn numbers into doubles and then
    measure those is several times faster than both at once, while they are in the cache.
    """
    at_once, rows = AT_ONCE[vectors.device.type], vectors.flatten(0, -2)
    if _fast(rows):
        return _lengths_fast(rows).reshape(vectors.shape[:-1])
    width = at_once // ABREAST
    blocks = rows.split(max(1, at_once // max(1, min(rows.shape[1], width))))
    return torch.cat([_lengths(block, width) for block in blocks]).reshape(vectors.shape[:-1])


def _lengths(rows: Tensor, width: int) -> Tensor:
    norm, pad, found = torch.linalg.vector_norm, torch.nn.functional.pad, []
    for piece in rows.split(width, dim=1):
        found.append(norm(pad(piece.double(), (0, -piece.shape[1] % 16)), dim=1))
    return found[0] if len(found) == 1 else norm(torch.stack(found), dim=0)


# On a GPU, which would go over them five times: a kernel does it once.


def _fast(rows: Tensor) -> bool:
    known = rows.dtype == torch.float32 and rows.stride(1) == 1
    return known and len(rows) > 0 and rows.shape[1] >= LONG and gpu.usable(rows.device)


def _lengths_fast(rows: Tensor) -> Tensor:
    parts, block = 16, 1024
    each = -(-rows.shape[1] // (parts * block)) * block
    sums = rows.new_empty(len(rows), parts, dtype=torch.float64)
    gpu.load().add_squares[sums.shape](rows, sums, rows.stride(0), rows.shape[1], each, block)
    return sums.sum(dim=1).sqrt()


def _add_up(rows: Tensor, scale: Tensor, grid: Grid, onto: Tensor) -> None:
    high, wide = 8, 256
    gpu.load().add_up[(-(-rows.shape[1] // wide),)](
        rows, scale, onto, rows.stride(0), *rows.shape, grid.steps, high, wide
    )


def told(bits: Tensor, grid: Grid | None) -> Tensor:
    """The sum of the bits as they are told: paid for by a share of the length."""
    return _whole(_steps(_paid(bits), grid), grid).sum()


def _paid(bits: Tensor) -> Tensor:
    return math.sqrt(BITS_SHARE) * 2 * bits


def _added(vectors: Tensor, grid: Grid | None) -> Tensor:
    """Σ of the rows, which are written over. They are fewer than 2^22, of at most 2^30 steps:
    doubles hold their sum exactly."""
    if len(vectors) == 1 and grid is not None:
        return vectors[0].mul_(grid.steps).long()  # which rounds towards zero, too
    return _whole(_steps(vectors, grid).sum(dim=0), grid)


def _steps(values: Tensor, grid: Grid | None) -> Tensor:
    """Values on the grid, as whole numbers in double precision; they are written over."""
    return values if grid is None else values.mul_(grid.steps).trunc_()


def _whole(steps: Tensor, grid: Grid | None) -> Tensor:
    """As integers, where there is a grid."""
    return steps if grid is None else steps.long()
