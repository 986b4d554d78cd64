"""How clients' arrays reach servers as shares, in both trust settings.

| setting      | seeds of masks                 | tensors                                       |
|--------------|--------------------------------|-----------------------------------------------|
| `dealer`     | one for each server; the       | to server 0, which passes long rows on: all   |
|              | dealer has all of them         | servers hold these, masked by all masks       |
| `replicated` | one for each pair of servers   | to server 1, which passes small arrays on to  |
|              |                                | server 2 (share 2 of three), rows to server 0 |

A tensor is the secret less all masks. It leaves the client once, whatever the number of servers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.secure.net.links import Links
from tacit.secure.protocol.additive import Additive, MaskedRows
from tacit.secure.protocol.replicated import Replicated
from tacit.secure.ring.sharing import Words, hide, mask, reconstruct
from tacit.secure.ring.stream import SEED_BYTES, Stream, fresh_seed

Trust = Literal["dealer", "replicated"]
TENSOR_AT = {"dealer": 0, "replicated": 1}
PIECE = 1 << 18
PAIRS = {0: (0, 1), 1: (1, 2), 2: (0, 2)}
"""Replicated: which of a client's three seeds a server has."""


@dataclass(frozen=True)
class Array:
    """One array of an upload; every client's has the same shape."""

    name: str
    shape: tuple[int, ...]
    dtype: Words

    @property
    def pieces(self) -> list[slice]:
        """How long rows are cut: what travels and is worked on together has `PIECE` bytes."""
        (columns,), width = self.shape, PIECE // np.dtype(self.dtype).itemsize
        return [slice(i, min(i + width, columns)) for i in range(0, columns, width)]


@dataclass(frozen=True)
class Route:
    """Who takes part, and whom they trust."""

    trust: Trust
    servers: tuple[str, ...]
    dealer: str
    clients: tuple[str, ...]

    @property
    def seeds(self) -> int:
        return len(self.servers) if self.trust == "dealer" else 3

    @property
    def small_masks(self) -> tuple[int, ...]:
        """Which seeds mask small arrays; replicated: shares 0 and 1."""
        return tuple(range(self.seeds)) if self.trust == "dealer" else (0, 1)

    @property
    def row_masks(self) -> tuple[int, ...]:
        """Which seeds mask long rows; replicated: servers 0 and 1 know one each, server 2 both."""
        return tuple(range(self.seeds)) if self.trust == "dealer" else (0, 2)

    @property
    def answering(self) -> tuple[str, ...]:
        """The servers that hold rows, and whose shares make up an answer."""
        return self.servers if self.trust == "dealer" else self.servers[:2]

    def known_to(self, name: str) -> tuple[int, ...]:
        """Numbers of the seeds that this party is sent."""
        if name == self.dealer:
            return tuple(range(self.seeds))
        index = self.servers.index(name)
        return (index,) if self.trust == "dealer" else PAIRS[index]

    def send(
        self,
        links: Links,
        arrays: Sequence[np.ndarray],
        rows: Callable[[slice], np.ndarray],
        kinds: Sequence[Array],
    ) -> Generator[None, None, None]:
        """A client's side, in steps: fresh seeds to all, then the tensors to one.

        The last is long, and is asked for piece by piece. Servers read it client by client, and
        what comes before array by array.
        """
        seeds = [fresh_seed() for _ in range(self.seeds)]
        to = [*self.servers, self.dealer] if self.trust == "dealer" else self.servers
        for name in to:
            links.send(name, "seeds", b"".join(seeds[i] for i in self.known_to(name)))
        yield
        holder, last = self.servers[TENSOR_AT[self.trust]], kinds[-1]
        for number, (array, kind) in enumerate(zip(arrays, kinds)):
            masks = [seeds[i] for i in self.small_masks]
            links.send(holder, kind.name, hide(array, masks, number))
            yield
        streams = [Stream(seeds[i], len(arrays)) for i in self.row_masks]
        for piece in last.pieces:
            tensor = rows(piece)
            for stream in streams:
                tensor -= stream.words(tensor.shape, last.dtype)
            links.send(holder, last.name, tensor)

    def engine(self, links: Links) -> Additive | Replicated:
        """A server's (or the dealer's) side of the computation."""
        if self.trust == "dealer":
            return Additive(links, list(self.servers), self.dealer)
        return Replicated(links, list(self.servers))


class Received:
    """What a server (or the dealer) was sent by all clients, as its engine wants it."""

    def __init__(self, links: Links, route: Route) -> None:
        self._links, self._route = links, route
        self._holder = route.servers[TENSOR_AT[route.trust]]
        known = route.known_to(links.name)
        width = SEED_BYTES * len(known)
        self._seeds: list[dict[int, bytes]] = []
        """Of each client: the seeds that this party has, by their numbers."""
        for client in route.clients:
            sent = links.receive(client, "seeds", (width,)).tobytes()
            cut = [sent[i : i + SEED_BYTES] for i in range(0, width, SEED_BYTES)]
            self._seeds.append(dict(zip(known, cut)))

    def shares(self, number: int, kind: Array) -> np.ndarray:
        """Shares of one small array of all clients: [copies, n, *shape]."""
        links, route = self._links, self._route
        if links.name == route.dealer:
            return np.zeros((1, len(self._seeds), *kind.shape), kind.dtype)
        passed_on = () if route.trust == "dealer" else route.servers[2:]
        held: dict[int, np.ndarray] = {}
        if links.name in (self._holder, *passed_on):
            tensor = np.empty((len(self._seeds), *kind.shape), kind.dtype)
            for row, client in zip(tensor, route.clients):
                self._take(client, kind, row, passed_on)
            held[2] = tensor
        for known in set(route.small_masks) & set(self._seeds[0]):
            masks = [mask(own[known], kind.shape, kind.dtype, number) for own in self._seeds]
            held[known] = np.stack(masks)
        if route.trust == "replicated":
            index = route.servers.index(links.name)
            return np.stack([held[index], held[(index + 1) % 3]])
        return reconstruct(list(held.values()))[None]

    def rows(self, number: int, kind: Array) -> MaskedRows:
        """The long rows of all clients: masks stay streams, and are made when they are needed."""
        links, route = self._links, self._route
        passed_on = [name for name in route.answering if name != self._holder]
        widths = [piece.stop - piece.start for piece in kind.pieces]
        tensor: list[np.ndarray] = []
        if links.name in route.answering:
            tensor = [np.empty((len(self._seeds), width), kind.dtype) for width in widths]
            for i, client in enumerate(route.clients):
                for piece in tensor:
                    self._take(client, kind, piece[i], passed_on)
        masks = [known for known in route.row_masks if known in self._seeds[0]]
        streams = [[Stream(own[known], number) for known in masks] for own in self._seeds]
        return MaskedRows(widths, tensor, streams, kind.dtype)

    def _take(self, client: str, kind: Array, row: np.ndarray, passed_on: Sequence[str]) -> None:
        """A client's next tensor, from it or from the server that passes it on."""
        first = self._links.name == self._holder
        sender = client if first else self._holder
        self._links.receive(sender, kind.name, row.shape, kind.dtype, out=row)
        for name in passed_on if first else ():
            self._links.send(name, kind.name, row)
