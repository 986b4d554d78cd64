"""Servers on shares for runs across silos: every silo hands its shares to them by itself.

    coordinator ──► train ──► silo: trains, keeps what it would send
    coordinator ──► job ──► servers: wait for the silos
    coordinator ──► share ──► silo ──► shares ──► servers ──► noisy sum (or personal answers)

The coordinator sees who takes part and the noisy sum, and no contribution. Nothing is booked before
a job succeeds. A job that fails is tried again as it is, which shows nobody anything new and costs
nothing (`secure.jobs.summing`). It is on disk before anybody is asked, also for after a crash.
A silo that stays away is left out of the rounds to come. The round that it spoiled is done once
more without it if one of the agreed retries is left, and is lost otherwise: further sums of a round
would cost the others what was not agreed. On the exchange a round is never repeated.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.deploy.events import PartyFailed, SiloLeftOut
from tacit.deploy.guard import Refused
from tacit.deploy.terms import Terms, agreed_noise, agreed_weights
from tacit.engine.on_shares import fedmtl_settings
from tacit.errors import TacitError
from tacit.files import replace
from tacit.methods import FedMTL, OnBillboard
from tacit.privacy.curator import Curated
from tacit.privacy.grid import Grid
from tacit.secure.jobs.curator import SealedSum, curated
from tacit.secure.jobs.fedmtl import FedMTLJob
from tacit.secure.jobs.job import Job, Outcome
from tacit.secure.jobs.kinds import JOBS, job_from_json
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.allowed import Allowed
from tacit.secure.net.links import PartyError
from tacit.secure.net.remote import Remote, take_part
from tacit.secure.net.tls import Identity
from tacit.secure.settings import Secure

if TYPE_CHECKING:
    from tacit.deploy.coordinator import Asking

JOB = "job.json"
TRIES = 3
"""How often the same job is tried while a silo stays away."""
PAUSES = (1.0, 4.0, 15.0, 40.0)
"""Seconds in which a server may be started again, before people have to repair it."""
ABSENT = 8
"""A silo that spoiled n rounds is left out of the next ABSENTⁿ."""
WORKING = 600.0
"""Seconds that a silo waits for servers that compute its answer."""


def sum_job(
    silos: int,
    servers: int,
    clients: tuple[str, ...],
    size: int,
    noise: float,
    members: int = 1,
    **given: Any,
) -> tuple[SumJob, Grid]:
    """The job of one noisy sum. Silos make it too: whatever is asked for has to be this.

    Where persons contribute, a silo hands in the sum of up to so many `members`.
    """
    grid = Grid.of(silos * members, servers, noise)
    given |= {"bits": grid.bits, "bound": grid.steps, "noise": noise * grid.steps}
    given |= {"members": members}
    return SumJob(servers=servers, clients=clients, size=size, **given), grid


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


def read_job(described: Mapping[str, Any] | None) -> Job:
    """The job that a request speaks of; whether it is the agreed one is another question."""
    if described is None:
        raise Refused("shares were asked for, but for no job")
    try:
        return job_from_json(described, JOBS)
    except TacitError:
        raise Refused("shares were asked for, but for a job that no server would do") from None


def allowed_by(terms: Terms, runs: int) -> Allowed:
    """What servers that have these terms do for their coordinator, and nothing else."""
    settings, method = terms.make_curator(), terms.make_method()
    if settings is None:
        raise TacitError("these terms agree on no servers: add [curator], or leave the file out")
    everybody, agreement = frozenset(terms.silos), terms.digest
    if isinstance(method, FedMTL):
        return Allowed(
            agreement,
            FedMTLJob.kind,
            everybody,
            runs * terms.rounds,
            settings=fedmtl_settings(method, settings),
        )
    assert isinstance(method, OnBillboard)
    noise = agreed_noise(terms) / max(agreed_weights(terms) or (1.0,))
    return Allowed(
        agreement, SumJob.kind, everybody, runs * (terms.rounds + terms.retries), noise=noise
    )


class RoundLost(TacitError):
    """A silo stayed away, and the round cannot be done without it."""


@dataclass
class SharedJobs:
    """Jobs that silos take part in by themselves."""

    settings: Secure
    asking: Asking
    ready: dict[int, str] = field(default_factory=dict)
    """Silos that have something to share in this round, by task."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What requests of this round carry."""
    pauses: tuple[float, ...] = PAUSES
    _spoiled: dict[str, int] = field(default_factory=dict)
    """How many rounds each silo spoiled."""
    _back: dict[str, int] = field(default_factory=dict)
    """The round in which a silo is asked for shares again."""

    def begin(self, tasks: Iterable[int], round: int) -> None:
        """These silos are there, and share if they did so when they were last asked."""
        names = self.asking.terms.silos
        self.ready = {k: names[k] for k in tasks if self._back.get(names[k], 0) <= round}

    def run(self, make: Callable[[tuple[str, ...]], Job], round: int) -> tuple[Job, Outcome]:
        """`make(clients)` is the job for these silos; raises `RoundLost` if one stays away."""
        while True:
            job = self._begin_job(make, round)
            try:
                return job, self._try_job(job, round)
            except PartyError as error:
                if error.party not in job.clients:
                    raise TacitError(
                        f"{error.party} {error.what}: nothing was released in round {round + 1}; "
                        "repair it, and start the coordinator again, which costs nothing"
                    ) from error
                self._leave_out(error.party, round)
                lost = f"{error.party} stayed away, so round {round + 1} released nothing"
            if not (job.repeatable and self._retry(round)):
                raise RoundLost(lost)

    def _try_job(self, job: Job, round: int) -> Outcome:
        """Try the same job, which nobody pays for again, until a party is known to be gone."""
        remote = Remote.of(self.settings)
        ask = functools.partial(self._ask, job, round)
        away, pauses = 0, iter(self.pauses)
        while True:
            try:
                return remote.run(job, {}, elsewhere=ask)
            except PartyError as error:
                self.asking.diary.write(PartyFailed(error.party, error.what, round))
                silo = error.party in job.clients
                away += silo
                pause = next(pauses, None)
                if not job.repeatable or pause is None or away >= TRIES:
                    raise
                time.sleep(0.0 if silo else pause)

    def _begin_job(self, make: Callable[[tuple[str, ...]], Job], round: int) -> Job:
        """The job of this round, the same after a crash: it is kept before anybody hears of it."""
        known = self._known()
        if known["round"] == round and known["job"] is not None:
            return job_from_json(known["job"], JOBS)
        job = make(tuple(self.ready.values()))
        self._keep(round, job.to_json(), known["retries"])
        return job

    def _retry(self, round: int) -> bool:
        """Whether the round may have another job; counts it."""
        retries = self._known()["retries"]
        if retries >= self.asking.terms.retries or not self.ready:
            return False
        self._keep(round, None, retries + 1)
        return True

    def _known(self) -> dict[str, Any]:
        path = self.asking.folder / JOB
        if not path.exists():
            return {"round": -1, "job": None, "retries": 0}
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            if known.keys() == {"round", "job", "retries"} and type(known["retries"]) is int:
                return known
        except (ValueError, AttributeError, RecursionError):
            pass
        raise TacitError(
            f"{path} is damaged: take it back from a copy, or remove it and lose this round"
        )

    def _keep(self, round: int, job: dict[str, Any] | None, retries: int) -> None:
        plain = {"round": round, "job": job, "retries": retries}
        replace(self.asking.folder / JOB, json.dumps(plain).encode())

    def _leave_out(self, name: str, round: int) -> None:
        self.ready = {task: other for task, other in self.ready.items() if other != name}
        self._spoiled[name] = self._spoiled.get(name, 0) + 1
        self._back[name] = round + 1 + ABSENT ** self._spoiled[name]
        self.asking.diary.write(SiloLeftOut(name, self._back[name]))

    def summing(self, silos: int, members: int) -> SiloSum:
        """These servers as the curator of the billboard."""
        return SiloSum(self, silos, members)

    def _ask(self, job: Job, round: int) -> None:
        tasks = [self.asking.terms.index(name) for name in job.clients]
        replies = self.asking.ask("share", tasks, round, {}, job=job.to_json(), **self.asked)
        for task, name in zip(tasks, job.clients, strict=True):
            if task not in replies:
                raise PartyError(name, "did not hand in its shares")


@dataclass
class SiloSum:
    """The billboard's curator, where silos hand in shares themselves; see `privacy.curator`."""

    together: SharedJobs
    silos: int
    members: int = 1
    repeats = True

    @property
    def servers(self) -> int:
        return self.together.settings.servers

    @property
    def about(self) -> Curated:
        return curated(self.servers, simulated=False)

    def grid(self, noise: float) -> Grid:
        return Grid.of(self.silos * self.members, self.servers, noise)

    def seal(
        self, vectors: Mapping[int, np.ndarray], size: int, noise: float, round: int
    ) -> SealedSum:
        def made(clients: tuple[str, ...]) -> SumJob:
            return sum_job(self.silos, self.servers, clients, size, noise, self.members)[0]

        if not self.together.ready:
            raise TacitError(f"no silo is there to share anything in round {round + 1}")
        job, outcome = self.together.run(made, round)
        assert isinstance(job, SumJob)
        return SealedSum(job, self.grid(noise), outcome.opened)
