"""Rows and heads dealt to simulated clients, as in FedMTL's experiments.

Sen and Borcea, "FedMTL: Privacy-Preserving Federated Multi-Task Learning", ECAI 2024, section 7.1:
rows go to clients by a symmetric Dirichlet distribution (its concentration is not given; 1 here),
and each client works on two heads drawn at random (D1), or on a random number of them (D2).

The dealing is by a seed and looks at no row, so it tells nothing about the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.split import SplitRule
from tacit.errors import TacitError

LEAST_HOLDERS = 2
"""A head that one client alone holds has nobody to learn from."""


def dirichlet_sizes(
    rows: int,
    clients: int,
    seed: int | np.random.Generator = 0,
    *,
    concentration: float = 1.0,
    min_rows: int = 1,
) -> np.ndarray:
    """How many rows each client gets, int64 [clients]: `min_rows`, and a random share of the rest.

    A small `concentration` gives most rows to few clients, a large one gives all the same.
    """
    _check(clients, concentration, min_rows)
    if rows < clients * min_rows:
        raise TacitError(
            f"{rows} rows are too few for {clients} clients with at least {min_rows} rows each; "
            "lower clients or min_rows"
        )
    rng = _generator(seed)
    shares = rng.dirichlet(np.full(clients, float(concentration)))
    return min_rows + rng.multinomial(rows - clients * min_rows, shares)


def deal(
    rows: int,
    clients: int,
    seed: int | np.random.Generator = 0,
    *,
    concentration: float = 1.0,
    min_rows: int = 1,
) -> np.ndarray:
    """The client of each row, int64 [rows]; sizes are those of `dirichlet_sizes`."""
    rng = _generator(seed)
    sizes = dirichlet_sizes(rows, clients, rng, concentration=concentration, min_rows=min_rows)
    return rng.permutation(np.repeat(np.arange(clients), sizes))


def assign(
    heads: int,
    clients: int,
    seed: int | np.random.Generator = 0,
    *,
    per_client: int | None = 2,
) -> np.ndarray:
    """Which client works on which head, bool [clients, heads].

    `per_client` heads each, drawn at random (D1); None draws how many, uniformly from 1 to all
    (D2). A head with fewer than two holders then takes a place from the head with most holders,
    at a random client that holds that one but not this; so each client keeps its number of heads,
    and every head has two holders wherever there are places enough.
    """
    _check(clients)
    if not _whole(heads, 1):
        raise TacitError(f"heads is {heads!r}, expected a whole number, 1 or more")
    if per_client is not None and (not _whole(per_client, 1) or per_client > heads):
        raise TacitError(
            f"heads_per_client is {per_client!r}, expected a whole number from 1 to {heads}, or 0 "
            "for a random number of heads"
        )
    rng = _generator(seed)
    if per_client is None:
        wanted = rng.integers(1, heads + 1, clients)
    else:
        wanted = np.full(clients, per_client)
    rank = rng.random((clients, heads)).argsort(axis=1).argsort(axis=1)
    holds = rank < wanted[:, None]
    least = min(LEAST_HOLDERS, clients, int(wanted.sum()) // heads)
    while (count := holds.sum(axis=0)).min() < least:
        # The fullest head has more than `least` holders here, and so at least two clients that do
        # not hold the emptiest: each pass fills one place, and there are finitely many.
        full, empty = int(count.argmax()), int(count.argmin())
        client = rng.choice(np.flatnonzero(holds[:, full] & ~holds[:, empty]))
        holds[client, full], holds[client, empty] = False, True
    return holds


@dataclass(frozen=True)
class Dealing:
    """How a public data set is dealt: the options that all such sets share, checked first.

    Images, rows and heads have random streams of their own: another number of heads leaves the
    rows where they are.
    """

    clients: int
    heads_per_client: int | None = 2
    """None or 0: a random number (a configuration file has no None)."""
    concentration: float = 1.0
    seed: int = 0
    min_rows: int = 1

    def __post_init__(self) -> None:
        _check(self.clients, self.concentration, self.min_rows)
        _generator(self.seed)

    def check(self, heads: int, rule: SplitRule) -> None:
        """What would fail later is said before anything is read."""
        self.heads(heads)
        if self.min_rows < rule.needed:
            raise TacitError(
                f"min_rows is {self.min_rows}, but a client needs {rule.needed} rows to split; "
                f"pass min_rows={rule.needed} or more"
            )

    def draw(self, count: int, most: int, what: str) -> np.ndarray:
        """`count` of `most` things at random, in their order."""
        if not _whole(count, 1):
            raise TacitError(f"images is {count!r}, expected a whole number, 1 or more")
        if count > most:
            raise TacitError(f"images is {count}, but {what} has only {most}; pass images={most}")
        return np.sort(self._stream(0).choice(most, count, replace=False))

    def rows(self, count: int, clients: int | None = None, stream: int = 0) -> np.ndarray:
        """The client of each row; the rows of a second set are dealt with another `stream`."""
        return deal(
            count,
            self.clients if clients is None else clients,
            self._stream(2 + stream),
            concentration=self.concentration,
            min_rows=self.min_rows,
        )

    def heads(self, count: int) -> np.ndarray:
        """Which client works on which head."""
        per_client = self.heads_per_client
        return assign(
            count, self.clients, self._stream(1), per_client=None if per_client == 0 else per_client
        )

    def names(self, prefixes: tuple[str, ...] = ("client",)) -> list[str]:
        """`client-01` …; with two prefixes the second half of the clients has the second one."""
        digits = max(2, len(str(self.clients)))
        share = -(-self.clients // len(prefixes))
        return [f"{prefixes[k // share]}-{k + 1:0{digits}}" for k in range(self.clients)]

    def _stream(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number])


def _check(clients: int, concentration: float = 1.0, min_rows: int = 1) -> None:
    if not _whole(clients, 2):
        raise TacitError(f"clients is {clients!r}, expected a whole number, 2 or more")
    number = isinstance(concentration, (int, float)) and not isinstance(concentration, bool)
    if not number or not 0 < concentration < np.inf:
        raise TacitError(f"concentration is {concentration!r}, expected a number above 0")
    if not _whole(min_rows, 0):
        raise TacitError(f"min_rows is {min_rows!r}, expected a whole number, 0 or more")


def _whole(value: Any, least: int) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and bool(value >= least)


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if not _whole(seed, 0):
        raise TacitError(f"seed is {seed!r}, expected a whole number, 0 or more")
    return np.random.default_rng(seed)
