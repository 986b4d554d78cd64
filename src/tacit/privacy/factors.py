"""Gradients of persons that are bounded and summed without being multiplied out.

A row's gradient of a linear layer is an outer product e aᵀ: of the error e at the layer's output,
and of its input a, with a one behind it for the bias. So what a person contributes,
g = (Σ_j e_j a_jᵀ, layer by layer), has few factors. Its length follows from their lengths and inner
products, and the sum over all persons is one matrix product for each layer. That has to be a sum of
bounded integers (`privacy.grid`), so it is made of integer factors:

    s = c · 2^f,   A = round(a √(s ‖e‖/‖a‖)),   E = round(e √(s ‖a‖/‖e‖)),   v = Σ_j E_j A_jᵀ

with a scale c of the person's own, 2^f steps in a clip, and one v for each layer. Both factors are
ℓ = √(s ‖a‖ ‖e‖) long, and v is s·g, but for rounding. Lengths may be taken for slightly more than
they are (`_at_most`): then ℓ is an upper bound, and everything below holds as it stands.

**Claim.** What is returned is Σ v over persons, exactly. Every v is made of one person's factors,
and all of its layers together are at most ρ·2^f long, ρ being the part of a clip that is allowed.

**Proof.** Exact: all terms of a sum are integers. Those of a person add up to Σ_j (ℓ_j + 1)² in
magnitude, at most, with Σ_j ℓ_j² ≤ `ALONE`·2^f and f ≤ 30. At most `MOST` persons are summed at a
time, so partial sums stay below 2^53, in whatever order, and doubles hold them. The rest is int64.

Short: factors are multiplied in single precision, twice 2^−24 of themselves off, and then rounded,
by half a step at most. So E Aᵀ is at most ½(√in + √out) ℓ + ¼√(in·out) + 2^−21 ℓ² away from s e aᵀ.
With Q the sum of ½(√in + √out) √(‖a‖ ‖e‖), and R of ¼√(in·out), over a person's rows and layers,
and S = Σ_j ‖a_j‖ ‖e_j‖, ‖v‖ ≤ s (‖g‖ + 2^−21 S) + √s Q + R. Where rows cancel, ‖g‖² is computed to
(in + out + rows² + 3)·2^−53 of S², in double precision: for layers of `WIDEST` numbers and persons
with `ROWS` rows, ‖g‖ to 2^−19 S. So c is no larger than the root of
c (‖g‖ + `OFF`·S) + √c Q 2^(−f/2) = ρ·`LONGEST` − R 2^(−f). `LONGEST` leaves room for the rest. ∎

The price is small: with 30 bits and layers of 64 numbers, a loud person is cut to .9995 of a clip.
On a grid that is coarser than `FINE` it would not be, so there gradients are multiplied out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.privacy.bounds import Place, lengths, told
from tacit.privacy.channel import Channel
from tacit.privacy.grid import LONGEST, Grid

ALONE = 2.0**8
"""How many clips long the gradients of a person's rows are, one after the other, at most."""
MOST = 1 << 14
"""Persons that are summed at a time."""
WIDEST, ROWS = 1 << 12, 64
"""Numbers that go into a layer or come out of it, and rows of a person."""
OFF = 2.0**-18
FINE, FINEST = 28, 30
"""Bits of a clip: from the first on factors are precise enough, to the second their sums exact."""
AT_ONCE = 1024
"""Rows whose factors are made into integers at a time: near the cache."""


@dataclass(frozen=True)
class Layer:
    """What the gradients of one linear layer are made of, for k persons, in single precision."""

    inputs: Tensor
    """[k, rows, in]."""
    errors: Tensor
    """[k, rows, out]; zero for rows that only fill up."""
    bias: bool

    @property
    def sides(self) -> tuple[int, int]:
        """Of the outer product."""
        return self.inputs.shape[2] + self.bias, self.errors.shape[2]

    def products(self) -> Tensor:
        """Inner products of the gradients of a person's rows [k, rows, rows]."""
        inputs, errors = self.inputs.double(), self.errors.double()
        return (inputs @ inputs.mT + self.bias) * (errors @ errors.mT)

    def summed(self, for_inputs: Tensor, for_errors: Tensor) -> Tensor:
        """Σ v over persons, from what their factors are multiplied with [k, rows]."""
        sides = (self.inputs, self.errors, for_inputs.float(), for_errors.float())
        parts = (one.flatten(0, 1).split(AT_ONCE) for one in sides)
        inputs, errors = self.inputs.shape[2], self.errors.shape[2]
        weights = self.inputs.new_zeros((errors, inputs), dtype=torch.float64)
        bias = weights.new_zeros(errors)
        for a, e, for_a, for_e in zip(*parts, strict=True):
            e = (e * for_e.unsqueeze(1)).round_().double().T
            weights.addmm_(e, (a * for_a.unsqueeze(1)).round_().double())
            if self.bias:
                bias.addmv_(e, for_a.round().double())
        return torch.cat([weights.flatten(), bias]) if self.bias else weights.flatten()


@dataclass(frozen=True)
class Factors:
    """What k persons contribute, not multiplied out: layers in the order of the parameters."""

    layers: tuple[Layer, ...]

    def summed(self, channel: Channel, grid: Grid, count: int) -> tuple[Tensor, int]:
        """Σ v of the first `count` persons as int64 [size], and how many were not finite.

        Those count as zero, and tell no bit; persons behind the first only fill a chunk.
        """
        self._check(grid, channel.place)
        inputs, errors = self._lengths()  # [layers, k, rows]
        finite = (inputs + errors).sum(dim=(0, 2)).isfinite()  # of lengths, all of them
        kept, dropped = self, count - int(finite[:count].sum())
        if not bool(finite.all()):
            kept = self._with_nothing_for(~finite)
            inputs, errors = kept._lengths()
        return kept._total(inputs, errors, finite[:count], channel, grid), dropped

    def _total(
        self, inputs: Tensor, errors: Tensor, finite: Tensor, channel: Channel, grid: Grid
    ) -> Tensor:
        """Of the first persons, as many as it is said of whether they are `finite`."""
        place, share, count = channel.place, channel.share, len(finite)
        rows = inputs * errors
        long = self._long(rows)
        scale = self._scale(rows, long, grid, place.rest / share, channel.clip)
        meant = torch.arange(len(long), device=long.device) < count
        times = torch.where(meant, (scale * grid.steps).sqrt(), 0.0).unsqueeze(1)
        ratio = (inputs / errors).sqrt()
        both = zip(self.layers, times / ratio, times * ratio, strict=True)
        total = torch.cat([layer.summed(a, e) for layer, a, e in both]).long()
        if place.with_bits:
            within = (long[:count] <= channel.clip).double() - 0.5
            bits = torch.where(finite, within, 0.0) / share
            total = torch.cat([total, told(bits, grid).reshape(1)])
        return total

    def _check(self, grid: Grid, place: Place) -> None:
        """Nothing is summed that the proof does not know of."""
        persons, rows, _ = self.layers[0].inputs.shape
        widest = max(max(layer.inputs.shape[2], layer.errors.shape[2]) for layer in self.layers)
        known = persons <= MOST and rows <= ROWS and widest <= WIDEST
        if not (known and FINE <= grid.fraction <= FINEST) or place.relation or place.moments:
            raise ValueError("these gradients are too many or too large to be summed as factors")

    def _with_nothing_for(self, persons: Tensor) -> Factors:
        """The same, with zeros for these persons."""
        none = persons.reshape(-1, 1, 1)
        layers = (
            Layer(one.inputs.masked_fill(none, 0), one.errors.masked_fill(none, 0), one.bias)
            for one in self.layers
        )
        return Factors(tuple(layers))

    def _lengths(self) -> tuple[Tensor, Tensor]:
        """Of inputs (with the one of the bias) and of errors, or slightly more."""
        inputs = _at_most([layer.inputs for layer in self.layers])
        bias = inputs.new_tensor([layer.bias for layer in self.layers]).reshape(-1, 1, 1)
        return (inputs.square() + bias).sqrt(), _at_most([layer.errors for layer in self.layers])

    def _long(self, rows: Tensor) -> Tensor:
        """How long each person's gradient is [k], from how long those of its rows are."""
        if rows.shape[2] == 1:
            return rows.square().sum(dim=0).sqrt().squeeze(1)
        products = torch.stack([layer.products() for layer in self.layers])
        return products.sum(dim=(0, 2, 3)).clamp(min=0).sqrt()

    def _scale(self, rows: Tensor, long: Tensor, grid: Grid, part: float, clip: float) -> Tensor:
        """c of each person, so that its vector is no longer than this part of a clip."""
        sides = [layer.sides for layer in self.layers]
        half = rows.new_tensor([(math.sqrt(a) + math.sqrt(e)) / 2 for a, e in sides])
        rounding = (rows.sqrt() * half.reshape(-1, 1, 1)).sum(dim=0).sum(dim=1)
        rounding, alone = rounding * 2.0 ** (-grid.fraction / 2), rows.sum(dim=0).sum(dim=1)
        lost = rows.shape[2] * sum(math.sqrt(a * e) / 4 for a, e in sides)
        room = max(0.0, part * LONGEST - lost / grid.steps)  # none is left of too small a part
        long = long + OFF * alone
        root = 2 * room / (rounding + (rounding.square() + 4 * room * long).sqrt())
        return torch.minimum(root.square(), ALONE / alone).clamp(max=part / clip)


def _at_most(layers: list[Tensor]) -> Tensor:
    """Lengths of vectors [.., d] of every layer, or slightly more, in double precision.

    They are added up in single precision. In whatever order, squares are then off by d·2^−24 of
    themselves, and by 2^−126 each where they are too small. Too large ones are added up once more.
    """
    found = torch.stack([torch.linalg.vector_norm(each, dim=-1) for each in layers]).double()
    if not bool(found.isfinite().all()):
        again = torch.stack([lengths(each) for each in layers])
        found = torch.where(found.isfinite(), found, again)
    d = max(each.shape[-1] for each in layers)
    return found * (1 + (d + 8) * 2.0**-24) + math.sqrt(d) * 2.0**-63
