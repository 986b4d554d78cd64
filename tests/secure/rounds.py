"""One round of FedMTL for made-up clients: plain, and on shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.exchange import Uploads, mixed
from tacit.methods import FedMTL
from tacit.secure.jobs.fedmtl import FedMTLAnswer, FedMTLJob, Secret


@dataclass
class Round:
    """Clients with different heads, and layers of different lengths."""

    vectors: np.ndarray
    holds: np.ndarray
    sizes: np.ndarray
    lengths: list[int]
    columns: int

    @classmethod
    def random(cls, seed: int, clients: int, lengths: list[int], columns: int) -> Round:
        rng = np.random.default_rng(seed)
        heads = len(lengths)
        common = rng.normal(size=columns + sum(lengths))
        own = rng.normal(size=(clients, len(common)))
        holds = rng.random((clients, heads)) < 0.6
        holds[np.arange(clients), rng.integers(heads, size=clients)] = True
        vectors = 0.1 * (common + rng.uniform(0.1, 1.5) * own)
        return cls(vectors, holds, rng.integers(1, 3000, clients), lengths, columns)

    @property
    def parts(self) -> list[slice]:
        ends = np.cumsum([self.columns, *self.lengths]).tolist()
        begins = [0, *ends[:-1]]
        return [slice(a, b) for a, b in zip(begins, ends)] + [slice(ends[-1], ends[-1])]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"client-{i}" for i in range(len(self.vectors)))

    def uploads(self, round: int, rounds: int) -> Uploads:
        n = len(self.vectors)
        return Uploads(
            torch.arange(n),
            torch.tensor(self.vectors),
            torch.tensor(self.sizes),
            torch.tensor(self.holds),
            self.parts,
            round,
            rounds,
        )

    def plain(self, method: FedMTL, round: int = 0, rounds: int = 2) -> tuple[np.ndarray, Any]:
        """Every client's answer in the clear, and the curator's similarities."""
        uploads = self.uploads(round, rounds)
        answer = method.answer(uploads, {})
        everyone = torch.arange(len(self.vectors))
        return mixed(answer.weights, uploads, everyone)[:, 0].numpy(), answer.similarity

    def job(self, method: FedMTL, **settings: Any) -> FedMTLJob:
        usual: dict[str, Any] = {"servers": 3, "trust": "dealer", "bits": 64}
        return FedMTLJob(
            clients=self.names,
            columns=self.columns,
            heads=len(self.lengths),
            slots=settings.pop("slots", len(self.lengths)),
            length=max(self.lengths),
            shared=method.shared,  # pyright: ignore
            mixes_heads=method.heads,  # pyright: ignore
            min_peers=method.min_peers,
            **(usual | settings),
        )

    def secrets(self, method: FedMTL, progress: float = 0.0) -> dict[str, Secret]:
        parts = self.parts
        return {
            name: Secret(
                self.vectors[i, parts[0]],
                {h: self.vectors[i, parts[1 + h]] for h in np.flatnonzero(self.holds[i]).tolist()},
                {h: np.zeros(length) for h, length in enumerate(self.lengths)},
                int(self.sizes[i]),
                method.least(progress),
            )
            for i, name in enumerate(self.names)
        }

    def models(self, answers: dict[str, FedMTLAnswer]) -> np.ndarray:
        """What clients make of their answers."""
        found = self.vectors.copy()
        for i, name in enumerate(self.names):
            found[i, self.parts[0]] = answers[name].rows
            for head in np.flatnonzero(self.holds[i]):
                part = self.parts[1 + head]
                found[i, part] = answers[name].layers[head, : part.stop - part.start]
        return found


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest relative distance of two clients' models."""
    norms = np.linalg.norm(wanted, axis=1)
    return float((np.linalg.norm(found - wanted, axis=1) / norms).max())
