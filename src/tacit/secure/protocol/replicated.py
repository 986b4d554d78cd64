"""Trust setting `replicated`: three servers of which no two collude, and nobody beside them.

A secret is the sum of shares 0, 1 and 2; server s holds shares s and s + 1 (modulo 3), so any two
servers have all of it and one has nothing (Araki et al. 2016).

    product       server s has x_s y_s + x_s y_(s+1) + x_(s+1) y_s, and the three sum up to x·y; a
                  fresh share of zero hides the part, and it is passed on to the server before
    comparison    servers 0 and 1 hold x as two additive shares, and server 2 is their dealer
                  (`comparison`): it sees no message of theirs; the result is replicated again
    answers       are computed by servers 0 and 1 in the same way, which costs fewer products than
                  three parts would
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tacit.secure.net.links import Links
from tacit.secure.protocol import comparison
from tacit.secure.protocol.additive import Additive
from tacit.secure.protocol.engine import Bilinear, Engine
from tacit.secure.ring.sharing import Words
from tacit.secure.ring.stream import SEED_BYTES, Stream, fresh_seed


class Replicated(Engine):
    """Replicated shares among three `servers`."""

    copies = 2

    def __init__(self, links: Links, servers: list[str]) -> None:
        super().__init__(links)
        self._index = servers.index(links.name)
        self._before, self._after = servers[self._index - 1], servers[(self._index + 1) % 3]
        # The two holders of share j have a keystream j in common.
        own = fresh_seed()
        links.send(self._before, "common seed", own)
        other = links.receive(self._after, "common seed", (SEED_BYTES,)).tobytes()
        self._common = {self._index: Stream(own), (self._index + 1) % 3: Stream(other)}
        self._pair = Additive(links, servers[:2], servers[2])
        self._neighbour = servers[1 - self._index] if self._index < 2 else ""

    def public(self, value: np.ndarray) -> np.ndarray:
        zero = np.zeros_like(value)  # share 0 is the value
        shares = {0: (value, zero), 1: (zero, zero), 2: (zero, value)}
        return np.stack(shares[self._index])

    def _zero(self, shape: tuple[int, ...], dtype: Words) -> np.ndarray:
        """A part of zero: the three add up to it, and nobody knows another's."""
        part = self._common[self._index].words(shape, dtype)
        part -= self._common[(self._index + 1) % 3].words(shape, dtype)
        return part

    def product(
        self, x: np.ndarray, y: np.ndarray, f: Bilinear, *, final: bool = False
    ) -> np.ndarray:
        if final:
            with self._pair.phase(self._phase):
                pair = [self._held_by_pair(value)[None] for value in (x, y)]
                return self._pair.product(pair[0], pair[1], f, final=True)
        part = f(x[0] + x[1], y[0])
        part += f(x[0], y[1])
        part += self._zero(part.shape, part.dtype.type)
        self.rounds += 1
        self.links.send(self._before, self._phase, part)
        return np.stack(
            [part, self.links.receive(self._after, self._phase, part.shape, part.dtype)]
        )

    def truncate(self, x: np.ndarray, shift: int) -> np.ndarray:
        return self._by_pair(x, lambda own: comparison.truncate(self._pair, own, shift))

    def nonnegative(self, x: np.ndarray, bits: int) -> np.ndarray:
        return self._by_pair(x, lambda own: comparison.nonnegative(self._pair, own, bits))

    def relu(self, x: np.ndarray, bits: int) -> np.ndarray:
        return self._by_pair(x, lambda own: comparison.relu(self._pair, own, bits))

    def widen(self, x: np.ndarray) -> np.ndarray:
        return self._by_pair(x, lambda own: comparison.widen(self._pair, own))

    def _held_by_pair(self, x: np.ndarray) -> np.ndarray:
        """Additive shares of servers 0 and 1; nothing at server 2, which deals for them."""
        return (x[0] + x[1], x[1], np.zeros_like(x[0]))[self._index]

    def _by_pair(self, x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Let servers 0 and 1 compute with server 2 as dealer, and replicate the result.

        Of the new shares, 0 is a keystream of servers 0 and 2, 2 one of servers 1 and 2, and 1 is
        what is left, which servers 0 and 1 tell each other.
        """
        with self._pair.phase(self._phase):
            own = function(self._held_by_pair(x))
        shape, dtype = own.shape, own.dtype.type
        self.rounds += self._pair.rounds + 1
        self._pair.rounds = 0
        if self._index == 2:
            return np.stack(
                [self._common[2].words(shape, dtype), self._common[0].words(shape, dtype)]
            )
        common = self._common[0 if self._index == 0 else 2].words(shape, dtype)
        own -= common
        self.links.send(self._neighbour, self._phase, own)
        between = own + self.links.receive(self._neighbour, self._phase, shape, dtype)
        return np.stack([common, between] if self._index == 0 else [between, common])

    def mixed(self, weights: np.ndarray, rows: Any) -> Iterator[np.ndarray]:
        return self._pair.mixed(self._held_by_pair(weights)[None], rows)
