"""Rows and heads dealt to simulated clients, as in FedMTL's experiments.

Sen and Borcea, "FedMTL: Privacy-Preserving Federated Multi-Task Learning", ECAI 2024, section 7.1:
rows go to clients by a symmetric Dirichlet distribution (its concentration is not given; 1 here),
and each client works on two heads drawn at random (D1), or on a random number of them (D2).

The dealing is by a seed and looks at no row, so it tells nothing about the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.checks import check_whole, fits
from tacit.data.split import SplitRule
from tacit.errors import TacitError

LEAST_HOLDERS = 2
"""A head that one client alone holds has nobody to learn from."""


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
    """A small one gives most rows to few clients, a large one gives all the same."""
    seed: int = 0
    min_rows: int = 1
    """The fewest rows of a client."""
    validation: float = 0.15
    test: float = 0.15
    split_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 2)
        share = self.concentration
        if not (fits(float, share) and 0 < share < np.inf):
            raise TacitError(f"concentration is {share!r}, expected a number above 0")
        check_whole("min_rows", self.min_rows, 0)
        check_whole("seed", self.seed, 0)

    @cached_property
    def rule(self) -> SplitRule:
        return SplitRule(self.validation, self.test, self.split_seed)

    def check(self, heads: int) -> None:
        """What would fail later is said before anything is read."""
        self.heads(heads)
        if self.min_rows < self.rule.needed:
            raise TacitError(
                f"min_rows is {self.min_rows}, but a client needs {self.rule.needed} rows to "
                f"split; pass min_rows={self.rule.needed} or more"
            )

    def draw(self, count: int, most: int, what: str) -> np.ndarray:
        """`count` of `most` things at random, in their order."""
        check_whole("images", count, 1)
        if count > most:
            raise TacitError(f"images is {count}, but {what} has only {most}; pass images={most}")
        return np.sort(self._stream(0).choice(most, count, replace=False))

    def rows(self, count: int, clients: int | None = None, stream: int = 0) -> np.ndarray:
        """The client of each row, int64 [rows]; `min_rows` each, and a random share of the rest.

        The rows of a second set are dealt with another `stream`.
        """
        clients = self.clients if clients is None else clients
        check_whole("clients", clients, 2)
        rest = count - clients * self.min_rows
        if rest < 0:
            raise TacitError(
                f"{count} rows are too few for {clients} clients with at least {self.min_rows} "
                "rows each; lower clients or min_rows"
            )
        rng = self._stream(2 + stream)
        shares = rng.dirichlet(np.full(clients, float(self.concentration)))
        sizes = self.min_rows + rng.multinomial(rest, shares)
        return rng.permutation(np.repeat(np.arange(clients), sizes))

    def heads(self, count: int) -> np.ndarray:
        """Which client works on which head, bool [clients, heads].

        `heads_per_client` each, drawn at random (D1); None draws how many, uniformly from 1 to all
        (D2). A head with fewer than two holders then takes a place from the head with most holders,
        at a random client that holds that one but not this; so each client keeps its number of
        heads, and every head has two holders wherever there are places enough.
        """
        check_whole("heads", count, 1)
        each = None if self.heads_per_client == 0 else self.heads_per_client
        if each is not None and not (fits(int, each) and 1 <= each <= count):
            raise TacitError(
                f"heads_per_client is {each!r}, expected a whole number from 1 to {count}, or 0 "
                "for a random number of heads"
            )
        rng = self._stream(1)
        if each is None:
            wanted = rng.integers(1, count + 1, self.clients)
        else:
            wanted = np.full(self.clients, each)
        rank = rng.random((self.clients, count)).argsort(axis=1).argsort(axis=1)
        holds = rank < wanted[:, None]
        least = min(LEAST_HOLDERS, self.clients, int(wanted.sum()) // count)
        while (held := holds.sum(axis=0)).min() < least:
            # The fullest head has more than `least` holders here, and so at least two clients that
            # do not hold the emptiest: each pass fills one place, and there are finitely many.
            full, empty = int(held.argmax()), int(held.argmin())
            client = rng.choice(np.flatnonzero(holds[:, full] & ~holds[:, empty]))
            holds[client, full], holds[client, empty] = False, True
        return holds

    def held(self, names: Sequence[str], heads: Sequence[str]) -> dict[str, list[str]]:
        """The heads that each client works on."""
        return {
            name: [head for head, own in zip(heads, row, strict=True) if own]
            for name, row in zip(names, self.heads(len(heads)).tolist(), strict=True)
        }

    def names(self, prefixes: tuple[str, ...] = ("client",)) -> list[str]:
        """`client-01` …; with two prefixes the second half of the clients has the second one."""
        digits = max(2, len(str(self.clients)))
        share = -(-self.clients // len(prefixes))
        return [f"{prefixes[k // share]}-{k + 1:0{digits}}" for k in range(self.clients)]

    def _stream(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number])
