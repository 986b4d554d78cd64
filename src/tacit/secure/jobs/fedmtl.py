"""FedMTL's curator on shares: no server learns a model, a task, a size or who is like whom.

Sen & Borcea 2024, Algorithm 1; `methods.fedmtl` has the paper's equations in the clear.

| step           | on shares                                                                       |
|----------------|---------------------------------------------------------------------------------|
| client         | task layers in `slots` of equal length, zeros in those it does not need; which  |
|                | head a slot is, as 0 or 1; layers once more with length one; rows, threshold    |
| similarity     | products of the layers of length one are cosines: no root, no division          |
| assignment     | the best mapping of slots for every pair; a slot of zeros is worth nothing      |
| weights        | below the threshold 0; times rows; divided by the row's sum; `min_peers` with   |
|                | a weight worth the name                                                         |
| map            | slots to heads                                                                  |
| shared layers, | weights × uploads, never cut off: each client puts its own answer together and  |
| task layers    | divides                                                                         |

What differs from the plain curator, and how much: cosines are exact to about 2·10⁻⁵ (layers of
length one are rounded to 1/23000), so `SLACK` is left at thresholds; weights are exact to about
2⁻¹⁵ (32 bits) or 2⁻²⁰ (64), numbers as `fixed` says. Uploads are differences from the public start,
which leaves more bits; as weights add up to one exactly, the start comes back exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tacit.errors import TacitError
from tacit.secure.jobs.job import COORDINATOR, DEALER, MOST_NUMBERS, Job, finish, server_name
from tacit.secure.net.links import Links, PartyError
from tacit.secure.protocol.assignment import best_total
from tacit.secure.protocol.engine import Engine
from tacit.secure.protocol.uploads import Array, Received, Route, Trust
from tacit.secure.protocol.weights import SAY, normalised
from tacit.secure.ring.fixed import RINGS, Fixed
from tacit.secure.ring.kernels import matmul
from tacit.secure.ring.sharing import reconstruct

UNIT = 23_000
"""What length one is written as: its square is below 2²⁹, so cosines fit into 32 bits."""
CUT = 9
"""Bits that are cut off cosines, so that totals compare faster."""
SCALE = UNIT**2 / 2**CUT
"""What a cosine of one is written as while totals are compared."""
SLACK = 1e-4
"""So far below its threshold a similarity still passes, because cosines are rounded."""
MOST_ROWS = 1 << 20
MOST_SLOTS = 10
"""Mappings of more slots are too many to be tried."""
REPORT_BYTES = 2048
BLOCK = 8
"""Clients whose layers are multiplied with all others' at a time."""

Choice = Literal["similar", "everyone", "own"]


@dataclass(frozen=True)
class Secret:
    """What a client has: nothing of it leaves in the clear."""

    rows: np.ndarray
    """Shared layers (and what is mixed like them), less the public start: [columns]."""
    layers: dict[int, np.ndarray]
    """The task layers of the heads it holds."""
    start: dict[int, np.ndarray]
    """What everybody began these heads with."""
    size: int
    """Training rows."""
    least: float
    """Similarity below which others do not count (Z)."""


@dataclass(frozen=True)
class FedMTLAnswer:
    """What a client is answered."""

    rows: np.ndarray
    """Less the public start, like what it sent."""
    layers: np.ndarray
    """[heads, length], less the public start; zeros for heads it does not hold."""


@dataclass(frozen=True, kw_only=True)
class FedMTLJob(Job):
    """One round, as far as it is public."""

    kind = "fedmtl"
    trust: Trust
    bits: int
    columns: int
    heads: int
    slots: int
    """How many task layers a client uploads; those that it does not have are zeros."""
    length: int
    """Of the longest task layer."""
    shared: Choice = "similar"
    mixes_heads: Choice = "similar"
    min_peers: int = 2

    def __post_init__(self) -> None:
        if self.trust not in get_args(Trust) or self.bits not in RINGS:
            raise TacitError("a round of FedMTL needs a known trust setting, and 32 or 64 bits")
        if not {self.shared, self.mixes_heads} <= {*get_args(Choice)}:
            raise TacitError("a round of FedMTL mixes layers as one of its variants does")
        layers = self.heads * self.slots, self.slots * self.length, self.heads * self.length
        if min(*layers, len(self.clients)) < 1 or min(self.columns, self.min_peers) < 0:
            raise TacitError("a round of FedMTL needs clients, and heads with layers")
        if max(*layers, self.columns, self.min_peers) > MOST_NUMBERS:
            raise TacitError(f"a round of FedMTL has at most {MOST_NUMBERS} numbers of a kind")
        if self.trust == "replicated" and self.servers != 3:
            raise TacitError("trust='replicated' needs exactly 3 servers")
        if self.slots > MOST_SLOTS and "similar" in (self.shared, self.mixes_heads):
            raise TacitError(
                f"{self.slots} task layers for each client are too many to be matched on shares: "
                f"at most {MOST_SLOTS}"
            )

    @property
    def dealer(self) -> bool:
        return self.trust == "dealer"

    @property
    def fixed(self) -> Fixed:
        return RINGS[self.bits]

    @property
    def _route(self) -> Route:
        servers = tuple(server_name(i) for i in range(self.servers))
        return Route(self.trust, servers, DEALER, self.clients)

    @property
    def _arrays(self) -> list[Array]:
        word, layer = self.fixed.word, (self.slots, self.length)
        return [
            Array("numbers", (self.slots * self.heads + 3,), np.uint64),
            Array("directions", layer, np.uint32),
            Array("task layers", layer, word),
            Array("shared layers", (self.columns,), word),
        ]

    # The client.

    def take_part(self, links: Links, secret: Secret) -> Generator[None, None, FedMTLAnswer]:
        yield from self._uploading(links, secret)
        yield
        return (yield from self._collecting(links))

    def upload(self, links: Links, secret: Secret) -> None:
        finish(self._uploading(links, secret))

    def collect(self, links: Links) -> FedMTLAnswer:
        return finish(self._collecting(links))

    def _uploading(self, links: Links, secret: Secret) -> Generator[None, None, None]:
        held = sorted(secret.layers)
        if len(held) > self.slots:
            raise TacitError(
                f"{links.name} holds {len(held)} heads, but there are {self.slots} slots"
            )
        if not 1 <= secret.size <= MOST_ROWS:
            raise TacitError(f"{links.name} has {secret.size} rows: 1 to {MOST_ROWS} can be shared")
        layers = np.zeros((self.slots, self.length))
        directions = np.zeros((self.slots, self.length))
        heads = np.zeros((self.slots, self.heads), np.uint64)
        for slot, head in enumerate(held):
            layer = np.asarray(secret.layers[head], np.float64)
            norm = np.linalg.norm(layer)
            layers[slot, : len(layer)] = layer - secret.start[head]
            directions[slot, : len(layer)] = layer / norm if norm > 0 else 0.0
            heads[slot, head] = 1
        need = max(1, round((secret.least - SLACK) * len(held) * SCALE))
        own = round(len(held) * SCALE)
        numbers = np.concatenate([heads.reshape(-1), np.array([secret.size, need, own], np.uint64)])
        fixed, what = self.fixed, f"a parameter of {links.name}"
        fixed.check(layers, what)
        fixed.check(secret.rows, what)
        units = np.rint(directions * UNIT).astype(np.int32).view(np.uint32)
        arrays = [numbers, units, fixed.encode(layers)]
        return self._route.send(
            links, arrays, lambda piece: fixed.encode(secret.rows[piece]), self._arrays
        )

    def _collecting(self, links: Links) -> Generator[None, None, FedMTLAnswer]:
        rows = np.empty(self.columns, self.fixed.real)
        for piece in self._arrays[-1].pieces:
            shape = rows[piece].shape
            rows[piece] = self._reconstruct(links, "shared layers", shape)
            yield
        shape = (self.heads, self.length)
        return FedMTLAnswer(rows, self._reconstruct(links, "task layers", shape))

    def _reconstruct(self, links: Links, label: str, shape: tuple[int, ...]) -> np.ndarray:
        shares = [
            links.receive(name, label, shape, self.fixed.word) for name in self._route.answering
        ]
        return self.fixed.decode(reconstruct(shares))

    # The servers, and the dealer with them.

    def serve(self, links: Links, index: int) -> None:
        engine = self._compute(links)
        report = {"seconds": engine.seconds, "rounds": engine.rounds}
        links.send(COORDINATOR, "report", json.dumps(report).encode().ljust(REPORT_BYTES))

    def deal(self, links: Links) -> None:
        self._compute(links)

    def conclude(self, links: Links) -> dict[str, Any]:
        """How long servers took for what: it depends on shapes alone."""
        reports = {}
        for name in self._route.servers:
            told = links.receive(name, "report", (REPORT_BYTES,)).tobytes()
            try:
                reports[name] = json.loads(told)
            except (ValueError, RecursionError):
                raise PartyError(name, "sent a 'report' that is not JSON") from None
        return reports

    def _compute(self, links: Links) -> Engine:
        engine = self._route.engine(links)
        with engine.phase("upload"):
            received = Received(links, self._route)
            numbers, directions, layers = (
                received.shares(i, kind) for i, kind in enumerate(self._arrays[:3])
            )
            rows = received.rows(3, self._arrays[3])
        heads = numbers[..., :-3].reshape(engine.copies, -1, self.slots, self.heads)
        size, need, own = (numbers[..., i] for i in (-3, -2, -1))
        totals = None
        if "similar" in (self.shared, self.mixes_heads):
            totals = self._totals(engine, directions)
        with engine.phase("weights"):
            weights = self._weights(engine, totals, heads, size, need, own)
        word = self.fixed.word
        with engine.phase("map"):
            place = np.swapaxes(heads, 2, 3).astype(word)
            by_head = engine.product(place, layers, matmul)  # [copies, n, heads, length]
        with engine.phase("shared layers"):
            for part in engine.mixed(weights[:, 0].astype(word), rows):
                self._answer(links, "shared layers", part)
        with engine.phase("task layers"):
            each = np.ascontiguousarray(np.swapaxes(by_head, 1, 2))
            part = engine.product(weights[:, 1:].astype(word), each, matmul, final=True)
            self._answer(links, "task layers", np.swapaxes(part, 0, 1))
        return engine

    def _answer(self, links: Links, label: str, parts: np.ndarray) -> None:
        if links.name in self._route.answering:
            for client, part in zip(self.clients, parts):
                links.send(client, label, part)

    def _totals(self, engine: Engine, directions: np.ndarray) -> np.ndarray:
        """How much of client i's layers has a like in client j, in `SCALE`: [n, n], 64 bits."""
        n, k = len(self.clients), self.slots
        one, other = np.triu_indices(n, 1)
        with engine.phase("similarity"):
            worth = engine.truncate(engine.product(directions, directions, _each_pair), CUT)
            worth = engine.relu(worth, 22)  # two that point apart do not count
        with engine.phase("assignment"):
            bits = 2 + int(np.ceil(np.log2(k * SCALE)))
            best = engine.widen(best_total(engine, worth, bits))
        totals = engine.zeros((n, n), np.uint64)
        totals[:, one, other] = totals[:, other, one] = best
        return totals

    def _weights(
        self,
        engine: Engine,
        totals: np.ndarray | None,
        heads: np.ndarray,
        size: np.ndarray,
        need: np.ndarray,
        own: np.ndarray,
    ) -> np.ndarray:
        """[1 + heads, n, n]: of the shared layers, and of each head."""
        n = len(self.clients)
        score = head_score = self._scores(engine, self.shared, totals, need, own)
        if self.mixes_heads != self.shared:
            head_score = self._scores(engine, self.mixes_heads, totals, need, own)
        holds = heads.sum(axis=2, dtype=np.uint64)  # [copies, n, heads]
        sizes = engine.multiply(holds, size[..., None])
        sizes = np.concatenate([size[:, None, None], np.swapaxes(sizes, 1, 2)[:, :, None]], axis=1)
        scores = np.concatenate(
            [score[:, None], np.broadcast_to(head_score[:, None], (len(score), self.heads, n, n))],
            axis=1,
        )
        scores = engine.multiply(scores, sizes)
        keeps = self._enough_peers(engine, scores)
        everyone = engine.public(np.ones((1, n), np.uint64))
        keeps = engine.multiply(keeps, np.concatenate([everyone, np.swapaxes(holds, 1, 2)], axis=1))
        largest = n * self._largest_score
        return normalised(engine, scores, keeps, largest, self.fixed.weight)

    @property
    def _largest_score(self) -> float:
        return self.slots * SCALE * 1.02 * MOST_ROWS

    def _enough_peers(self, engine: Engine, scores: np.ndarray) -> np.ndarray:
        """1 where `min_peers` others have a say, [1 + heads, n]; `tacit.exchange` has the rule.

        A client chooses what it uploads, also its threshold and its number of rows. If peers of no
        weight counted, it could hide behind them that its mixture is with one other alone.
        """
        n, peers = scores.shape[-1], min(self.min_peers, scores.shape[-1])
        others = scores * (1 - np.eye(n, dtype=np.uint64))
        total = others.sum(axis=-1, dtype=np.uint64)
        over = total + engine.public(np.ones(total.shape[1:], np.uint64))
        parts = SAY * max(1, peers - 1)
        bits = 2 + math.ceil(math.log2(parts * n * self._largest_score))
        heavy = engine.nonnegative(np.uint64(parts) * others - over[..., None], bits)
        light = total - engine.multiply(heavy, others).sum(axis=-1, dtype=np.uint64)
        enough = engine.public(np.full(total.shape[1:], peers, np.uint64))
        many = heavy.sum(axis=-1, dtype=np.uint64) - enough
        either = np.stack([many, np.uint64(SAY) * light - over], axis=1)
        either = engine.nonnegative(either, bits)
        both = engine.multiply(either[:, 0], either[:, 1])
        return either[:, 0] + either[:, 1] - both

    def _scores(
        self,
        engine: Engine,
        choice: Choice,
        totals: np.ndarray | None,
        need: np.ndarray,
        own: np.ndarray,
    ) -> np.ndarray:
        """S before sizes, [n, n]."""
        n = len(self.clients)
        eye = np.eye(n, dtype=np.uint64)
        if choice == "own":
            return engine.public(eye)
        if choice == "everyone":
            return engine.public(np.ones_like(eye))
        assert totals is not None
        passes = engine.nonnegative(totals - need[..., None], 40) * (1 - eye)
        score = engine.multiply(totals, passes)
        diagonal = np.arange(n)
        score[..., diagonal, diagonal] = own
        return score


def _each_pair(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """All products of layers of client i < j: [pairs, k, k], from [n, k, length] twice."""
    n, k, length = x.shape
    rows, columns = x.reshape(n * k, length), np.ascontiguousarray(y.reshape(n * k, length).T)
    found = np.zeros((n * k, n * k), x.dtype)
    for begin in range(0, n * k, BLOCK * k):  # what is below the diagonal is not needed
        some = rows[begin : begin + BLOCK * k]
        found[begin : begin + BLOCK * k, begin:] = matmul(some, columns[:, begin:])
    one, other = np.triu_indices(n, 1)
    return found.reshape(n, k, n, k).transpose(0, 2, 1, 3)[one, other]
