"""How many threads a step is worth.

Small operations gain nothing from a second thread, and on a shared machine they lose: every one
waits for the slowest thread, which another program may be keeping from its core (measured with a
linear model on two busy cores: twenty times slower with two threads than with one). Steps of a few
large operations run side by side instead, each on one thread: they wait for nobody.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from tacit.local.chunks import SLOTS

T = TypeVar("T")
R = TypeVar("R")
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


def abreast_for(rows: torch.Tensor) -> int:
    """How many steps over these rows run side by side: one where they are few, or on a GPU."""
    few = rows.numel() < WORTH_SHARING or rows.device.type != "cpu"
    return 1 if few else torch.get_num_threads()


def side_by_side(work: Callable[[T], R], items: Iterable[T], abreast: int) -> Iterator[R]:
    """`work` of every item in their order, so many at a time, each on a thread of its own.

    It must not write anywhere that the work of another item does.
    """
    if abreast == 1:
        yield from map(work, items)
        return
    begun: deque[Future[R]] = deque()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # who takes the results: its threads would be in their way
    try:
        with ThreadPoolExecutor(abreast, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) > abreast:  # results wait for who asked, but not many of them
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def meanwhile(work: Callable[[], R], rows: torch.Tensor) -> Iterator[Callable[[], R]]:
    """`work` about these rows goes on while this thread does something else, and ends with a call
    that waits for what it returns.

    It must not write anywhere that this thread reads or writes. Where rows are many or on a GPU it
    begins with that call: its own steps run side by side.
    """
    if rows.numel() >= WORTH_SHARING or rows.device.type != "cpu":
        yield work
        return
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(work).result
    finally:
        torch.set_num_threads(before)  # what other threads set is where new ones begin
