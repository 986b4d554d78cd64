"""Servers on shares without processes: what silos hand in is kept, and faults happen on demand."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.deploy.servers import sum_job
from tacit.secure.jobs.job import InProcess, Job, Outcome
from tacit.secure.net.remote import Remote
from tests.deploy.asked import Asked

SERVERS = tacit.Secure(servers=3)


@dataclass
class Kept:
    """A silo's way to the servers; nothing is sent, all is remembered."""

    name: str = ""
    settings: tacit.Secure = SERVERS
    handed: list[tuple[Job, Any]] = field(default_factory=list)

    def take_part(self, job: Job, secret: Any) -> None:
        self.handed.append((job, secret))

    @property
    def sums(self) -> set[str]:
        """Jobs that got something of this silo: each has noise of its own."""
        return {job.id for job, secret in self.handed if np.any(secret)}


class Shown(Remote):
    """Servers that draw noise as processes do; `before` is called with the job, and may raise."""

    def __init__(self, ways: list[Kept], before: Callable[[Job], None] = lambda job: None) -> None:
        super().__init__((), None, Path())
        self.ways, self.before = ways, before
        self.opened: list[tuple[Job, list[np.ndarray]]] = []
        self._secrets = [os.urandom(32) for _ in range(3)]

    def run(self, job, secret_of, elsewhere=None) -> Outcome:
        assert elsewhere is not None
        elsewhere()
        self.before(job)
        here = {way.name: way.handed[-1][1] for way in self.ways if way.name in job.clients}
        assert all(way.handed[-1][0] == job for way in self.ways if way.name in here)

        def keep(links):
            for index, secret in enumerate(self._secrets):
                links[f"server-{index}"].secret = secret

        outcome = InProcess(watch=keep).run(job, here)
        self.opened.append((job, outcome.opened))
        return outcome


class Sharing(Asked):
    """One silo that is asked for shares."""

    def __init__(self, terms, federation, folder, **settings) -> None:
        self.way = Kept(terms.silos[0])
        super().__init__(terms, federation, folder, servers=self.way, **settings)

    def job(self, **changes) -> Job:
        """An honest one, with a new name each time."""
        size = self.coordination.course.channel.place.size(
            self.coordination.course.contribution_size
        )
        agreed = {"clients": self.terms.silos, "size": size, "noise": self.start["noise"]}
        return sum_job(len(self.terms.silos), 3, **(agreed | changes))[0]

    def share(self, job: Job, round: int = 0, **changes):
        return self.ask(kind="share", round=round, job=job.to_json(), tensors={}, **changes)

    def share_at_once(self, jobs: list[Job]) -> list[str]:
        """What becomes of requests that come at the same time."""
        states: list[str] = []
        start = threading.Barrier(len(jobs))

        def ask(job: Job) -> None:
            start.wait()
            states.append(self.share(job).state)

        threads = [threading.Thread(target=ask, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return states
