"""Rounds of FedMTL whose curator is several servers that compute on shares.

Clients train and receive as with a plain curator. What is different is what anybody knows: nobody
sees uploads, similarities or weights, so nothing about them can be recorded either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.engine.course import Course
from tacit.engine.exchange import Answered, Exchange, Record
from tacit.engine.on_shares import OnShares, about
from tacit.errors import TacitError
from tacit.exchange import Uploads
from tacit.methods import FedMTL
from tacit.privacy.curator import Curated
from tacit.secure.jobs.job import InProcess, Servers
from tacit.secure.net.remote import Remote
from tacit.secure.settings import Secure


class SecureExchange(Exchange):
    """An exchange whose curator knows nothing."""

    method: FedMTL

    def __init__(self, course: Course, asked: Answered, curator: Secure) -> None:
        self._settings = curator
        self._servers: Servers = Remote.of(curator) if curator.peers else InProcess()
        super().__init__(course, asked)
        self.record = Hidden.blank(len(course.names), course.device)
        self.sent: dict[str, int] = {}
        """Bytes that each party has sent so far."""
        self._on_shares = OnShares(self.method, curator, course.model, course.contribution_size)
        heads, slots = course.heads, curator.slots
        most = 1 if heads is None else int(heads.holds.sum(dim=1).max())
        self._on_shares.job(("one", "two"))  # refuses what cannot work, before any work
        if slots is not None and slots < most:
            raise TacitError(
                f"slots={slots}: a task has {most} heads, so at least {most} are needed"
            )

    @property
    def curated(self) -> Curated:
        return about(self._settings)

    def answers(self, uploads: Uploads) -> Iterator[Tensor]:
        self.record.answered[uploads.tasks] += 1
        if len(uploads) == 1:  # there is nobody to hear of
            yield uploads.vectors
            return
        names = tuple(str(self.course.names[task]) for task in uploads.tasks.tolist())
        vectors, on_shares = uploads.vectors.double().cpu().numpy(), self._on_shares
        held = [row.nonzero().squeeze(1).tolist() for row in uploads.holds]
        least = self.method.least(uploads.progress)
        secrets = {
            name: on_shares.secret(vectors[row], held[row], int(uploads.sizes[row]), least)
            for row, name in enumerate(names)
        }
        outcome = self._servers.run(on_shares.job(names), secrets)
        for party, count in outcome.sent.items():
            self.sent[party] = self.sent.get(party, 0) + count
        for row, name in enumerate(names):
            answer = on_shares.put_together(vectors[row], held[row], outcome.answers[name])
            yield torch.from_numpy(answer).to(uploads.vectors).unsqueeze(0)


@dataclass
class Hidden(Record):
    """What is known afterwards where the curator computes on shares: who was answered how often."""

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        return {"hidden": True, "answers": int(self.answered.sum())}
