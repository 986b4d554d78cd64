"""Silos, a coordinator and servers that sum on shares, in one process, each on its own disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import tacit
from tacit.deploy.servers import allowed_by
from tacit.deploy.silo import Silo
from tacit.deploy.terms import Terms
from tacit.errors import TacitError
from tacit.secure.jobs.job import InProcess, Job, Outcome, server_name
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.certificates import make_certificates
from tacit.secure.net.daemon import Daemon
from tacit.secure.net.links import PartyError
from tacit.secure.net.remote import Remote
from tacit.secure.settings import Secure
from tests.deploy.on_shares import SERVERS
from tests.faults.across import SILOS, SilosTrial, terms_of
from tests.faults.disk import Killed
from tests.faults.schedule import Schedule
from tests.faults.trains import METHODS, calm
from tests.faults.trial import Trial

ADDRESSES = Addresses(("a:1", "b:1", "c:1"))


@lru_cache
def certificates(folder: Path) -> Path:
    """Made once: a party that is started again finds its own."""
    made = folder / "certificates"
    made.mkdir()
    make_certificates(made, SERVERS.servers, [f"task-{k}" for k in range(SILOS)])
    return made


@dataclass
class SharesTrial(SilosTrial):
    seed: int | None = None
    retries: int = 0
    keys: Path = Path()
    _handed: dict[str, dict[str, set[bytes]]] = field(default_factory=dict)
    """What each silo handed to each job."""
    _opened: dict[str, set[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.remote = Servers(self)
        for index in range(SERVERS.servers):
            name = server_name(index)
            (self.folder / name).mkdir()
            for file in ("ca.pem", f"{name}.pem"):
                (self.folder / name / file).write_bytes((self.keys / file).read_bytes())
            self.disk.keep(self.folder.resolve() / name)

    def agreed(self) -> Terms:
        more = {"retries": self.retries} if self.retries else {}
        return terms_of(self.method, self.cohort, None, False, curator=SERVERS, **more)

    def servers(self) -> Secure:
        return SERVERS

    def made(self, task: int, **given: Any) -> Silo:
        return super().made(task, servers=Way(self.terms.silos[task], self))

    def once(self) -> int:
        with mock.patch.object(Remote, "of", lambda settings: self.remote):
            return super().once()

    def handed(self, name: str, job: Job, secret: np.ndarray) -> None:
        """A silo pays for each sum before it takes part, and hands one thing to each."""
        jobs = self._handed.setdefault(name, {})
        jobs.setdefault(job.digest, set()).add(secret.tobytes())
        if len(jobs[job.digest]) > 1:
            self.wrong(f"{name} handed different things to one sum")
        booked = self.booked(name).total()
        if booked < len(jobs):
            self.wrong(f"{name} took part in {len(jobs)} sums, and {booked} are booked")

    def opened(self, job: SumJob, shares: list[np.ndarray]) -> None:
        """The same sum again is the same, and there are no more than were agreed."""
        sums = self._opened.setdefault(job.digest, set())
        sums.add(job.combine(shares).tobytes())
        if len(sums) > 1:
            self.wrong("one sum was opened with different noise")
        if len(self._opened) > self.terms.rounds + self.terms.retries:
            self.wrong(f"{len(self._opened)} sums were opened")


@dataclass
class Way:
    """A silo's way to the servers, which may be cut."""

    name: str
    trial: SharesTrial
    settings: tacit.Secure = SERVERS

    def take_part(self, job: Job, secret: np.ndarray) -> None:
        kind = self.trial.schedule.due(self.name, "shares")
        if kind == "before":
            raise PartyError("server-0", "closed the connection")
        self.trial.handed(self.name, job, secret)
        self.trial.remote.here[self.name] = (job.digest, secret)
        if kind == "behind":
            raise PartyError("server-0", "closed the connection")


class Servers(Remote):
    """What server processes check and keep, without their connections."""

    def __init__(self, trial: SharesTrial) -> None:
        super().__init__((), None, Path())
        self.trial, self.here = trial, {}
        self._up: dict[str, Daemon] = {}

    def run(self, job: Job, secret_of: Any, elsewhere: Callable[[], None] | None = None) -> Outcome:
        assert elsewhere is not None and isinstance(job, SumJob)
        self.here.clear()
        for name in job.names:
            self._begin(name, job)
        elsewhere()
        cut = {name: self.trial.schedule.due(name, "shares") for name in job.names}
        for name in job.clients:
            if self.here.get(name, ("",))[0] != job.digest:
                raise PartyError(name, "handed in nothing")
        self._perhaps(cut, "before")
        secrets = {name: secret for name, (_, secret) in self.here.items()}

        def own(links: Any) -> None:
            for name in job.names:
                links[name].secret = self._up[name]._secret

        outcome = InProcess(watch=own).run(job, secrets)
        self.trial.opened(job, outcome.opened)
        self._perhaps(cut, "behind")
        return outcome

    def _perhaps(self, cut: dict[str, str | None], kind: str) -> None:
        for name, found in cut.items():
            if found == kind:
                self._stop(name)
                raise PartyError(name, "closed the connection")

    def _begin(self, name: str, job: Job) -> None:
        """As the coordinator's word does; a server that died is started again before the next."""
        try:
            if name not in self._up:
                allowed = allowed_by(self.trial.terms, 1)
                place = self.trial.folder / name
                self._up[name] = Daemon(name, ADDRESSES, place, allowed=allowed, log=lambda s: None)
            self._up[name]._open(job)
            self._up[name]._session = None
        except Killed as death:
            self._stop(name)
            self.trial.disk.revive(death.party)
            raise PartyError(name, "closed the connection") from None
        except TacitError as error:
            self.trial.sentences.append(f"{name}: {error}")
            raise PartyError(name, f"refused the job: {error}") from None

    def _stop(self, name: str) -> None:
        daemon = self._up.pop(name, None)
        if daemon is not None:
            daemon._woken.close()
            daemon._waker.close()

    def close(self) -> None:
        for name in list(self._up):
            self._stop(name)


def shares_trial(seed: str, folder: Path, quiet: Path) -> Trial:
    random = Random(f"shares {seed}")
    settings: dict[str, Any] = {
        "method": random.choice(sorted(METHODS)),
        "cohort": random.choice((1.0, 0.6)),
        "retries": random.choice((0, 1)),
    }
    keys = certificates(quiet)
    undisturbed = calm(SharesTrial, quiet, **settings, keys=keys)
    schedule = Schedule.drawn(f"shares {seed}", undisturbed.schedule.steps)
    trial = SharesTrial(folder, schedule, **settings, keys=keys)
    trial.run()
    trial.remote.close()
    return trial
