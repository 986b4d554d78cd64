"""The billboard's curator as servers: what `privacy.channel` asks of one, done on shares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy.curator import Curated
from tacit.privacy.grid import Grid
from tacit.randomness import Randomness
from tacit.secure.jobs.job import Servers
from tacit.secure.jobs.summing import SeededSum, SumJob

BOUND = "one honest server's rounded Gaussian noise alone"


@dataclass
class SecureSum:
    """Sums that servers open with noise of their own inside."""

    where: Servers
    servers: int
    names: tuple[str, ...]
    """Of all tasks: each uploads in each round, whether or not it is in the cohort."""
    randomness: Randomness
    simulated: bool = True
    members: int = 1
    """How many vectors a task may hand in the sum of."""

    repeats = False

    @property
    def about(self) -> Curated:
        return curated(self.servers, simulated=self.simulated)

    def grid(self, noise: float) -> Grid:
        return Grid.of(len(self.names) * self.members, self.servers, noise)

    def seal(
        self, vectors: Mapping[int, np.ndarray], size: int, noise: float, round: int
    ) -> SealedSum:
        """Have the servers sum these tasks' integers; all others hand in zeros."""
        grid = self.grid(noise)
        public: dict[str, Any] = {
            "servers": self.servers,
            "clients": self.names,
            "size": size,
            "bits": grid.bits,
            "bound": grid.steps,
            "noise": noise * grid.steps,
            "members": self.members,
        }
        job = (
            SumJob(**public)
            if self.randomness.secret
            else SeededSum(**public, randomness=self.randomness, round=round)
        )
        secret_of = _Secrets(self.names, vectors, size)
        return SealedSum(job, grid, self.where.run(job, secret_of).opened)


class SealedSum:
    """Noisy shares that nobody has put together yet."""

    def __init__(self, job: SumJob, grid: Grid, shares: list[np.ndarray]) -> None:
        self.__job, self.__grid, self.__shares = job, grid, shares

    @property
    def details(self) -> dict[str, Any]:
        """For the ledger."""
        job, grid = self.__job, self.__grid
        total = job.noise / grid.steps * math.sqrt(job.servers)
        sizes = {"servers": job.servers, "bits": grid.bits, "grid": 1 / grid.steps}
        return {**sizes, "noise_total": total, "bound": BOUND, **self.__named}

    @property
    def __named(self) -> dict[str, str]:
        """Which sum it is; a seeded one is known by its round."""
        return {} if isinstance(self.__job, SeededSum) else {"job": self.__job.digest}

    def open(self) -> np.ndarray:
        """The noisy sum, in steps of the grid. This is the release: book it first."""
        total = self.__job.combine(self.__shares)
        self.__job.check_length(total)
        return total


class _Secrets(Mapping[str, np.ndarray]):
    """What each task hands in; all but the cohort share one vector of zeros."""

    def __init__(
        self, names: tuple[str, ...], vectors: Mapping[int, np.ndarray], size: int
    ) -> None:
        self._number = {name: number for number, name in enumerate(names)}
        self._vectors, self._zeros = vectors, np.zeros(size, np.int64)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._vectors.get(self._number[name], self._zeros)

    def __iter__(self) -> Iterator[str]:
        return iter(self._number)

    def __len__(self) -> int:
        return len(self._number)


def curated(servers: int, *, simulated: bool) -> Curated:
    """What a guarantee says about such a curator."""
    few = "neither sees anything" if servers == 2 else f"up to {servers - 1} together see nothing"
    words = (
        f"contributions are secret-shared among {servers} servers that follow the protocol; {few} "
        "of a task but the noisy sums (no dealer is needed); the noise of one honest server alone "
        "gives this ε; whoever draws the cohorts must keep them secret"
    )
    if simulated:
        words += "; in this run the servers were simulated by one process, which sees everything"
    noise = f"one of {servers} servers adds alone"
    return Curated("secure", servers, "additive shares, no dealer", words, noise)
