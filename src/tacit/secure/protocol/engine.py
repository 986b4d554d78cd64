"""What servers can compute on shares. Two trust settings implement it: `additive`, `replicated`.

A shared array at a server is an array of words with one more axis in front: the shares that this
server holds of it (one, or two if they are replicated). Sums, differences, slices and products with
public integers work on shares as they are; the rest needs other servers:

| here                      | on the secrets                                               |
|---------------------------|--------------------------------------------------------------|
| `product(x, y, f)`        | f(x, y), for anything linear in both: elementwise, matrices   |
| `truncate(x, shift)`      | x / 2^shift, rounded up or down at random; exact if it divides |
| `nonnegative(x, bits)`    | 1 where x ≥ 0, else 0                                         |
| `relu(x, bits)`           | x where x ≥ 0, else 0                                         |
| `widen(x)`                | the same number in 64 instead of 32 bits                      |
| `mixed(weights, rows)`    | weights @ rows, for clients to put together                   |

`bits` bounds a number: −2^(bits−1) ≤ x < 2^(bits−1); less is faster. Nothing is ever opened that is
not hidden by a fresh uniform mask, and nothing that is sent depends on secrets in shape or number.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tacit.secure.net.links import Links
from tacit.secure.ring.sharing import Words

Bilinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Engine(ABC):
    """One party's side of every computation on shares."""

    copies: int
    """Shares of an array that a server holds."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.rounds = 0
        """How often servers waited for each other."""
        self.seconds: dict[str, float] = {}
        self._phase = "start"

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Messages and times of what is done inside carry this name."""
        before, self._phase, begin = self._phase, name, time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        self._phase = before

    def zeros(self, shape: tuple[int, ...], dtype: Words) -> np.ndarray:
        return np.zeros((self.copies, *shape), dtype)

    @abstractmethod
    def public(self, value: np.ndarray) -> np.ndarray:
        """A public array of words as a shared one."""

    @abstractmethod
    def product(
        self, x: np.ndarray, y: np.ndarray, f: Bilinear, *, final: bool = False
    ) -> np.ndarray:
        """f(x, y); `final` if it is for clients only, as one share without the axis in front."""

    @abstractmethod
    def truncate(self, x: np.ndarray, shift: int) -> np.ndarray: ...

    @abstractmethod
    def nonnegative(self, x: np.ndarray, bits: int) -> np.ndarray: ...

    @abstractmethod
    def relu(self, x: np.ndarray, bits: int) -> np.ndarray: ...

    @abstractmethod
    def widen(self, x: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def mixed(self, weights: np.ndarray, rows: Any) -> Iterator[np.ndarray]:
        """weights [n, n] @ rows [n, columns], piece by piece of columns: one share for clients."""

    def multiply(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Element by element; the shapes broadcast."""
        return self.product(x, y, np.multiply)

    def maximum(self, x: np.ndarray, y: np.ndarray, bits: int) -> np.ndarray:
        """The larger of two; `bits` must hold their difference."""
        return y + self.relu(x - y, bits)
