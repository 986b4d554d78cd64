"""How many threads a step is worth.

Small operations gain nothing from a second thread, and on a shared machine they lose: every one
waits for the slowest thread, which another program may be keeping from its core (measured with a
linear model on two busy cores: twenty times slower with two threads than with one).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from tacit.local.chunks import SLOTS

WORTH_SHARING = 1 << 20
"""Numbers in flight from which on threads share the work."""


@contextlib.contextmanager
def threads_for(numbers: int, slots: int = 1) -> Iterator[None]:
    """One thread for little work, torch's setting for much; put back afterwards.

    Every thread gets whole vectors of a chunk's slots (see `local.chunks`).
    """
    before = torch.get_num_threads()
    many = before if numbers >= WORTH_SHARING else 1
    while many > 1 and slots > 1 and slots % (SLOTS * many):
        many -= 1
    if many == before:
        yield
        return
    torch.set_num_threads(many)
    try:
        yield
    finally:
        torch.set_num_threads(before)
