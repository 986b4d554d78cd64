"""Real numbers as integers of a ring: value · 2^fraction, rounded, modulo 2^bits.

| ring  | numbers         | rounding error of a number |
|-------|-----------------|----------------------------|
| 2^32  | below 1 (±)     | 2⁻¹⁷                       |
| 2^64  | below 1024 (±)  | 2⁻³³                       |

These leave room for one product with a weight in [0, 1] of `WEIGHT` bits, when weights add up to
one: |Σ pⱼ wⱼ| is below the range again, so the sum cannot wrap around. Nothing is cut off on the
way; who puts the shares together divides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.errors import TacitError
from tacit.secure.ring.sharing import Words

MARGIN = 2.0**-9
"""Part of the range that is kept free, so that rounding cannot leave it."""


@dataclass(frozen=True)
class Fixed:
    """How numbers are written in a ring of `bits`."""

    bits: int
    fraction: int
    """Bits after the point of a number."""
    weight: int
    """Bits after the point of a weight that numbers are multiplied with."""

    @property
    def word(self) -> Words:
        return np.uint32 if self.bits == 32 else np.uint64

    @property
    def range(self) -> float:
        """Numbers must stay below this in magnitude."""
        return 2.0 ** (self.bits - 1 - self.fraction - self.weight)

    @property
    def error(self) -> float:
        """The largest distance between a number and its encoding."""
        return 2.0 ** -(self.fraction + 1)

    def check(self, values: np.ndarray, what: str) -> None:
        """Refuse numbers that do not fit, before anything is sent."""
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        if not largest < self.range * (1 - MARGIN):  # also refuses NaN
            raise TacitError(
                f"{what} is {largest:.3g}, but shares of {self.bits} bits hold numbers below "
                f"{self.range:g}: {self._remedy()}"
            )

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Numbers that fit (`check`), as words."""
        # Single precision has enough bits for 16 after the point, and too few for 32.
        scaled = np.multiply(values, 2.0**self.fraction, dtype=self.real)
        np.rint(scaled, out=scaled)
        return scaled.astype(self._signed).view(self.word)

    def decode(self, words: np.ndarray) -> np.ndarray:
        """Products with weights, as numbers."""
        scale = self.real(2.0 ** -(self.fraction + self.weight))
        return np.multiply(words.view(self._signed), scale, dtype=self.real)

    @property
    def _signed(self) -> type[np.signedinteger]:
        return np.int32 if self.bits == 32 else np.int64

    @property
    def real(self) -> type[np.floating]:
        return np.float32 if self.bits == 32 else np.float64

    def _remedy(self) -> str:
        if self.bits == 32:
            return "use bits=64, or a smaller step size"
        return "the model has run away; use a smaller step size"


RINGS = {32: Fixed(32, 16, 15), 64: Fixed(64, 32, 21)}
