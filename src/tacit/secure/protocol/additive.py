"""Trust setting `dealer`: P ≥ 2 servers of which P − 1 may collude, and a dealer beside them.

The dealer hands out random numbers that belong together (products of masks, bits of masks), never
sees a share of data, and must not collude with any server. A server's part of them is a keystream
of a seed it shares with the dealer; only the last server has to be sent corrections.

    product (Beaver 1991)   open x − a and y − b;  f(x, y) = f(x − a, y) + f(a, y − b) + f(a, b)
    clients' large uploads  are masked by clients with seeds that the dealer knows: E = X − B is
                            what servers hold, so P·X = P·E + (P − A)·B + A·B opens P − A only

    what clients are sent   is hidden once more by shares of zero that servers draw among
                            themselves, so that a client and the dealer together learn no more

The dealer runs the same functions, with zeros for shares it does not have: what is computed depends
on shapes alone, so it deals exactly what the servers are about to use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.secure.net.links import Links
from tacit.secure.protocol import comparison
from tacit.secure.protocol.engine import Bilinear, Engine
from tacit.secure.ring.kernels import multiply_add
from tacit.secure.ring.sharing import Words
from tacit.secure.ring.stream import SEED_BYTES, Stream, fresh_seed


class Additive(Engine):
    """Additive shares among `servers`, with randomness from `dealer`."""

    copies = 1

    def __init__(self, links: Links, servers: list[str], dealer: str) -> None:
        super().__init__(links)
        self.deals = links.name == dealer
        self._servers, self._dealer, self._last = servers, dealer, servers[-1]
        self._others = [name for name in servers if name != links.name]
        self.first = links.name == servers[0]
        if self.deals:
            seeds = [fresh_seed() for _ in servers]
            for name, seed in zip(servers, seeds):
                links.send(name, "dealer's seed", seed)
        else:
            seeds = [links.receive(dealer, "dealer's seed", (SEED_BYTES,)).tobytes()]
        self._streams = [Stream(seed) for seed in seeds]
        self._own = Stream(fresh_seed())
        self._around = self._neighbours()

    def _neighbours(self) -> list[tuple[int, Stream]]:
        """Streams in common with the next server, which count as they are, and with the one before,
        which count negatively. Two servers are neighbours once."""
        if self.deals:
            return []
        here, count = self._servers.index(self.links.name), len(self._servers)
        found = []
        if here + 1 < count or count > 2:
            seed = fresh_seed()
            self.links.send(self._servers[(here + 1) % count], "common seed", seed)
            found.append((1, Stream(seed)))
        if here > 0 or count > 2:
            sent = self.links.receive(self._servers[here - 1], "common seed", (SEED_BYTES,))
            found.append((-1, Stream(sent.tobytes())))
        return found

    # Randomness. At a server these are its shares, at the dealer the values themselves.

    def uniform(self, shape: tuple[int, ...], dtype: Words) -> np.ndarray:
        """Uniform words that nobody but the dealer knows."""
        total = self._streams[0].words(shape, dtype)
        for stream in self._streams[1:]:
            total += stream.words(shape, dtype)
        return total

    def hide(self, part: np.ndarray) -> None:
        """Add a share of zero that the dealer does not know."""
        for sign, stream in self._around:
            if sign > 0:
                part += stream.words(part.shape, part.dtype.type)
            else:
                part -= stream.words(part.shape, part.dtype.type)

    def private(self, shape: tuple[int, ...], dtype: Words) -> np.ndarray:
        """Uniform words that are not shared with anybody."""
        return self._own.words(shape, dtype)

    def uniform_bits(self, lanes: int, count: int) -> np.ndarray:
        """Uniform bits, shared by exclusive or and packed."""
        total = self._streams[0].bits(lanes, count)
        for stream in self._streams[1:]:
            total ^= stream.bits(lanes, count)
        return total

    def deal(
        self, shape: tuple[int, ...], dtype: Words, value: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Shares of a value that the dealer computes from what it dealt before."""
        if self.deals:
            found = np.ascontiguousarray(value(), dtype)
            rest = found.copy()
            for stream in self._streams[:-1]:
                rest -= stream.words(shape, dtype)
            self.links.send(self._last, self._phase, rest)
            return found
        if self.links.name == self._last:
            return self.links.receive(self._dealer, self._phase, shape, dtype)
        return self._streams[0].words(shape, dtype)

    def deal_bits(self, lanes: int, count: int, value: Callable[[], np.ndarray]) -> np.ndarray:
        """The same for packed bits."""
        if self.deals:
            found = value()
            rest = found.copy()
            for stream in self._streams[:-1]:
                rest ^= stream.bits(lanes, count)
            self.links.send(self._last, self._phase, rest)
            return found
        if self.links.name == self._last:
            return self.links.receive(self._dealer, self._phase, (lanes, -(-count // 8)))
        return self._streams[0].bits(lanes, count)

    # Opening: only ever of values under a fresh mask.

    def open(self, *masked: np.ndarray) -> list[np.ndarray]:
        """Sums of all servers' arrays, the same for all of them; zeros at the dealer."""
        return self._open(masked, np.add)

    def open_bits(self, *masked: np.ndarray) -> list[np.ndarray]:
        return self._open(masked, np.bitwise_xor)

    def _open(self, masked: tuple[np.ndarray, ...], together: np.ufunc) -> list[np.ndarray]:
        if self.deals:
            return [np.zeros_like(array) for array in masked]
        self.rounds += 1
        for name in self._others:
            for array in masked:
                self.links.send(name, self._phase, array)
        found = [array.copy() for array in masked]
        for name in self._others:
            for total in found:
                sent = self.links.receive(name, self._phase, total.shape, total.dtype)
                together(total, sent, out=total)
        return found

    # What an engine does.

    def public(self, value: np.ndarray) -> np.ndarray:
        return (value if self.first else np.zeros_like(value))[None]

    def product(
        self, x: np.ndarray, y: np.ndarray, f: Bilinear, *, final: bool = False
    ) -> np.ndarray:
        dtype = x.dtype.type
        a, b = self.uniform(x.shape[1:], dtype), self.uniform(y.shape[1:], dtype)
        if self.deals:
            c = f(a, b)
            self.deal(c.shape, dtype, lambda: c)
            return np.zeros_like(c) if final else np.zeros_like(c)[None]
        d, e = self.open(x[0] - a, y[0] - b)
        found = f(d, y[0])
        found += f(a, e)
        found += self.deal(found.shape, dtype, lambda: found)
        if final:
            self.hide(found)
        return found if final else found[None]

    def truncate(self, x: np.ndarray, shift: int) -> np.ndarray:
        return comparison.truncate(self, x[0], shift)[None]

    def nonnegative(self, x: np.ndarray, bits: int) -> np.ndarray:
        return comparison.nonnegative(self, x[0], bits)[None]

    def relu(self, x: np.ndarray, bits: int) -> np.ndarray:
        return comparison.relu(self, x[0], bits)[None]

    def widen(self, x: np.ndarray) -> np.ndarray:
        return comparison.widen(self, x[0])[None]

    def mixed(self, weights: np.ndarray, rows: Any) -> Iterator[np.ndarray]:
        dtype = weights.dtype.type
        a = self.uniform(weights.shape[1:], dtype)
        (d,) = self.open(weights[0] - a)
        for masked, b in rows:
            if self.deals:
                c = _matmul(a, b)
                self.deal(c.shape, dtype, lambda: c)  # noqa: B023
                yield c[:, :0]
                continue
            found = self.deal(b.shape, dtype, lambda: b)  # noqa: B023
            multiply_add(weights[0], masked, found)
            multiply_add(d, b, found)
            self.hide(found)
            yield found


def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    multiply_add(a, b, out)
    return out


@dataclass
class MaskedRows:
    """Large uploads [n, columns]: what is left of them under masks, and the masks as streams.

    A server has the masked rows and one mask of each; the dealer has all masks and no rows.
    """

    widths: list[int]
    masked: list[np.ndarray]
    """Pieces [n, width]; none at the dealer."""
    streams: list[list[Stream]]
    """Of each row, those of the masks this party knows."""
    dtype: Words

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Piece by piece: the masked rows, and the sum of the masks that are known; once."""
        for number, width in enumerate(self.widths):
            masks = np.empty((len(self.streams), width), self.dtype)
            more = np.empty(width, self.dtype)
            for row, streams in zip(masks, self.streams):
                streams[0].fill(row)
                for stream in streams[1:]:
                    row += stream.fill(more)
            yield self.masked[number] if self.masked else masks, masks
