"""Imports of a command, which are most of what a short one does."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """What is made in here stays until the process ends, so nobody looks for garbage in it.

    PyTorch makes so many objects while it is imported that looking takes a seventh of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
