"""What the coordinator's port lets in: requests of registered nodes, of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse

FLEET = "/v1/fleet/"
PART = 5 << 20
"""Flower cuts arrays into parts of so many bytes."""
LARGEST = PART + (1 << 20)
"""No honest request has a larger body."""
CLOSE = {"connection": "close"}
"""Whoever is turned away is not listened to any further."""
SMALL_PARTS = 8
"""Parts of a message that hold no numbers."""


@dataclass
class Strangers:
    """What was turned away, told once for each kind of thing, so that no log can be flooded."""

    say: Callable[[str], None]
    blame: Callable[[str, str], object] = lambda name, why: None
    """Is told which silo broke the rules, and how."""
    _said: set[str] = field(default_factory=set)

    def turned_away(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self.say(f"turned away {what} (said once)")


@dataclass
class Limits:
    """How large a message may be; known when the model is."""

    parts: int = SMALL_PARTS

    def expect(self, numbers: int) -> None:
        """Replies of so many numbers, and a header as large as that of any model."""
        self.parts = SMALL_PARTS + -(-(8 * numbers + LARGEST) // PART)


class OnlyFleet:
    """The outermost layer: no other path, and no body beyond the limit is read."""

    def __init__(self, app: Any, strangers: Strangers) -> None:
        self._app, self._strangers = app, strangers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = (scope.get("client") or ("somebody",))[0]
        if not scope["path"].startswith(FLEET):
            self._strangers.turned_away(f"a request from {host} that no silo makes")
            await PlainTextResponse("not found", 404, CLOSE)(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        size = int(declared) if declared.isdigit() else LARGEST + 1
        if size > LARGEST:
            self._strangers.turned_away(f"a message of {size:,} bytes from {host}")
            await PlainTextResponse("too large", 413, CLOSE)(scope, receive, send)
            return
        seen = 0

        async def limited() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > LARGEST:
                self._strangers.turned_away(f"a message without end from {host}")
                return {"type": "http.disconnect"}
            return message

        async def closing(message: Any) -> None:
            if seen > LARGEST and message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in CLOSE.items()]
                message = message | {"status": 413, "headers": [*message["headers"], *headers]}
            await send(message)

        await self._app(scope, limited, closing)


class Honest:
    """The innermost layer: a node speaks for itself only, in messages of a bounded size."""

    def __init__(
        self,
        app: Any,
        names: Mapping[int, str],
        limits: Limits,
        strangers: Strangers,
        waiting: Callable[[str], bool],
    ) -> None:
        """`waiting` knows whether a request of this name was made."""
        self._app, self._names, self._waiting = app, names, waiting
        self._limits, self._strangers = limits, strangers
        self._replied: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/push-messages"):
            message = scope.get("state", {}).get("protobuf_request")
            why = "" if message is None else self._refusal(message)  # None is nobody's, and fails
            if why:
                await JSONResponse({"detail": why}, 400)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, message: Any) -> str:
        name, why = self._names[message.node.node_id], _dishonest(message, self._limits.parts)
        if why:
            self._strangers.blame(name, why)
            return why
        number = message.messages_list[0].metadata.reply_to_message_id
        if number in self._replied:  # Flower would make room for what a second one brings
            self._strangers.turned_away(f"a second reply of {name} to one request")
            return "was replied to before"
        if self._waiting(number):
            self._replied.add(number)
        return ""


def _dishonest(message: Any, most: int) -> str:
    if len(message.messages_list) != 1 or len(message.message_object_trees) != 1:
        return "does not hold one reply"
    if message.message_object_trees[0].object_id != message.messages_list[0].metadata.message_id:
        return "does not hold the reply that it names"
    if message.messages_list[0].metadata.src_node_id != message.node.node_id:
        return "speaks for another silo"
    waiting, count = [message.message_object_trees[0]], 0
    while waiting:
        tree = waiting.pop()
        count += 1
        if count > most:
            return f"has more than {most} parts of {PART >> 20} MB"
        waiting.extend(tree.children)
    return ""
