"""A silo's part of a job of servers on shares: the agreed job, and only as often as is paid for.

A silo keeps one journal of every job that it ever handed shares to, in all runs. A job is named by
its digest, which servers answer to as well, and is in the journal before shares leave:

| asked for                     | sums                            | exchange  |
|-------------------------------|---------------------------------|-----------|
| the first job of a round      | paid for with the round         | handed in |
| the same job again            | the same vector, free of charge | refused   |
| another job of the same round | one of the agreed retries, paid | refused   |
| the same job in another round | refused                         | refused   |

The same sum again shows nothing new (proof: `secure.jobs.summing`). Another one has other noise,
so whoever holds both averages it away; who is in the cohort is the same in both, so sampling is
worth nothing there. On the exchange two answers of one round, with and without a silo, or with
another upload of one client, give models away by subtraction: a round is answered once or never.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.deploy.guard import Refused
from tacit.deploy.messages import Request
from tacit.deploy.servers import ToServers, read_job, sum_job
from tacit.deploy.work import Work
from tacit.engine.on_shares import OnShares
from tacit.errors import TacitError
from tacit.files import replace
from tacit.methods import FedMTL
from tacit.secure.jobs.job import Job

SHARES = "shares.json"
LOST = "take it back from a copy"


class Handed:
    """Every job that a silo ever handed shares to: run, round and what was handed in, by digest."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SHARES
        self._changing = threading.Lock()

    def enter(self, work: Work, request: Request, job: Job, what: bytes) -> None:
        """Refuse, or pay and write down that this is about to be handed in."""
        entry = {
            "run": request.run,
            "round": request.round,
            "what": hashlib.sha256(what).hexdigest(),
        }
        with self._changing:
            jobs = self._read()
            if not jobs.keys() >= set(work.last.handed):
                raise TacitError(f"{self._path} is not what it was in this round: {LOST}")
            known = jobs.get(job.digest)
            if known is not None and known != entry:
                raise Refused("shares of something else were handed to this very job before")
            if work.exchanges and _of_round(jobs, request):
                raise Refused(
                    f"a model was handed in for round {request.round + 1}, which is answered once"
                )
            if known is None:
                if _of_round(jobs, request):
                    work.pay_again(request.round)
                replace(self._path, json.dumps(jobs | {job.digest: entry}).encode())
            work.keep_handed(job.digest)  # if the journal is lost after this, nothing is handed in

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {}
        try:
            jobs = json.loads(self._path.read_text(encoding="utf-8"))
            if all(entry.keys() == {"run", "round", "what"} for entry in jobs.values()):
                return jobs
        except (ValueError, AttributeError, RecursionError):
            pass
        raise TacitError(f"{self._path} is damaged, and says what this silo gave away: {LOST}")


def _of_round(jobs: dict[str, Any], request: Request) -> bool:
    asked = (request.run, request.round)
    return any((job["run"], job["round"]) == asked for job in jobs.values())


def hand_in(work: Work, request: Request, servers: ToServers, handed: Handed) -> int | None:
    """Take part in the job that this request speaks of; returns how many numbers were shared.

    That is 0 outside the cohort, and None for a whole model.
    """
    job, last = read_job(request.job), work.last
    if work.name not in job.clients or not set(job.clients) <= set(work.terms.silos):
        raise Refused("shares were asked for a job of other parties")
    if last.round != request.round or last.phase not in ("trained", "watched", "received"):
        raise Refused(f"nothing was trained in round {request.round + 1}, so nothing is shared")
    sent = last.tensors["sent"]  # of persons: integers, on the grid already
    vector = (sent if work.channel.of_persons else sent.double()).numpy()
    if last.phase == "watched":
        vector = np.zeros_like(vector)  # what it has in store is random
    share = _share_model if work.exchanges else _share_vector
    return share(work, request, servers, handed, job, vector)


def _share_vector(
    work: Work, request: Request, servers: ToServers, handed: Handed, job: Job, vector: np.ndarray
) -> int:
    channel = work.channel
    release = channel.release_at(request.round)
    if release is None:
        raise Refused("servers open sums with noise only, and here is none")
    size = channel.place.size(work.course.size_at(request.round))
    parties = len(work.terms.silos), servers.settings.servers, job.clients
    agreed, grid = sum_job(*parties, size, release.noise_multiplier, channel.room, id=job.id)
    _check_agreed(job, agreed)
    integers = vector if channel.of_persons else grid.integers(vector)
    handed.enter(work, request, agreed, integers.tobytes())
    servers.take_part(agreed, integers)
    return 0 if work.last.phase == "watched" else size


def _share_model(
    work: Work, request: Request, servers: ToServers, handed: Handed, job: Job, vector: np.ndarray
) -> None:
    model, method = work.tasks.model, work.tasks.method
    if not isinstance(method, FedMTL):
        raise Refused("shares of a model were asked for that this silo does not have")
    on_shares = OnShares(method, servers.settings, model, work.course.contribution_size)
    agreed = on_shares.job(job.clients, id=job.id)
    _check_agreed(job, agreed)
    heads = work.course.heads
    held = list(range(len(model.parts) - 1))
    held = held if heads is None else heads.holds[work.task].nonzero().squeeze(1).tolist()
    progress = request.round / max(1, work.terms.rounds - 1)
    secret = on_shares.secret(vector, held, work.rows, method.least(progress))
    handed.enter(work, request, agreed, vector.tobytes())
    mixed: Any = servers.take_part(agreed, secret)
    answer = torch.from_numpy(on_shares.put_together(vector, held, mixed)).float()
    work.take_answer(request, answer.unsqueeze(0))


def _check_agreed(job: Job, agreed: Job) -> None:
    asked, mine = job.to_json(), agreed.to_json()
    for name, value in mine.items():
        if asked.get(name) != value:
            raise Refused(f"a job with {name}={asked.get(name)} was asked for, agreed was {value}")
