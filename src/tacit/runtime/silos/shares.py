"""A silo's part of a job of servers on shares: the agreed job, and only as often as is paid for.

Whoever holds the noisy sums of several jobs of one round can average their noise away. So the first
job of a round is paid for with the round, and each further one by itself, as a release over all
silos: which silos are in the cohort is the same in all of them, so sampling is worth nothing there.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from tacit.files import replace
from tacit.methods import FedMTL
from tacit.privacy import Everyone, Release
from tacit.runtime.on_shares import OnShares
from tacit.runtime.silos.guard import Refused
from tacit.runtime.silos.messages import Request
from tacit.runtime.silos.servers import ToServers, asked_job, sum_job
from tacit.runtime.silos.work import Work
from tacit.secure.job import Job

SHARES = "shares.json"


def hand_in(work: Work, request: Request, servers: ToServers) -> str:
    """Take part in the job that this request speaks of; returns what was done, in words."""
    job, last = asked_job(request.job), work.last
    if work.name not in job.clients or not set(job.clients) <= set(work.terms.silos):
        raise Refused("shares were asked for a job of other parties")
    if last.round != request.round or last.phase not in ("trained", "watched", "received"):
        raise Refused(f"nothing was trained in round {request.round + 1}, so nothing is shared")
    vector = last.tensors["sent"].double().numpy()
    if last.phase == "watched":
        vector = np.zeros_like(vector)  # what it has in store is random
    if work.exchanges:
        return _mixed(work, request, servers, job, vector)
    return _summed(work, request, servers, job, vector)


def _summed(work: Work, request: Request, servers: ToServers, job: Job, vector: np.ndarray) -> str:
    channel = work.simulation.channel
    release = channel.release_at(request.round)
    if release is None:
        raise Refused("servers open sums with noise only, and here is none")
    size = channel.place.size(work.simulation.contribution_size)
    agreed, grid = sum_job(
        len(work.terms.silos), servers.settings.servers, job.clients, size,
        release.noise_multiplier, id=job.id,
    )  # fmt: skip
    _check_agreed(job, agreed)
    _pay_again(work, request.round, Release(Everyone(), release.noise_multiplier))
    servers.take_part(agreed, grid.integers(vector))
    what = "zeros (not in this cohort)" if work.last.phase == "watched" else f"{size} numbers"
    return f"{what} handed to {job.servers} servers as shares"


def _mixed(work: Work, request: Request, servers: ToServers, job: Job, vector: np.ndarray) -> str:
    simulation, method = work.simulation, work.simulation.method
    if not isinstance(method, FedMTL):
        raise Refused("shares of a model were asked for that this silo does not have")
    on_shares = OnShares(method, servers.settings, simulation.model, simulation.contribution_size)
    agreed = on_shares.job(job.clients, id=job.id)
    _check_agreed(job, agreed)
    heads = simulation.federation.heads
    held = list(range(len(simulation.model.parts) - 1))
    held = held if heads is None else heads.holds[work.task].nonzero().squeeze(1).tolist()
    progress = request.round / max(1, work.terms.rounds - 1)
    secret = on_shares.secret(vector, held, work.rows, method.least(progress))
    mixed: Any = servers.take_part(agreed, secret)
    answer = torch.from_numpy(on_shares.put_together(vector, held, mixed)).float()
    work.take_answer(request, answer.unsqueeze(0))
    return f"a model handed to {job.servers} servers as shares, and its answer taken"


def _check_agreed(job: Job, agreed: Job) -> None:
    asked, mine = job.to_json(), agreed.to_json()
    for name, value in mine.items():
        if asked.get(name) != value:
            raise Refused(f"a job with {name}={asked.get(name)} was asked for, agreed was {value}")


def _pay_again(work: Work, round: int, release: Release) -> None:
    path = work.folder / SHARES
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before = known.get("jobs", 0) if known.get("round") == round else 0
    if before:
        work.pay_more(release)
    replace(path, json.dumps({"round": round, "jobs": before + 1}).encode())
