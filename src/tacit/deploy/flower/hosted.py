"""tacit as an app of a Flower federation that is there already.

`tacit deploy flower-app` writes a Flower project around the two apps made here. The SuperLink and
the SuperNodes are as people have them, and only public interfaces of Flower are used. What has to
be trusted there, beyond what our own port asks for, is in docs/deploy.md.

Flower starts a new process for each message and forgets what an app had in memory. So everything
that lasts is in folders of ours: the silo's (a SuperNode is told which) and the coordinator's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.deploy.agreement import Agreement
from tacit.deploy.conduct import RESULT, conduct
from tacit.deploy.flower.app import make_client_app, make_server_app
from tacit.deploy.flower.asking import FlowerSilos, There
from tacit.deploy.keys import load_public
from tacit.deploy.messages import Reply, Request
from tacit.deploy.project import FOLDER, PATIENCE, SILO, check_hosted
from tacit.deploy.silo import FAILED
from tacit.deploy.site import Site
from tacit.errors import TacitError
from tacit.files import InUse, hold
from tacit.words import quoted

PAUSE = 1.0
"""Seconds between looks for replies: each is a request to the SuperLink."""


def silo_app() -> ClientApp:
    """What a SuperNode runs: the silo in the folder that its configuration names."""
    app = make_client_app(_answer)
    app.query()(_introduce)
    return app


def _site(context: Context) -> Site:
    folder = context.node_config.get(SILO)
    if folder is None:
        raise TacitError(
            "this SuperNode does not know its silo's folder: start it with --node-config "
            f"'{SILO}=\"/path/of/the/folder\"'"
        )
    return Site.open(Path(str(folder)))


def _introduce(message: Message, context: Context) -> Message:
    try:
        name = _site(context).settings.name
    except Exception as error:  # what went wrong stays here: Flower would send its words
        _tell(error)
        name = ""
    return Message(RecordDict({SILO: ConfigRecord({SILO: name})}), reply_to=message)


def _answer(context: Context, request: Request) -> Reply:
    """As `tacit silo run` answers; the silo's own step is `tacit silo personalise`."""
    try:
        site = _site(context)
        with hold(site.folder):
            return site.silo.answer(request)
    except InUse as error:
        _tell(error)
    except Exception as error:  # it may speak of rows: it stays here
        _tell(error)
        return Reply(nonce=request.nonce, state="failed", reason=FAILED)
    # An error of Flower's is no answer: the process that has the folder is about to send that.
    raise RuntimeError("the silo is still at work on an earlier request")


def _tell(error: Exception) -> None:
    print(f"tacit: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def coordinator_app(consortium: Path) -> ServerApp:
    """What a SuperLink runs: the rounds of this consortium, from wherever they stand."""
    return make_server_app(functools.partial(_rounds, consortium))


def _rounds(consortium: Path, grid: Grid, context: Context) -> None:
    terms = Agreement.read(consortium).terms
    check_hosted(terms)
    folder = Path(str(context.run_config[FOLDER])).expanduser()
    patience = float(context.run_config[PATIENCE])
    if not folder.is_absolute() or patience <= 0:
        raise TacitError(
            f"{FOLDER} = {str(folder)!r}, {PATIENCE} = {patience:g}: a whole path at the SuperLink "
            "and more than 0 seconds are needed"
        )
    with hold(folder):
        roll = Roll(grid, terms.silos, keys_in(folder))
        silos = FlowerSilos(grid, roll.nodes, patience, PAUSE)
        done = conduct(terms, folder, silos, also=_say)
    if not done.finished:
        raise TacitError("no silo took the last billboard; run the app again when they are there")
    _say(f"{', '.join(done.finished)} have the last billboard; the result is {folder / RESULT}")


def _say(line: str) -> None:
    print(line, flush=True)


def keys_in(folder: Path) -> dict[str, bytes]:
    """Public keys of SuperNodes that are known beforehand, by silo: `keys/<silo>.pub`."""
    return {path.stem: load_public(path) for path in sorted((folder / "keys").glob("*.pub"))}


@dataclass
class Roll:
    """Which node is which silo.

    Nodes say it themselves. Where the key of a silo's SuperNode is known, only a node that the
    SuperLink knows by that key may say so; otherwise the first of those that are there.
    """

    grid: Grid
    silos: tuple[str, ...]
    keys: Mapping[str, bytes]
    _asked: dict[str, There] = field(default_factory=dict)
    _said: dict[There, str] = field(default_factory=dict)

    def nodes(self) -> dict[int, There]:
        """The silos that are connected, by task; nodes that are new are asked who they are."""
        here = {There(n.node_id, n.last_activated_at): n.public_key for n in self.grid.get_nodes()}
        self._said = {there: name for there, name in self._said.items() if there in here}
        self._ask([there for there in here if there not in self._said])
        self._hear(here)
        found: dict[int, There] = {}
        for there, name in self._said.items():
            if name in self.silos and self.keys.get(name, here[there]) == here[there]:
                found.setdefault(self.silos.index(name), there)
        return found

    def _ask(self, new: list[There]) -> None:
        new = [there for there in new if there not in self._asked.values()]
        messages = [Message(RecordDict(), there.node, "query") for there in new]
        sent = self.grid.push_messages(messages) if messages else ()
        self._asked |= {number: there for number, there in zip(sent, new) if number}

    def _hear(self, here: Mapping[There, bytes]) -> None:
        for message in self.grid.pull_messages(list(self._asked)) if self._asked else ():
            there = self._asked.pop(message.metadata.reply_to_message_id, None)
            if there is None or there not in here:
                continue
            name = _name_in(message)
            self._said[there] = name
            known = self.keys.get(name, here[there]) == here[there]
            if name not in self.silos:
                _say(f"node {there.node} is not a silo: it calls itself {quoted(name)}")
            else:
                _say(f"node {there.node} is {name}" if known else f"a stranger says to be {name}")


def _name_in(message: Message) -> str:
    """The name that a node sent; empty if it sent anything else."""
    record = None if message.has_error() else message.content.get(SILO)
    name = record.get(SILO) if isinstance(record, ConfigRecord) else None
    return name if isinstance(name, str) else ""
