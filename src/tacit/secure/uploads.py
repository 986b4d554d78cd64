"""How clients' arrays reach servers as shares, in both trust settings.

| setting      | a client sends                       | so that a server has                      |
|--------------|--------------------------------------|-------------------------------------------|
| `dealer`     | one seed to each server, all to the  | its own mask; server 0 passes rows on:    |
|              | dealer, the tensors to server 0      | all hold them masked by all masks         |
| `replicated` | two seeds to server 0, one each to 1 | two of the three shares; server 1 passes  |
|              | and 2, the tensors to server 1       | the tensors on to server 2                |

A tensor is the secret less all masks. It leaves the client once, whatever the number of servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.secure.additive import Additive, MaskedRows
from tacit.secure.links import Links
from tacit.secure.replicated import Replicated, ReplicatedRows
from tacit.secure.sharing import Words, hidden, mask
from tacit.secure.stream import SEED_BYTES, Stream, fresh_seed

Trust = Literal["dealer", "replicated"]
TENSOR_AT = {"dealer": 0, "replicated": 1}
PIECE = 1 << 18
MASKS_OF = {0: (0, 1), 1: (1,), 2: (0,)}
"""Replicated: which of a client's two masks a server knows. Share 2 is the tensor."""


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
    def masks(self) -> int:
        return len(self.servers) if self.trust == "dealer" else 2

    def known_to(self, name: str) -> tuple[int, ...]:
        """Numbers of the masks whose seeds this party is sent."""
        if name == self.dealer:
            return tuple(range(self.masks))
        index = self.servers.index(name)
        return (index,) if self.trust == "dealer" else MASKS_OF[index]

    def send(
        self,
        links: Links,
        arrays: Sequence[np.ndarray],
        rows: Callable[[slice], np.ndarray],
        kinds: Sequence[Array],
    ) -> None:
        """A client's side: fresh seeds to all, then the tensors to one.

        The last is long, and is asked for piece by piece.
        """
        seeds = [fresh_seed() for _ in range(self.masks)]
        to = [*self.servers, self.dealer] if self.trust == "dealer" else self.servers
        for name in to:
            links.send(name, "seeds", b"".join(seeds[i] for i in self.known_to(name)))
        holder, last = self.servers[TENSOR_AT[self.trust]], kinds[-1]
        for number, (array, kind) in enumerate(zip(arrays, kinds)):
            links.send(holder, kind.name, hidden(array, seeds, number))
        streams = [Stream(seed, len(arrays)) for seed in seeds]
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
        self._known = route.known_to(links.name)
        self._deals = links.name == route.dealer
        width = SEED_BYTES * len(self._known)
        self._seeds: list[list[bytes]] = []
        for client in route.clients:
            sent = links.receive(client, "seeds", (width,)).tobytes()
            self._seeds.append([sent[i : i + SEED_BYTES] for i in range(0, width, SEED_BYTES)])

    def shares(self, number: int, kind: Array) -> np.ndarray:
        """Shares of one small array of all clients: [copies, n, *shape]."""
        shape = (len(self._seeds), *kind.shape)
        if self._deals:
            return np.zeros((1, *shape), kind.dtype)
        passed_on = self._route.servers[2:] if self._route.trust == "replicated" else ()
        tensor = self._tensor(kind, passed_on)
        held = {} if tensor is None else {2: tensor}
        for i, known in enumerate(self._known):
            masks = [mask(seeds[i], kind.shape, kind.dtype, number) for seeds in self._seeds]
            held[known] = np.stack(masks)
        if self._route.trust == "replicated":
            index = self._route.servers.index(self._links.name)
            return np.stack([held[index], held[(index + 1) % 3]])
        own = held[self._known[0]]
        return (own if tensor is None else own + tensor)[None]

    def rows(self, number: int, kind: Array) -> MaskedRows | ReplicatedRows:
        """The large array of all clients: masks stay streams, and are made when they are needed."""
        trust, servers = self._route.trust, self._route.servers
        widths = [piece.stop - piece.start for piece in kind.pieces]
        tensor = self._row_tensors(kind, widths, servers[1:] if trust == "dealer" else servers[2:])
        streams = [[Stream(seed, number) for seed in seeds] for seeds in self._seeds]
        if trust == "dealer":
            return MaskedRows(widths, tensor, streams, kind.dtype)
        index = servers.index(self._links.name)
        held: dict[int, list[Stream] | list[np.ndarray]] = {2: tensor}
        held |= {known: [own[i] for own in streams] for i, known in enumerate(self._known)}
        return ReplicatedRows(widths, [held[index], held[(index + 1) % 3]], kind.dtype)

    def _row_tensors(
        self, kind: Array, widths: list[int], passed_on: Sequence[str]
    ) -> list[np.ndarray]:
        """The tensors of all clients in pieces [n, width]; none where nobody sends them."""
        links, holder = self._links, self._holder
        if links.name != holder and links.name not in passed_on:
            return []
        found = [np.empty((len(self._seeds), width), kind.dtype) for width in widths]
        for i, client in enumerate(self._route.clients):
            sender = client if links.name == holder else holder
            for piece in found:
                links.receive(sender, kind.name, piece[i].shape, kind.dtype, out=piece[i])
                if links.name == holder:
                    for name in passed_on:
                        links.send(name, kind.name, piece[i])
        return found

    def _tensor(self, kind: Array, passed_on: Sequence[str]) -> np.ndarray | None:
        """The same for a small array, in one piece."""
        links, holder = self._links, self._holder
        if links.name != holder and links.name not in passed_on:
            return None
        found = np.empty((len(self._seeds), *kind.shape), kind.dtype)
        for row, client in zip(found, self._route.clients):
            sender = client if links.name == holder else holder
            links.receive(sender, kind.name, kind.shape, kind.dtype, out=row)
            if links.name == holder:
                for name in passed_on:
                    links.send(name, kind.name, row)
        return found

    @property
    def _holder(self) -> str:
        return self._route.servers[TENSOR_AT[self._route.trust]]
