"""Servers of one process, one after the other: for jobs in which servers do not talk to each other.

A federation has many clients, and a sum is asked for in every round. Links are made as they are
used, so that work grows with the clients (`links.Mesh` has one for every pair of parties).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.secure.job import COORDINATOR, Job, Outcome
from tacit.secure.links import Links, PartyError

Post = defaultdict[tuple[str, str], deque[tuple[str, memoryview]]]


@dataclass
class InTurn:
    """Runs clients, then servers, then the coordinator."""

    watch: Callable[[dict[str, Links]], None] = lambda links: None
    """Is shown the links before anything is sent, where a test wants to listen."""

    def run(self, job: Job, secret_of: Mapping[str, Any]) -> Outcome:
        post: Post = defaultdict(deque)
        parties = (COORDINATOR, *job.names, *job.clients)
        links: dict[str, Links] = {name: _Here(name, post) for name in parties}
        self.watch(links)
        for name in job.clients:
            job.upload(links[name], secret_of[name])
        for name in job.names:
            job.work(links[name])
        answers = {name: job.collect(links[name]) for name in job.clients}
        opened = job.conclude(links[COORDINATOR])
        sent = {name: links[name].sent_bytes.total() for name in job.names}
        sent["clients"] = sum(links[name].sent_bytes.total() for name in job.clients)
        return Outcome(answers, opened, sent)


class _Here(Links):
    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name)
        self._post = post

    def _put(self, to: str, label: str, raw: memoryview) -> None:
        self._post[self.name, to].append((label, raw))

    def _get(self, sender: str, label: str, into: memoryview) -> None:
        waiting = self._post.get((sender, self.name))
        if not waiting:
            raise PartyError(sender, f"stopped before it sent {label!r}")
        found, raw = waiting.popleft()
        if found != label or len(raw) != len(into):
            raise PartyError(
                sender,
                f"sent {found!r} of {len(raw)} bytes where {label!r} of {len(into)} was expected",
            )
        into[:] = raw
