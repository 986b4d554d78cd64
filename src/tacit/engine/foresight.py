"""Who comes next: while a GPU is at work on a cohort, the next one is drawn and its rows gathered.

Drawing rows is a hundred short operations, and to launch them takes a processor longer than a GPU
needs for all of them. Whom the next round asks does not depend on what this one publishes. So it is
done meanwhile, on a stream of its own that goes first: the rows of the first chunk, which is all of
them unless a cohort is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.local.batches import Batches

Gather = Callable[[int, Tensor], "Batches | None"]
"""What the first chunk of a cohort trains on in this round, if that can be said already."""


class Foreseen(NamedTuple):
    """The next round."""

    round: int
    cohort: Tensor
    batches: Batches | None


class Foresight:
    """Draws cohorts by `draw`, each once, and on a GPU one round ahead."""

    def __init__(self, draw: Callable[[int], Tensor], gather: Gather, length: int) -> None:
        self._draw, self._gather, self._length = draw, gather, length
        self._next: Foreseen | None = None
        self._side: torch.cuda.Stream | None = None
        self._marked: torch.cuda.Event | None = None

    def cohort(self, round: int) -> Tensor:
        """Whom this round asks."""
        found = self._next
        if found is None or found.round != round:
            self._next = found = Foreseen(round, self._draw(round), None)
        return found.cohort

    def batches(self, round: int, cohort: Tensor) -> Batches | None:
        """What the first chunk of this cohort trains on, if it was gathered; only once."""
        found = self._next
        if found is None or found.round != round or found.cohort is not cohort:
            return None
        self._next = found._replace(batches=None)
        return found.batches

    def mark(self) -> None:
        """Rows are now what they will be in the next round."""
        self._marked = torch.cuda.Event()
        self._marked.record()

    def look(self, round: int) -> None:
        """Look at this round, which comes next, as soon as what was marked is done."""
        if round >= self._length or self._marked is None:
            return
        if self._side is None:
            self._side = torch.cuda.Stream(priority=-1)
        here = torch.cuda.current_stream()
        self._side.wait_event(self._marked)
        with torch.cuda.stream(self._side):
            cohort = self._draw(round)
            batches = self._gather(round, cohort)
        here.wait_stream(self._side)
        for value in (cohort, *(batches or ())):
            value.record_stream(here)
        self._next = Foreseen(round, cohort, batches)
