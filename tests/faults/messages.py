"""The seam of messages: on their way they are lost, repeated, late, cut or changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tacit.deploy.messages import Broken, Reply, Request, Unreadable
from tests.faults.schedule import Schedule

Answer = Callable[[int, Request], Reply | None]


class Network:
    """Messages travel as bytes; `answer` is a silo, which may be down."""

    def __init__(self, schedule: Schedule, names: tuple[str, ...], answer: Answer) -> None:
        self._schedule, self._names, self._answer = schedule, names, answer
        self._late: dict[int, bytes] = {}
        self._stale: dict[int, Reply] = {}
        self.missing: dict[tuple[str, int], set[int]] = {}
        """Who was not heard, by kind and round; the last time that it was asked."""
        self.changed = False
        """Whether somebody was told, or heard, what nobody said."""

    def expect(self, numbers: int) -> None:
        pass

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        """In any order: nobody promised one."""
        replies = {}
        for task in self._schedule.random.sample(list(requests), len(requests)):
            reply = self._one(task, requests[task])
            if reply is not None:
                replies[task] = reply
        for task, request in requests.items():
            missing = self.missing.setdefault((request.kind, request.round), set())
            heard = task in replies and replies[task].state == "done"
            (missing.discard if heard else missing.add)(task)
        return replies

    def _one(self, task: int, request: Request) -> Reply | None:
        content, kind = request.to_bytes(), self._schedule.due(self._names[task], "message")
        before = self._late.pop(task, None)
        if kind == "lost":
            return None
        if kind == "late":
            self._late[task] = content
            return None
        if kind in ("cut", "flipped"):
            content, self.changed = self._spoil(content, kind), True
        reply = self._told(task, content)
        if before is not None:
            self._told(task, before)  # it comes after a later one, and nobody waits for it
        if kind == "twice":
            reply = self._told(task, content)
        if kind == "unheard" or reply is None:
            return None
        if kind in ("cut reply", "flipped reply"):
            self.changed = True
            try:
                reply = Reply.from_bytes(self._spoil(reply.to_bytes(), kind))
            except Unreadable:
                return Broken(nonce="", state="failed", reason="cannot be read")
        if kind == "stale":
            self._stale[task] = reply
            return None
        if task in self._stale:
            self.changed = True
        return self._stale.pop(task, reply)

    def _told(self, task: int, content: bytes) -> Reply | None:
        try:
            return self._answer(task, Request.from_bytes(content))
        except Unreadable:
            return None

    def _spoil(self, content: bytes, kind: str) -> bytes:
        if kind.startswith("cut"):
            return content[: self._schedule.random.randrange(len(content))]
        changed = bytearray(content)
        changed[self._schedule.random.randrange(len(changed))] ^= 1 << 2
        return bytes(changed)
