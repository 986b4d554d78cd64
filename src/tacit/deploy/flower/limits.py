"""What the coordinator's port lets in: requests of registered nodes, of a bounded size.

Who it is stands at the head of a request, signed. It is looked at before anything else is read, so
that strangers can make nobody hold their bytes.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.responses import JSONResponse, PlainTextResponse

from tacit.deploy.events import StrangerTurnedAway
from tacit.secure.net.door import Door

FLEET = "/v1/fleet/"
PART = 5 << 20
"""Flower cuts arrays into parts of so many bytes."""
LARGEST = PART + (1 << 20)
"""No honest request has a larger body."""
CLOSE = {"connection": "close"}
"""Whoever is turned away is not listened to any further."""
SMALL_PARTS = 8
"""Parts of a message that hold no numbers."""
MOST_NAMED = 20
"""Of so many senders it is said that they were turned away for one reason."""


@dataclass
class Strangers:
    """What was turned away, told once for each sender and reason, so that no log is flooded."""

    say: Callable[[StrangerTurnedAway], object]
    blame: Callable[[str, str], object] = lambda name, why: None
    """Is told which silo broke the rules, and how."""
    _said: dict[str, set[str]] = field(default_factory=dict)

    def turn_away(self, what: str, sender: str) -> None:
        """`what` is one of few sentences: nothing that a sender chooses is in it."""
        senders = self._said.setdefault(what, set())
        if sender in senders or len(senders) > MOST_NAMED:
            return
        senders.add(sender)
        by = sender if len(senders) <= MOST_NAMED else "yet another, and no more of them are named"
        self.say(StrangerTurnedAway(what, by))


@dataclass
class Limits:
    """How large a message may be; known when the model is."""

    parts: int = SMALL_PARTS

    def expect(self, numbers: int) -> None:
        """Replies of so many numbers, and a header as large as that of any model."""
        self.parts = SMALL_PARTS + -(-(8 * numbers + LARGEST) // PART)


class OnlyFleet:
    """The outermost layer: only one path, only bodies within the limit, and only from silos."""

    def __init__(
        self, app: Any, strangers: Strangers, door: Door, names: Mapping[bytes, str]
    ) -> None:
        """`names` are the silos by their public keys."""
        self._app, self._strangers, self._door, self._names = app, strangers, door, names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client: Any = tuple(scope.get("client") or ("somebody", 0))
        host, headers = client[0], dict(scope["headers"])
        wrong = _unwelcome(scope["path"], headers)
        if not wrong and self._door.knows(client) is None:
            name = signed_by(headers, self._names)
            if name is None or not self._door.know(client, name):
                wrong = 401, "a request without the signature of a silo"
        if wrong:
            status, what = wrong
            self._strangers.turn_away(what, host)
            await PlainTextResponse("turned away", status, CLOSE)(scope, receive, send)
            return
        seen = 0

        async def limited() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > LARGEST:
                self._strangers.turn_away("a message without end", host)
                return {"type": "http.disconnect"}
            return message

        async def closing(message: Any) -> None:
            if seen > LARGEST and message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in CLOSE.items()]
                message = message | {"status": 413, "headers": [*message["headers"], *headers]}
            await send(message)

        await self._app(scope, limited, closing)


def _unwelcome(path: str, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Status and words for a request that no silo makes."""
    if not path.startswith(FLEET):
        return 404, "a request that no silo makes"
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or len(declared) > len(str(LARGEST)) or int(declared) > LARGEST:
        return 413, f"a message of more than {LARGEST >> 20} MB"
    return None


def signed_by(headers: Mapping[bytes, bytes], names: Mapping[bytes, str]) -> str | None:
    """The silo whose key signed these headers; an inner layer checks that this was lately."""
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
        name, time = names[key], headers[TIMESTAMP_HEADER.encode()]
        return name if verify_signature(bytes_to_public_key(key), time, signature) else None
    except (KeyError, ValueError, TypeError):
        return None


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
            why = "" if message is None else self._refusal(message)  # None fails further inside
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
            self._strangers.turn_away("a second reply to one request", name)
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
