"""A client's model on its way to servers that compute on shares, and back.

Written for one client: what a simulation does for all of them, a silo does for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.local.flat import FlatModel
from tacit.methods import FedMTL
from tacit.privacy.curator import Curated
from tacit.secure.jobs.fedmtl import FedMTLAnswer, FedMTLJob, Secret
from tacit.secure.settings import Secure


@dataclass(frozen=True)
class OnShares:
    """FedMTL on this model, whose clients send vectors of this length."""

    method: FedMTL
    settings: Secure
    model: FlatModel
    length: int

    @property
    def _rest(self) -> slice:
        """What is sent beside the parameters."""
        return slice(self.model.size, self.length)

    @property
    def _begin(self) -> np.ndarray:
        """What everybody began with, which is public."""
        return torch.cat([self.model.start, self.model.buffers]).double().cpu().numpy()

    def job(self, clients: tuple[str, ...], **given: Any) -> FedMTLJob:
        layers = self.model.parts[1:]
        shared = self.model.parts[0].stop
        return FedMTLJob(
            clients=clients,
            columns=shared + self.length - self.model.size,
            heads=len(layers),
            slots=self.settings.slots or len(layers),
            length=max(part.stop - part.start for part in layers),
            **fedmtl_settings(self.method, self.settings),
            **given,
        )

    def secret(self, vector: np.ndarray, held: list[int], rows: int, least: float) -> Secret:
        """What a client shares: differences from the public start, and its task layers."""
        begin, shared = self._begin, self.model.parts[0]
        layers = {head: self.model.parts[1 + head] for head in held}
        moved = vector - begin[: len(vector)]
        return Secret(
            np.concatenate([moved[shared], moved[self._rest]]),
            {head: vector[part] for head, part in layers.items()},
            {head: begin[part] for head, part in layers.items()},
            rows,
            least,
        )

    def put_together(self, vector: np.ndarray, held: list[int], mixed: FedMTLAnswer) -> np.ndarray:
        """The client's answer: what was mixed, and its own copy of heads that it does not hold."""
        answer, begin, shared = vector.copy(), self._begin, self.model.parts[0]
        for part, moved in (
            (shared, mixed.rows[: shared.stop]),
            (self._rest, mixed.rows[shared.stop :]),
        ):
            answer[part] = begin[part] + moved
        for head in held:
            part = self.model.parts[1 + head]
            answer[part] = begin[part] + mixed.layers[head, : part.stop - part.start]
        return answer


def fedmtl_settings(method: FedMTL, settings: Secure) -> dict[str, Any]:
    """What a job has whatever the model is: who is trusted with what, and who is mixed."""
    return {
        "servers": settings.servers,
        "trust": settings.trust or "dealer",
        "bits": settings.bits or 64,
        "shared": method.shared,
        "mixes_heads": method.heads,
        "min_peers": method.min_peers,
    }


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
