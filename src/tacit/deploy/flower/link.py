"""The coordinator's end: Flower's SuperLink inside this process, on one address, over TLS.

Of Flower's interfaces only the one for nodes is there. The others would let whoever finds the port
register nodes and start apps of their own. Nodes are known by their keys, which are given here
and nowhere else; messages live in memory, because all that must survive is tacit's own.

What is imported below is Flower's inner side, which changes between versions: `pyproject.toml` has
the range that was tried. Public interfaces would not do: they are the commands `flower-superlink`
and `flower-supernode`, with the bundle, the control interface and a port without limits.
`hosted` is for those who have these anyway.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from flwr.app import Context, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.serverapp import ServerApp
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import NoObjectInStoreError
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.config_loader import get_objectstore_linkstate_factories
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import HttpGrid
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from tacit.deploy.flower.asking import There
from tacit.deploy.flower.limits import Honest, Limits, OnlyFleet, Strangers
from tacit.errors import TacitError
from tacit.secure.net.door import BACKLOG, Door, listen_behind

ALIVE = 10.0
"""Seconds between signs of life that Flower wants from a running app."""
INTRODUCTION = 10.0
"""Seconds in which whoever connects has to show, by a whole head of a request, who it is."""
CLEAR_AFTER, CLEAR_EVERY = 5000, 10.0
"""Garbage is collected after so many connections, and at most once in so many seconds."""


class Link:
    """Flower's server for nodes with these keys; `with` starts and stops it."""

    def __init__(
        self,
        host: str,
        port: int,
        keys: Mapping[str, bytes],
        certificates: Path,
        strangers: Strangers,
    ) -> None:
        self._host, self._port, self._certificates = host, port, certificates
        _, factory = get_objectstore_linkstate_factories(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager()
        )
        self.state: Any = factory.state()
        names = {}
        for name, key in keys.items():
            node = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=name)
            names[node] = name
        self._names: dict[int, str] = names
        self.limits, self.door = Limits(), Door(INTRODUCTION, len(keys))
        # From the outside in: nothing is read before the first, and the last sees who it is.
        layers = [
            Middleware(
                OnlyFleet,
                strangers=strangers,
                door=self.door,
                names={key: name for name, key in keys.items()},
            ),
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
            Middleware(
                Honest,
                names=names,
                limits=self.limits,
                strangers=strangers,
                waiting=lambda number: number in self.state.message_ins_store,
            ),
        ]
        self._app = FastAPI(middleware=layers, docs_url=None, redoc_url=None, openapi_url=None)
        self._app.include_router(fleet_router)
        self._app.state.linkstate_factory = factory
        self._app.state.enable_supernode_auth = True
        self._stop = threading.Event()
        self._cleared, self._cleared_at = 0, time.monotonic()

    @contextlib.contextmanager
    def running(self) -> Iterator[Link]:
        server = self._make_server()
        # Its lines quote what silos send, one for each request, on our terminal.
        logging.getLogger("flwr").setLevel(logging.CRITICAL + 1)
        try:
            listener = listen_behind(self.door, self._host, self._port)
        except OSError as error:
            raise TacitError(
                f"{self._host}:{self._port} cannot be listened on ({error.strerror}): it must be "
                "free, and an address of this machine"
            ) from None
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="flower", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    listener.close()
                    raise TacitError(
                        f"the certificates in {self._certificates} cannot be used: make them again "
                        "with `tacit deploy keys`"
                    )
                time.sleep(0.02)
            yield self
        finally:
            self._stop.set()
            server.should_exit = True
            thread.join(timeout=5)

    def _make_server(self) -> uvicorn.Server:
        certificate, key = self._certificates / "server.pem", self._certificates / "server.key"
        for path in (certificate, key):
            if not path.is_file():
                raise TacitError(f"there is no {path}: make it with `tacit deploy keys`")
        config = uvicorn.Config(
            self._app,
            log_level="critical",
            access_log=False,
            backlog=BACKLOG,
            ws="none",  # a second way in that nobody needs
            loop="asyncio",  # others do not accept through the door
            http="h11",  # others read heads without end
            callback_notify=self._sweep,
            timeout_notify=1,
            ssl_certfile=str(certificate),
            ssl_keyfile=str(key),
        )
        return uvicorn.Server(config)

    async def _sweep(self) -> None:
        """Also clear what failed handshakes leave: circles of objects that Python seldom finds."""
        self.door.sweep()
        now = time.monotonic()
        if self.door.left - self._cleared > CLEAR_AFTER and now - self._cleared_at > CLEAR_EVERY:
            gc.collect()
            self._cleared, self._cleared_at = self.door.left, now

    def nodes(self, silos: tuple[str, ...]) -> dict[int, There]:
        """Which silos are connected, by task."""
        number = {name: task for task, name in enumerate(silos)}
        return {
            number[self._names[info.node_id]]: There(info.node_id, info.last_activated_at)
            for info in self.state.get_node_info(statuses=["online"])
            if self._names.get(info.node_id) in number
        }

    def run(self, app: ServerApp, **config: str | int | float | bool) -> None:
        """Run an app over the nodes, as Flower would, in this process."""
        nobody = NOOP_FEDERATION_ID, None, NOOP_FLWR_AID
        run = self.state.create_run("tacit/tacit", "0", "", {}, *nobody, TaskType.SERVER_APP)
        info = self.state.get_run_info(run_ids=[run])[0]
        task = info.primary_task_id
        token = self.state.claim_task(task)
        self.state.activate_task(task)
        TaskIdentity.task_id, TaskIdentity.run_id = task, run
        TaskIdentity.node_id = SUPERLINK_NODE_ID
        threading.Thread(target=self._stay_alive, args=(task,), daemon=True).start()
        grid = LocalGrid(self.state, self.state.get_task_by_token(token))
        grid.set_run(info)
        context = Context(run, SUPERLINK_NODE_ID, {}, RecordDict(), dict(config))
        app(grid, context)

    def _stay_alive(self, task: int) -> None:
        while not self._stop.wait(ALIVE):
            self.state.acknowledge_task_heartbeat(task)


class LocalGrid(HttpGrid):
    """Flower's grid without the way over HTTP: the handlers are called directly."""

    def __init__(self, state: Any, task: Any) -> None:
        super().__init__(token="of this process")
        self._state = state
        self._client: Any = _Handlers(state, task)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that have arrived whole: Flower would wait for the rest, and for nobody else."""
        whole = [number for number in message_ids if self._whole(number)]
        return [message for number in whole for message in self._pull(number)]

    def _pull(self, number: str) -> list[Message]:
        """The reply to this request; an empty one for what Flower cannot put together.

        Not by Flower's own call: it forgets the reply of a node that has left since.
        """
        store, content = self._state.object_store, RecordDict()
        reply = self._state.message_ins_id_to_message_res_id[number]
        try:
            parts = iterate_object_tree(store.get_object_tree(reply))
            contents = {part.object_id: store.get(part.object_id) for part in parts}
            message: Any = inflate_object_from_contents(reply, contents)
            if message.metadata.reply_to_message_id == number:
                content = message.content
        except Exception:  # any kind: the sender chose the parts
            content = RecordDict()
        self._state.delete_messages({number})
        store.delete(reply)
        about = Metadata(0, "", 0, 0, number, "", 0.0, 0.0, "train")
        return [make_message(metadata=about, content=content)]

    def _whole(self, number: str) -> bool:
        reply = self._state.message_ins_id_to_message_res_id.get(number)
        if reply is None:
            return False
        store = self._state.object_store
        try:
            parts = iterate_object_tree(store.get_object_tree(reply))
            return all(store.get(part.object_id) for part in parts)
        except NoObjectInStoreError:
            return False


class _Handlers:
    """Calls of the grid's client, by the names that it uses."""

    def __init__(self, state: Any, task: Any) -> None:
        for name, handler in {
            "GetNodes": runtime_handlers.get_nodes,
            "PushMessages": runtime_handlers.push_messages,
            "PullMessages": runtime_handlers.pull_messages,
            "PushObject": runtime_handlers.push_object,
            "PullObject": runtime_handlers.pull_object,
            "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
        }.items():
            setattr(self, name, lambda request, call=handler: call(request, state, task))

    def close(self) -> None:
        pass
