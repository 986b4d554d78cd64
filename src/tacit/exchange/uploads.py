"""What the curator holds in a round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Uploads:
    """The uploads of the tasks that are there in this round, one row each.

    Parts of a vector: the shared layers, each head, and last whatever else the method sends (its
    width may be zero). A head that a task does not hold is there too, as everybody began with it.
    """

    tasks: Tensor
    """Which tasks they are: [n]."""
    vectors: Tensor
    """[n, model and rest]."""
    sizes: Tensor
    """Training rows of each task: [n]."""
    holds: Tensor
    """Which heads each task works on: bool [n, heads]."""
    parts: list[slice]
    round: int
    rounds: int

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def model(self) -> Tensor:
        """Without the rest: [n, d]."""
        return self.vectors[:, : self.parts[-1].start]

    @property
    def rest(self) -> Tensor:
        """What the method sends beside the model: [n, width]."""
        return self.vectors[:, self.parts[-1]]

    @property
    def heads(self) -> Tensor:
        """The task layers, zeros where a task has none, padded to the longest: [n, heads, size]."""
        layers = self.parts[1:-1]
        longest = max(part.stop - part.start for part in layers)
        found = self.vectors.new_zeros(len(self), len(layers), longest)
        for number, part in enumerate(layers):
            found[:, number, : part.stop - part.start] = self.vectors[:, part]
        return torch.where(self.holds.unsqueeze(2), found, 0.0)

    @property
    def progress(self) -> float:
        """From 0 in the first round to 1 in the last."""
        return self.round / max(1, self.rounds - 1)
