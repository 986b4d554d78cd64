"""A small job for tests of the transport: servers add up vectors, in phases that can be held up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.errors import TacitError
from tacit.secure.jobs.job import DEALER, Job, server_name

PHASES = ("upload", "exchange", "answer", "open")
concluded: list[str] = []
"""Jobs whose coordinator learned something, in this process."""


@dataclass(frozen=True, kw_only=True)
class AddJob(Job):
    kind: ClassVar[str] = "add"
    words: int = 1000
    dealt: bool = False
    hold: str = ""
    """The phase in which `held` says so and sleeps."""
    held: int = 1
    seconds: float = 30.0
    fault: str = ""
    """What `held` does wrong when servers exchange their sums."""

    @property
    def dealer(self):
        return self.dealt

    def upload(self, links, secret):
        generator = np.random.default_rng()
        rest = secret.copy()
        for index in range(1, self.servers):
            share = generator.integers(0, 2**64, self.words, dtype=np.uint64)
            rest -= share
            links.send(server_name(index), "share", share)
        links.send(server_name(0), "share", rest)
        if self.dealer:
            links.send(DEALER, "seed", bytes(16))

    def serve(self, links, index):
        self._enter("upload", index)
        total = np.zeros(self.words, np.uint64)
        for name in self.clients:
            total += links.receive(name, "share", (self.words,), np.uint64)
        if self.dealer:
            total += links.receive(DEALER, "mask", (self.words,), np.uint64)
        self._enter("exchange", index)
        others = [server_name(other) for other in range(self.servers) if other != index]
        if index == self.held:
            self._misbehave(links, others)
        for name in others:
            links.send(name, "partial", total)
        opened = total + sum(links.receive(n, "partial", total.shape, np.uint64) for n in others)
        self._enter("answer", index)
        for name in self.clients:
            links.send(name, "answer", opened)
        self._enter("open", index)
        links.send("coordinator", "total", opened)

    def deal(self, links):
        for name in self.clients:
            links.receive(name, "seed", (16,))
        self._enter("deal", self.held)
        for index in range(self.servers):
            share = 1 if index == 0 else 2**64 - 1 if index == 1 else 0
            links.send(server_name(index), "mask", np.full(self.words, share, np.uint64))

    def collect(self, links):
        return self._same(links, "answer")

    def conclude(self, links):
        total = self._same(links, "total")
        concluded.append(self.id)
        return total

    def _same(self, links, label):
        names = [server_name(index) for index in range(self.servers)]
        found = [links.receive(name, label, (self.words,), np.uint64) for name in names]
        assert all(np.array_equal(found[0], other) for other in found)
        return found[0]

    def _enter(self, phase, index):
        if self.hold == phase and index == self.held:
            print(f"{self.id} is in {phase}", flush=True)
            time.sleep(self.seconds)

    def _misbehave(self, links, others):
        if self.fault == "label":
            links.send(others[0], "something", np.zeros(self.words, np.uint64))
        elif self.fault == "length":
            links.send(others[0], "partial", np.zeros(self.words + 1, np.uint64))
        elif self.fault == "own":
            raise TacitError("this number is too large")
        elif self.fault == "crash":
            raise ZeroDivisionError("division by zero")
