"""How many threads a step is worth.

Small operations gain nothing from a second thread, and on a shared machine they lose: every one
waits for the slowest thread, which another program may be keeping from its core (measured with a
linear model on two busy cores: twenty times slower with two threads than with one).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

WORTH_SHARING = 1 << 20
"""Numbers in flight from which on threads share the work."""


@contextlib.contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """One thread for little work, torch's setting for much; put back afterwards."""
    before = torch.get_num_threads()
    if numbers >= WORTH_SHARING or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
