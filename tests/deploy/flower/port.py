"""The coordinator's port in this process, and silos' keys to attack it with."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import push_objects
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tacit.deploy.flower.app import make_client_app, make_server_app
from tacit.deploy.flower.asking import FlowerSilos
from tacit.deploy.flower.limits import Strangers
from tacit.deploy.flower.link import Link
from tacit.deploy.flower.node import Node, _pull
from tacit.deploy.flower.records import pack
from tacit.deploy.keys import load_node_key, load_public, make_keys
from tacit.deploy.messages import Reply, Request
from tacit.secure.net.local import free_ports

SILOS = ("a", "b")


class Port:
    """A running link for silos a and b, and a Flower run over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, free_ports(1)[0]
        self.address = f"127.0.0.1:{self.number}"
        make_keys(folder, SILOS)
        self.said: list[str] = []
        self.blamed: dict[str, str] = {}
        keys = {
            name: load_public(folder / "coordinator" / "keys" / f"{name}.pub") for name in SILOS
        }
        strangers = Strangers(self._heard, self.blamed.setdefault)
        self.link = Link("127.0.0.1", self.number, keys, folder / "coordinator", strangers)
        self._over, self._ready = threading.Event(), threading.Event()
        self.clients = contextlib.ExitStack()

    def _heard(self, event):
        self.said.append(str(event))

    @contextlib.contextmanager
    def open(self):
        def rounds(grid, context):
            self.grid = grid
            self._ready.set()
            self._over.wait()

        with self.link.running():
            thread = threading.Thread(target=self.link.run, args=(make_server_app(rounds),))
            thread.start()
            assert self._ready.wait(10)
            try:
                yield self
            finally:
                self._over.set()
                thread.join()

    @property
    def silos(self) -> FlowerSilos:
        return FlowerSilos(self.grid, lambda: self.link.nodes(SILOS), patience=10.0, pause=0.02)

    @property
    def authority(self) -> bytes:
        return (self.folder / "ca.pem").read_bytes()

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        return load_node_key(self.folder / name / "node.key")

    def client(self, key, shown=None) -> FleetHttpClient:
        """Signs with a key, and shows the public one of it, or of another."""
        shown = (shown or key).public_key()
        signed = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, shown),
        ]
        made = FleetHttpClient.from_server_address(self.address, False, self.authority, signed)
        return self.clients.enter_context(made)

    def signature(self, name: str) -> bytes:
        """What stands at the head of a request of this silo."""
        request = httpx.Request("POST", "https://x")
        context = SimpleNamespace(request=request)
        key = self.key(name)
        NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda context: None)
        own = {
            k: v for k, v in request.headers.raw if k.lower() not in (b"host", b"content-length")
        }
        return b"".join(k + b": " + v + b"\r\n" for k, v in own.items())

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.decode())

    def raw(self) -> ssl.SSLSocket:
        """A connection that speaks no HTTP by itself."""
        return self.trusting.wrap_socket(
            socket.create_connection(("127.0.0.1", self.number), timeout=10),
            server_hostname="127.0.0.1",
        )

    @contextlib.contextmanager
    def honest(self, name: str, answer=None, say=lambda line: None, authority=None):
        """A real node of this silo, in a thread."""
        answer = answer or (lambda context, request: Reply(nonce=request.nonce))
        path = self.folder / name
        authority = authority or path / "ca.pem"
        node = Node(self.address, authority, self.key(name), make_client_app(answer), path, say)
        thread = threading.Thread(target=node.run)
        thread.start()
        try:
            yield node
        finally:
            node.stop.set()
            thread.join(10)
            assert not thread.is_alive()

    def asking(self, tasks=(0,), patience=10.0):
        """Ask these silos in the background; call what is returned for what was heard."""
        requests = {task: request() for task in tasks}
        heard: list[dict[int, Reply]] = []
        silos = self.silos
        silos.patience = patience
        thread = threading.Thread(target=lambda: heard.append(silos.ask(requests)))
        thread.start()

        def wait():
            thread.join(20)
            return heard[0]

        return requests, wait


def request(**changes) -> Request:
    return Request(kind="train", run="0" * 32, round=0, terms={}, **changes)


class Attacker:
    """Silo `name` with its real key, who sends what it likes."""

    def __init__(self, port: Port, name: str) -> None:
        key = port.key(name)
        self.client = port.client(key)
        public = public_key_to_bytes(key.public_key())
        asked = ActivateNodeRequest(
            public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
        )
        self.node = NodeId(node_id=self.client.ActivateNode(asked).node_id)

    def heard(self) -> Message:
        """The next request."""
        for _ in range(500):
            message = _pull(self.client, self.node)
            if message is not None:
                return message
            threading.Event().wait(0.02)
        pytest.fail("nothing was asked")

    def push(self, reply: Message, tree=None, source=None, upload=True, root=None) -> None:
        """As an honest node does it, but for what is given."""
        with no_object_id_recompute():
            root = root or reply
            reply.metadata.__dict__["_message_id"] = root.object_id
            proto = message_to_proto(remove_content_from_message(reply))
            proto.metadata.src_node_id = source or proto.metadata.src_node_id
            tree = tree or get_object_tree(root)
            pushed = PushMessagesRequest(
                node=self.node, messages_list=[proto], message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )  # fmt: skip
            response = self.client.PushMessages(pushed)
            if upload:
                push_objects(
                    get_all_nested_objects(root),
                    make_push_object_fn_protobuf(
                        self.client.PushObject,
                        self.node,
                        reply.metadata.run_id,
                        response.session_id,
                    ),
                    object_ids_to_push=set(response.objects_to_push),
                )


def reply_to(message: Message, content: bytes | RecordDict) -> Message:
    records = pack(content) if isinstance(content, bytes) else content
    return Message(records, reply_to=message)


def refused(call, *given) -> int:
    """The status with which the port turns this away."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        call(*given)
    return caught.value.response.status_code


def works(port) -> bool:
    """Whether an honest silo is asked and heard."""
    with port.honest("b"):
        requests, wait = port.asking((1,))
        return wait()[1].nonce == requests[1].nonce
