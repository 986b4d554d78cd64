"""Servers on shares for runs across silos: every silo hands its shares to them by itself.

    coordinator ──► train ──► silo: trains, keeps what it would send
    coordinator ──► job ──► servers: wait for the silos
    coordinator ──► share ──► silo ──► shares ──► servers ──► noisy sum (or personal answers)

The coordinator sees who takes part and the noisy sum, and no contribution. A silo that fails in the
middle of a job ends it; the next one is without that silo. Nothing is booked before a job succeeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import TacitError
from tacit.grid import Grid
from tacit.privacy.curator import Curated
from tacit.runtime.silos.guard import Refused
from tacit.secure.addresses import Addresses
from tacit.secure.curator import SealedSum, curated
from tacit.secure.job import Job, Outcome
from tacit.secure.jobs import JOBS, job_from_json
from tacit.secure.links import PartyError
from tacit.secure.remote import Remote, take_part
from tacit.secure.settings import Secure
from tacit.secure.summing import SumJob
from tacit.secure.tls import Identity

if TYPE_CHECKING:
    from tacit.runtime.silos.coordinator import Asking

WORKING = 600.0
"""Seconds that a silo waits for servers that compute its answer."""


def sum_job(
    silos: int, servers: int, clients: tuple[str, ...], size: int, noise: float, **given: Any
) -> tuple[SumJob, Grid]:
    """The job of one noisy sum. Silos make it too: whatever is asked for has to be this."""
    grid = Grid.of(silos, servers, noise)
    job = SumJob(
        servers=servers, clients=clients, size=size, bits=grid.bits, bound=grid.steps,
        noise=noise * grid.steps, **given,
    )  # fmt: skip
    return job, grid


@dataclass
class ToServers:
    """A silo's own way to the servers: where they are, and who it is to them."""

    settings: Secure
    name: str

    def take_part(self, job: Job, secret: Any) -> Any:
        settings = self.settings
        identity = Identity(Path(settings.certificates or ""), self.name)
        addresses = Addresses(settings.peers, settings.dealer)
        return take_part(job, secret, identity, addresses, WORKING)


def asked_job(described: Mapping[str, Any] | None) -> Job:
    """The job that a request speaks of; whether it is the agreed one is another question."""
    if described is None:
        raise Refused("shares were asked for, but for no job")
    try:
        return job_from_json(described, JOBS)
    except TacitError:
        raise Refused("shares were asked for, but for a job that no server would do") from None


@dataclass
class Together:
    """Jobs that silos take part in by themselves, tried again without those that fail."""

    settings: Secure
    asking: Asking
    ready: dict[int, str] = field(default_factory=dict)
    """Silos that have something to share in this round, by task."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What requests of this round carry."""

    def run(self, make: Callable[[tuple[str, ...]], Job], round: int) -> tuple[Job, Outcome]:
        """`make(clients)` is the job for these silos."""
        remote = self.settings.remote()
        assert isinstance(remote, Remote)
        while True:
            job = make(tuple(self.ready.values()))
            ask = functools.partial(self._ask, job, round)
            try:
                return job, remote.run(job, {}, elsewhere=ask)
            except PartyError as error:
                named = [task for task, name in self.ready.items() if name == error.party]
                self.asking.diary.write(f"{error.party} {error.what} (shares, round {round + 1})")
                if not named:
                    raise TacitError(
                        f"{error.party} {error.what}: nothing was released in round {round + 1}; "
                        "see to it, and start the coordinator again"
                    ) from error
                del self.ready[named[0]]

    def summing(self, silos: int) -> SiloSum:
        """These servers as the curator of the billboard."""
        return SiloSum(self, silos)

    def _ask(self, job: Job, round: int) -> None:
        tasks = list(self.ready)
        replies = self.asking.ask("share", tasks, round, {}, job=job.to_json(), **self.asked)
        for task in tasks:
            if task not in replies:
                raise PartyError(self.ready[task], "did not hand in its shares")


@dataclass
class SiloSum:
    """The billboard's curator, where silos hand in shares themselves; see `privacy.curator`."""

    together: Together
    silos: int

    @property
    def servers(self) -> int:
        return self.together.settings.servers

    @property
    def about(self) -> Curated:
        return curated(self.servers, simulated=False)

    def grid(self, noise: float) -> Grid:
        return Grid.of(self.silos, self.servers, noise)

    def sealed(
        self, vectors: Mapping[int, np.ndarray], size: int, noise: float, round: int
    ) -> SealedSum:
        made = lambda clients: sum_job(self.silos, self.servers, clients, size, noise)[0]  # noqa: E731
        if not self.together.ready:
            raise TacitError(f"no silo is there to share anything in round {round + 1}")
        job, outcome = self.together.run(made, round)
        assert isinstance(job, SumJob)
        return SealedSum(job, self.grid(noise), outcome.opened)
