"""The two parties as processes: what `tacit coordinator run` and `tacit silo run` do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid

from tacit.errors import TacitError
from tacit.runtime.flower.app import made_client_app, made_server_app
from tacit.runtime.flower.asking import FlowerSilos
from tacit.runtime.flower.limits import Strangers
from tacit.runtime.flower.link import Link
from tacit.runtime.flower.node import Node
from tacit.runtime.progress import Progress, silent
from tacit.runtime.silos.agreement import Agreement
from tacit.runtime.silos.conduct import Conducted, conduct
from tacit.runtime.silos.diary import Diary
from tacit.runtime.silos.keys import load_node_key, load_public
from tacit.runtime.silos.messages import Reply, Request
from tacit.runtime.silos.site import AGREED, Site

Say = Callable[[str], None]


def run_coordinator(
    folder: Path,
    host: str,
    port: int,
    *,
    patience: float,
    say: Say = lambda line: None,
    progress: Progress = silent,
) -> Conducted:
    """Conduct the run of this folder to its end, from wherever it stands."""
    terms = Agreement.read(folder / AGREED).terms
    keys = {}
    for name in terms.silos:
        path = folder / "keys" / f"{name}.pub"
        if not path.is_file():
            raise TacitError(f"there is no {path}: get node.pub from {name}, and put it there")
        keys[name] = load_public(path)
    diary = Diary(folder, say)
    blamed: dict[str, str] = {}
    link = Link(host, port, keys, folder, Strangers(diary.write, blamed.setdefault))
    done: list[Conducted] = []

    def rounds(grid: Grid, context: Context) -> None:
        silos = FlowerSilos(
            grid, lambda: link.nodes(terms.silos), patience, on_expect=link.limits.expect
        )
        done.append(conduct(terms, folder, silos, also=say, progress=progress, blamed=blamed))

    with link.running():
        link.run(made_server_app(rounds))
    return done[0]


def run_silo(
    folder: Path, *, once: bool, say: Say = lambda line: None, progress: Progress = silent
) -> None:
    """Answer the coordinator until stopped; with `once`, until a run is over."""
    site = Site.opened(folder, say)
    silo = site.silo
    over = threading.Event()

    def answer(context: Context, request: Request) -> Reply:
        reply = silo.answer(request)
        ended = request.kind == ("measure" if site.terms.metrics else "finish")
        if ended and reply.state == "done":
            over.set()
        return reply

    node = Node(
        site.settings.coordinator,
        folder / "ca.pem",
        load_node_key(folder / "node.key"),
        made_client_app(answer),
        folder,
        say,
    )
    node.after = lambda: _finished(site, node, over, once, progress)
    node.run()


def _finished(
    site: Site, node: Node, over: threading.Event, once: bool, progress: Progress
) -> None:
    """The silo's own step, when the coordinator has its answer and needs it no more."""
    if over.is_set():
        over.clear()
        site.personalise(progress)
        if once:
            node.stop.set()
