"""tacit as a Flower app.

The rounds are tacit's own, over Flower's `Grid`: Flower's strategies carry one array for everybody
and weigh silos by how many examples they say they have, which is wrong for personal models and
spoils every bound on what one silo can do. Flower's wrappers for differential privacy are not used.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.deploy.flower.records import pack, unpack
from tacit.deploy.messages import Reply, Request, Unreadable

Answer = Callable[[Context, Request], Reply]


def make_client_app(answer: Answer) -> ClientApp:
    """A ClientApp whose every message is answered by a silo."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        try:
            reply = answer(context, Request.from_bytes(unpack(message.content)))
        except Unreadable as error:
            reply = Reply(nonce="", state="refused", reason=str(error))
        return Message(pack(reply.to_bytes()), reply_to=message)

    return app


def make_server_app(rounds: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp that runs these rounds."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        rounds(grid, context)

    return app
