"""What the channel asks of a curator that is not the machine it runs on.

The channel hands over bounded vectors and gets back something sealed: a noisy sum that nobody has
seen. It books the release, and only then opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Curated:
    """Who curated, for the guarantee."""

    kind: str
    servers: int
    trust: str
    """On what the servers' ignorance rests, in a few words."""
    words: str
    """Who has to be trusted with what."""
    noise_of: str = ""
    """On the billboard: whose noise ε counts."""
    hides: str = ""
    """On the exchange: what is hidden from whom, in a clause."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "servers": self.servers, "trust": self.trust, "in_words": self.words
        }  # fmt: skip


class Sealed(Protocol):
    """A noisy sum that is not released yet."""

    @property
    def details(self) -> dict[str, Any]:
        """What the ledger should say about it."""
        ...

    def open(self) -> np.ndarray:
        """The release, in clips."""
        ...


class Curator(Protocol):
    """Sums vectors of length at most one, with noise inside."""

    @property
    def louder(self) -> float:
        """The noise of an opened sum over the noise that is booked."""
        ...

    @property
    def about(self) -> Curated: ...

    def sealed(
        self, vectors: Mapping[int, np.ndarray], size: int, noise: float, round: int
    ) -> Sealed:
        """The noisy sum of these tasks' vectors, each of this size; `noise` in clips."""
        ...
