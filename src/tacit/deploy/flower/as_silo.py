"""A silo as a process: what `tacit silo run` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context

from tacit.deploy.flower.app import make_client_app
from tacit.deploy.flower.node import Node
from tacit.deploy.keys import load_node_key
from tacit.deploy.messages import Reply, Request
from tacit.deploy.site import Site
from tacit.files import close_folder, hold

Say = Callable[[str], None]


def run_silo(folder: Path, *, once: bool, say: Say = lambda line: None) -> None:
    """Answer the coordinator until stopped; with `once`, until a run is over."""
    site = Site.open(folder, say)
    close_folder(folder)
    with hold(folder):
        _answer(site, once, say)


def _answer(site: Site, once: bool, say: Say) -> None:
    folder, silo = site.folder, site.silo
    if site.unsettled:  # the last run was over, but the silo was stopped before its own step
        site.personalise()
        if once:
            return
    answered: list[str] = []

    def answer(context: Context, request: Request) -> Reply:
        reply = silo.answer(request)
        answered[:] = [request.kind] if reply.state == "done" else []
        return reply

    node = Node(
        site.coordinator,
        folder / "ca.pem",
        load_node_key(folder / "node.key"),
        make_client_app(answer),
        folder,
        say,
    )
    node.after = lambda: _finish(site, node, answered, once)
    node.run()


def _finish(site: Site, node: Node, answered: list[str], once: bool) -> None:
    """The silo's own step, once the coordinator has its last answer."""
    if "finish" in answered:
        site.personalise()
        node.until_lost = once
    last = "measure" if site.terms.metrics else "finish"
    if once and last in answered:
        node.stop.set()
