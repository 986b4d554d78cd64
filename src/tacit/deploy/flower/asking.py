"""Asking silos over Flower's `Grid`: send, wait, ask again whoever was started anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid

from tacit.deploy.flower.records import pack, unpack
from tacit.deploy.messages import Broken, Reply, Request, Unreadable

AGAIN = 30.0
"""Seconds after which an unanswered request is sent once more, whatever is known of the silo."""


class There(NamedTuple):
    """A silo's node, and since when it is there: a new time is a new start."""

    node: int
    since: str


@dataclass
class _Waiting:
    """A request on its way."""

    request: Request
    sent: float = -AGAIN
    there: There | None = None

    def due(self, there: There) -> bool:
        return there != self.there or time.monotonic() - self.sent >= AGAIN


@dataclass
class FlowerSilos:
    """Silos behind a `Grid`; `nodes` says which of them are connected, by task."""

    grid: Grid
    nodes: Callable[[], Mapping[int, There]]
    patience: float
    """Seconds that a silo has to answer in; whoever does not contributes zero."""
    pause: float = 0.05
    on_expect: Callable[[int], None] = lambda numbers: None
    _sent: dict[str, int] = field(default_factory=dict)

    def expect(self, numbers: int) -> None:
        self.on_expect(numbers)

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        waiting = {task: _Waiting(request) for task, request in requests.items()}
        replies: dict[int, Reply] = {}
        end = time.monotonic() + self.patience
        self._sent = {}
        while waiting and time.monotonic() < end:
            self._send(waiting)
            for task, reply in self._hear():
                if waiting.pop(task, None) is not None:
                    replies[task] = reply
            if waiting:
                time.sleep(self.pause)
        return replies

    def _send(self, waiting: Mapping[int, _Waiting]) -> None:
        """To everybody who is there and was not asked since."""
        nodes = self.nodes()
        due = [task for task, one in waiting.items() if task in nodes and one.due(nodes[task])]
        messages = []
        for task in due:
            one = waiting[task]
            one.sent, one.there = time.monotonic(), nodes[task]
            records = pack(one.request.to_bytes())
            round = str(one.request.round + 1)
            messages.append(
                Message(records, nodes[task].node, "train", ttl=self.patience, group_id=round)
            )
        if not messages:
            return
        for task, number in zip(due, self.grid.push_messages(messages), strict=True):
            if number:
                self._sent[number] = task
            else:  # it left in this moment
                waiting[task].there = None

    def _hear(self) -> list[tuple[int, Reply]]:
        heard = []
        for message in self.grid.pull_messages(list(self._sent)) if self._sent else ():
            task = self._sent.pop(message.metadata.reply_to_message_id, None)
            if task is None or message.has_error():
                continue  # the silo left: it is asked again when it is back
            try:
                heard.append((task, Reply.from_bytes(unpack(message.content))))
            except Unreadable as error:
                heard.append((task, Broken(nonce="", state="failed", reason=error.why)))
        return heard
