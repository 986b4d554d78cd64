"""A silo's end: Flower's node inside this process. It runs the app that is installed here.

Flower's own node fetches an app bundle from the server and runs it; whoever controls the server
would then control the silo. This one speaks the same protocol, with the same identity and TLS, and
never asks for a bundle. It also looks for work more often, and finds the server again after either
end was killed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tacit.errors import TacitError
from tacit.files import replace

SOONEST, LATEST, SLOWER = 0.05, 1.0, 1.3
"""Seconds between looks for work: soon after the last, then ever less often."""
RECONNECT = 0.5
LOST = (httpx.HTTPError, ObjectPullError, ObjectPushError, OSError)
"""What a lost connection raises."""
NODE = "node.id"


class Node:
    """One silo's connection to the coordinator."""

    def __init__(
        self,
        address: str,
        authority: Path,
        key: ec.EllipticCurvePrivateKey,
        app: ClientApp,
        folder: Path,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._address, self._authority, self._key = address, authority, key
        self._app, self._folder, self._say = app, folder, say
        self.stop = threading.Event()
        self.after: Callable[[], None] = lambda: None
        """Called when an answer has left."""
        self.until_lost = False
        """Whether a lost connection is the end: the coordinator has nothing more to ask."""

    def run(self) -> None:
        """Answer the coordinator until `stop` is set, however often the connection is lost."""
        lost = ""
        while not self.stop.is_set():
            try:
                with self._connect() as (client, node):
                    self._say(f"connected to {self._address}")
                    lost = ""
                    self._serve(client, node)
            except LOST as error:
                if self.until_lost:
                    return
                why = _reason(error)
                if why != lost:  # once for each cause, not for each attempt
                    lost = why
                    self._say(f"no connection to {self._address}: {why}; trying again")
                self.stop.wait(RECONNECT)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[tuple[FleetHttpClient, NodeId]]:
        public = self._key.public_key()
        if not self._authority.is_file():
            raise TacitError(f"there is no {self._authority}: get ca.pem from the coordinator")
        with FleetHttpClient.from_server_address(
            self._address,
            False,
            self._authority.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(self._key, public),
            ],
        ) as client:
            node = NodeId(node_id=self._activate(client, public_key_to_bytes(public)))
            over = threading.Event()
            beat = threading.Thread(target=_heartbeat, args=(client, node, over), daemon=True)
            beat.start()
            try:
                yield client, node
            finally:
                over.set()
                with contextlib.suppress(httpx.HTTPError):
                    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))

    def _activate(self, client: FleetHttpClient, public: bytes) -> int:
        """A node that was killed still counts as there: it first has to leave."""
        path = self._folder / NODE
        if path.exists():
            with contextlib.suppress(httpx.HTTPError, ValueError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=int(path.read_text())))
        asked = ActivateNodeRequest(
            public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
        )
        number: int = client.ActivateNode(asked).node_id
        replace(path, str(number).encode())
        return number

    def _serve(self, client: FleetHttpClient, node: NodeId) -> None:
        pause = SOONEST
        while not self.stop.is_set():
            reply = self._reply(client, node)
            if reply is None:
                self.stop.wait(pause)
                pause = min(LATEST, pause * SLOWER)
                continue
            pause = SOONEST
            _push(client, node, reply)
            self.after()

    def _reply(self, client: FleetHttpClient, node: NodeId) -> Message | None:
        """The answer to a request; None if there is no request, or if it cannot be read."""
        try:
            message = _pull(client, node)
            if message is None:
                return None
            run = message.metadata.run_id
            return self._app(message, Context(run, node.node_id, {}, RecordDict(), {}))
        except LOST:
            raise
        except Exception as error:  # any kind: the sender chose it
            self._say(
                f"{self._address} sent something that is not a request ({type(error).__name__})"
            )
            return None


def _heartbeat(client: FleetHttpClient, node: NodeId, over: threading.Event) -> None:
    asked = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
    while not over.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
        with contextlib.suppress(httpx.HTTPError, RuntimeError):  # `_serve` notices by itself
            client.SendNodeHeartbeat(asked)


def _pull(client: FleetHttpClient, node: NodeId) -> Message | None:
    response = client.PullMessages(PullMessagesRequest(node=node))
    if not response.messages_list:
        return None
    tree = response.message_object_trees[0]
    run = response.messages_list[0].metadata.run_id
    contents = pull_objects(
        [part.object_id for part in iterate_object_tree(tree)],
        make_pull_object_fn_protobuf(client.PullObject, node, run),
    )
    make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run)(
        tree.object_id
    )
    message: Any = inflate_object_from_contents(tree.object_id, contents)
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _push(client: FleetHttpClient, node: NodeId, reply: Message) -> None:
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        response = client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
        )
        push_objects(
            get_all_nested_objects(reply),
            make_push_object_fn_protobuf(
                client.PushObject, node, reply.metadata.run_id, response.session_id
            ),
            object_ids_to_push=set(response.objects_to_push),
        )


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        code = error.response.status_code
        unknown = "this silo's key is not registered there"  # 412 before it ever was connected
        known = {401: unknown, 412: unknown, 413: "the message is too large"}
        return known.get(code, f"the coordinator answered {code}")
    if isinstance(error, httpx.ConnectError) and "CERTIFICATE" in str(error):
        return "its certificate is not signed by our ca.pem, or is for another name"
    return "nobody answers" if isinstance(error, httpx.TransportError) else type(error).__name__
