"""Rounds of FedMTL whose curator is several servers that compute on shares.

Clients train and receive as with a plain curator. What is different is what anybody knows: nobody
sees uploads, similarities or weights, so nothing about them can be recorded either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.exchange import Uploads
from tacit.methods import FedMTL
from tacit.privacy.curator import Curated
from tacit.runtime.attendance import Attendance
from tacit.runtime.exchange import Exchange, Record
from tacit.secure.fedmtl import FedMTLJob, Mixed, Secret
from tacit.secure.job import InProcess, Servers
from tacit.secure.settings import Secure


class SecureExchange(Exchange):
    """An exchange whose curator knows nothing."""

    method: FedMTL

    def __init__(self, *given: Any, curator: Secure, attendance: Attendance | None = None) -> None:
        self._settings = curator
        self._servers: Servers = curator.remote() if curator.peers else InProcess()
        super().__init__(*given, attendance=attendance)
        self.record = Hidden.blank(len(self.federation), self.device)
        self.sent: dict[str, int] = {}
        """Bytes that each party has sent so far."""
        self._begin = torch.cat([self.model.start, self.model.buffers]).double().cpu().numpy()
        heads = self.federation.heads
        most, slots = 1 if heads is None else int(heads.holds.sum(dim=1).max()), curator.slots
        self._job(("one", "two"))  # refuses what cannot work, before any work
        if slots is not None and slots < most:
            raise TacitError(
                f"slots={slots}: a task has {most} heads, so at least {most} are needed"
            )

    @property
    def curated(self) -> Curated:
        return about(self._settings)

    def _job(self, clients: tuple[str, ...]) -> FedMTLJob:
        layers, settings = self.model.parts[1:], self._settings
        shared = self.model.parts[0].stop
        return FedMTLJob(
            servers=settings.servers,
            clients=clients,
            trust=settings.trust or "dealer",
            bits=settings.bits or 64,
            columns=shared + self.contribution_size - self.model.size,
            heads=len(layers),
            slots=settings.slots or len(layers),
            length=max(part.stop - part.start for part in layers),
            shared=cast(Any, self.method.shared),
            mixes_heads=cast(Any, self.method.heads),
            min_peers=self.method.min_peers,
        )

    def _curated(self, uploads: Uploads) -> Iterator[Tensor]:
        self.record.answered[uploads.tasks] += 1
        if len(uploads) == 1:  # there is nobody to hear of
            yield uploads.vectors
            return
        names = tuple(str(self.federation.names[task]) for task in uploads.tasks.tolist())
        vectors = uploads.vectors.double().cpu().numpy()
        secrets = {name: self._secret(uploads, row, vectors[row]) for row, name in enumerate(names)}
        outcome = self._servers.run(self._job(names), secrets)
        for party, count in outcome.sent.items():
            self.sent[party] = self.sent.get(party, 0) + count
        for row, name in enumerate(names):
            answer = self._put_together(uploads, row, vectors[row], outcome.answers[name])
            yield torch.from_numpy(answer).to(uploads.vectors).unsqueeze(0)

    def _secret(self, uploads: Uploads, row: int, vector: np.ndarray) -> Secret:
        """What this client shares: differences from the public start, and its task layers."""
        held = uploads.holds[row].nonzero().squeeze(1).tolist()
        layers = {head: uploads.parts[1 + head] for head in held}
        shared, rest = uploads.parts[0], uploads.parts[-1]
        moved = vector - self._begin[: len(vector)]
        return Secret(
            np.concatenate([moved[shared], moved[rest]]),
            {head: vector[part] for head, part in layers.items()},
            {head: self._begin[part] for head, part in layers.items()},
            int(uploads.sizes[row]),
            self.method.least(uploads.progress),
        )

    def _put_together(
        self, uploads: Uploads, row: int, vector: np.ndarray, mixed: Mixed
    ) -> np.ndarray:
        """The client's answer: what was mixed, and its own copy of heads that it does not hold."""
        answer = vector.copy()
        shared, rest = uploads.parts[0], uploads.parts[-1]
        for part, moved in (
            (shared, mixed.rows[: shared.stop]),
            (rest, mixed.rows[shared.stop :]),
        ):
            answer[part] = self._begin[part] + moved
        for head in uploads.holds[row].nonzero().squeeze(1).tolist():
            part = uploads.parts[1 + head]
            answer[part] = self._begin[part] + mixed.layers[head, : part.stop - part.start]
        return answer


def about(settings: Secure) -> Curated:
    """What a guarantee says about such a curator."""
    servers = settings.servers
    words = (
        f"uploads are secret-shared among {servers} servers that follow the protocol, and none "
        "learns a model, which heads and how many rows a client has, or who is like whom; "
    )
    if settings.trust == "dealer":
        few = "neither knows anything" if servers == 2 else f"{servers - 1} together know nothing"
        words += f"{few} as long as the dealer, who never sees data, colludes with none of them"
    else:
        words += "one alone knows nothing, two together know everything"
    if settings.slots is not None:
        words += f"; everybody knows that no client has more than {settings.slots} heads"
    if not settings.peers:
        words += "; in this run the servers were simulated by one process, which sees everything"
    words += "; every client has to be trusted with what its own answers tell about the others"
    hides = f"hides everything from the {servers} servers (trust: {settings.trust})"
    return Curated("secure", servers, settings.trust or "", words, hides=hides)


@dataclass
class Hidden(Record):
    """What is known afterwards where the curator computes on shares: who was answered how often."""

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        return {"hidden": True, "answers": int(self.answered.sum())}
