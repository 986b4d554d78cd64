"""Messages between named parties: ordered, labelled, of a length that the receiver knows before.

What a protocol sends never depends on secrets, so a receiver always knows which message comes next
and how long it is. Anything else is a fault of the sender, and ends the round with its name.

`Mesh` connects parties inside one process; `tls` connects processes. Protocols see `Links` only.
"""

from __future__ import annotations

import os
import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import numpy as np

from tacit.errors import TacitError

PATIENCE = 20.0
"""Seconds without a message after which a party counts as lost."""

SECRET_BYTES = 32


class PartyError(TacitError):
    """A party failed; the round is over, nothing was released, and it can be run again."""

    def __init__(self, party: str, what: str) -> None:
        super().__init__(f"{party} {what}; nothing was released, and the round can be run again")
        self.party, self.what = party, what


class Links(ABC):
    """One party's links to all others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent_messages: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.secret = os.urandom(SECRET_BYTES)
        """Known to this party alone. What it draws from this for a job, it draws again for the same
        job: a server process keeps it, elsewhere it is new each time."""
        self.view: list[tuple[str, str, bytes]] | None = None
        """What this party was sent (from whom, label, content), where a test wants to know."""

    def send(self, to: str, label: str, data: np.ndarray | bytes) -> None:
        """Send an array or bytes; they must not be changed afterwards."""
        raw = memoryview(data if isinstance(data, bytes) else np.ascontiguousarray(data).data)
        raw = raw.cast("B") if raw.nbytes else memoryview(b"")
        self.sent_messages[to] += 1
        self.sent_bytes[to] += raw.nbytes
        self._put(to, label, raw)

    def receive(
        self,
        sender: str,
        label: str,
        shape: tuple[int, ...],
        dtype: Any = np.uint8,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The next message of this sender, which must have this label, shape and type."""
        found = np.empty(shape, dtype) if out is None else out
        raw = memoryview(found.data).cast("B") if found.nbytes else memoryview(bytearray())
        self._get(sender, label, raw)
        if self.view is not None:
            self.view.append((sender, label, bytes(raw)))
        return found

    @abstractmethod
    def _put(self, to: str, label: str, raw: memoryview) -> None: ...

    @abstractmethod
    def _get(self, sender: str, label: str, into: memoryview) -> None: ...


class Mesh:
    """All links of parties inside one process."""

    def __init__(self, names: list[str], patience: float = PATIENCE) -> None:
        self.patience = patience
        # Made as they are used: there may be thousands of clients, which never talk to each other.
        self._queues: dict[tuple[str, str], queue.SimpleQueue[tuple[str, Any]]] = {}
        self._stopped: set[str] = set()
        self._changing = threading.Lock()
        self.links = {name: _InMemory(name, self) for name in names}

    def queue(self, sender: str, to: str) -> queue.SimpleQueue[tuple[str, Any]]:
        with self._changing:
            if (sender, to) not in self._queues:
                self._queues[sender, to] = queue.SimpleQueue()
                if sender in self._stopped:
                    self._queues[sender, to].put(("", None))
            return self._queues[sender, to]

    def stop(self, name: str) -> None:
        """Tell everybody that this party sends nothing more."""
        with self._changing:
            self._stopped.add(name)
            for (sender, _), waiting in self._queues.items():
                if sender == name:
                    waiting.put(("", None))


class _InMemory(Links):
    def __init__(self, name: str, mesh: Mesh) -> None:
        super().__init__(name)
        self._mesh = mesh

    def _put(self, to: str, label: str, raw: memoryview) -> None:
        self._mesh.queue(self.name, to).put((label, raw))

    def _get(self, sender: str, label: str, into: memoryview) -> None:
        try:
            found, raw = self._mesh.queue(sender, self.name).get(timeout=self._mesh.patience)
        except queue.Empty:
            late = f"sent nothing for {self._mesh.patience:g} s where {label!r} was expected"
            raise PartyError(sender, late) from None
        if raw is None:
            raise PartyError(sender, f"stopped before it sent {label!r}")
        if found != label or len(raw) != len(into):
            raise PartyError(
                sender,
                f"sent {found!r} of {len(raw)} bytes where {label!r} of {len(into)} was expected",
            )
        into[:] = raw
