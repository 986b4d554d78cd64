"""Silos in folders, answered for by Ray's workers: whichever is free opens the one that is asked.

Everything that a silo must not forget is in its folder and read anew for each request, so that
successive requests may go to different workers.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import safetensors.torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tacit.data.federation import PARTS, Federation
from tacit.deploy.diary import read_diary
from tacit.deploy.events import RequestFailed
from tacit.deploy.flower.app import make_client_app
from tacit.deploy.messages import Reply, Request
from tacit.deploy.silo import Silo
from tacit.deploy.terms import Own, Terms
from tacit.files import make_folder, replace

ROWS, TERMS, TASK = "rows.safetensors", "terms.json", "task"
KEPT = 256
"""Silos that a worker keeps open: opening one takes longer than a round of a small model."""


def folder_of(place: Path, task: int) -> Path:
    return place / "silos" / str(task)


def hand_out(federation: Federation, terms: Terms, place: Path) -> None:
    """Every silo's rows into its folder, and the terms, once; the terms come last."""
    if (place / TERMS).exists():
        return
    for task in range(len(terms.silos)):
        folder, tensors = folder_of(place, task), {}
        make_folder(folder)
        for part in PARTS:
            x, y = federation.part(part).of(task)
            tensors |= {f"{part}.x": x.contiguous(), f"{part}.y": y.contiguous()}
        replace(folder / ROWS, safetensors.torch.save(tensors))
    replace(place / TERMS, json.dumps(terms.to_json()).encode())


def virtual_silos(place: Path) -> ClientApp:
    """What Ray's workers run: the silo that a message is for answers it."""
    app = make_client_app(functools.partial(_answer, place))
    app.query()(_which)
    return app


def _which(message: Message, context: Context) -> Message:
    """Says which task a node stands for."""
    return Message(RecordDict({TASK: ConfigRecord({TASK: _partition(context)})}), reply_to=message)


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _answer(place: Path, context: Context, request: Request) -> Reply:
    """All rows here are one owner's, so that, unlike a real silo, this one says what went wrong."""
    task = _partition(context)
    try:
        reply = open_silo(place, task).answer(request)
        if reply.state == "failed":
            entries, _ = read_diary(folder_of(place, task))
            last = entries[-1].event if entries else None
            if isinstance(last, RequestFailed):
                reply = dataclasses.replace(reply, reason=f"{last.error}: {last.why}")
        return reply
    except OSError as error:
        reason = f"{error}; do all machines of the Ray cluster share this folder?"
        return Reply(nonce=request.nonce, state="failed", reason=reason)


@functools.lru_cache(maxsize=KEPT)
def open_silo(place: Path, task: int) -> Silo:
    """A silo with the rows and terms in its folder; all that changes it reads anew each time."""
    terms = Terms.from_json(json.loads((place / TERMS).read_text(encoding="utf-8")))
    folder = folder_of(place, task)
    found = safetensors.torch.load_file(folder / ROWS)
    own = Own({part: (found[f"{part}.x"], found[f"{part}.y"]) for part in PARTS})
    return Silo(terms, terms.silos[task], own, folder)
