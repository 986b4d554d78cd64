"""What the channel asks of a curator that is not the machine it runs on.

The channel hands over bounded integers and gets back something sealed: a noisy sum that nobody has
seen. It books the release, and only then opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.privacy.grid import Grid


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
        about = {"kind": self.kind, "servers": self.servers, "trust": self.trust}
        return {**about, "in_words": self.words}


class Sealed(Protocol):
    """A noisy sum that is not released yet."""

    @property
    def details(self) -> dict[str, Any]:
        """What the ledger should say about it."""
        ...

    def open(self) -> np.ndarray:
        """The release, in steps of the grid."""
        ...


class Curator(Protocol):
    """Sums integer vectors of length at most one clip, with noise inside."""

    @property
    def servers(self) -> int:
        """How many add noise, each as much as is booked: an opened sum has that of all."""
        ...

    @property
    def about(self) -> Curated: ...

    @property
    def repeats(self) -> bool:
        """Whether a round that is summed once more shows the very same noisy sum."""
        ...

    def grid(self, noise: float) -> Grid:
        """The integers that are summed, for noise of so many clips."""
        ...

    def seal(
        self, vectors: Mapping[int, np.ndarray], size: int, noise: float, round: int
    ) -> Sealed:
        """The noisy sum of these tasks' integers, each of this size; `noise` in clips."""
        ...
