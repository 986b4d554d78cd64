"""Everything that reads what somebody sends, with messages that it reads gladly."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from tacit.deploy.messages import MESSAGE, Reply, Request, Unreadable, same_shape
from tacit.errors import TacitError
from tacit.secure.jobs.fedmtl import FedMTLJob
from tacit.secure.jobs.job import Job
from tacit.secure.jobs.kinds import JOBS, job_from_json
from tacit.secure.jobs.summing import SumJob
from tacit.secure.net.addresses import Addresses
from tacit.secure.net.channel import HEADER, MAGIC, NO_JOB, Connection
from tacit.secure.net.links import PartyError
from tacit.secure.net.remote import _Round
from tests.deploy.asked import Asked, agreed, federation_of
from tests.fuzz.net_changes import changed, changed_json

SUM = SumJob(servers=3, clients=("ann", "bob"), size=5, bits=32, bound=9, noise=2.0)
MIX = FedMTLJob(
    servers=3, clients=("ann", "bob"), trust="replicated", bits=64, columns=9, heads=2, slots=2,
    length=4,
)  # fmt: skip


@dataclass
class Reader:
    make: Callable[[Random], bytes]
    read: Callable[[bytes], object]
    words: type[Exception] | tuple[type[Exception], ...]


@contextlib.contextmanager
def requests(folder: Path) -> Iterator[Reader]:
    yield _messages(Request(kind="train", run="0" * 32, round=1, terms={"rounds": 4}, clip=0.5))


@contextlib.contextmanager
def replies(folder: Path) -> Iterator[Reader]:
    yield _messages(Reply(nonce="n", size=7, reason="because", tensors={"sent": torch.ones(3)}))


def _messages(message: Request | Reply) -> Reader:
    sample = message.to_bytes()

    def read(content: bytes) -> None:
        found = type(message).from_bytes(content)
        assert len(same_shape(found.tensors, {"sent": torch.ones(3)})) < 1000

    return Reader(lambda random: in_header(sample, random), read, Unreadable)


def in_header(content: bytes, random: Random) -> bytes:
    """Mostly a message whose plain values or tensors' shapes were changed, of the right length."""
    if random.random() < 0.3:
        return changed(content, random)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if random.random() < 0.7:
        plain = changed_json(header["__metadata__"][MESSAGE].encode(), random)
        header["__metadata__"][MESSAGE] = plain.decode(errors="replace")
        text = json.dumps(header).encode()
    else:
        text = changed_json(json.dumps(header).encode(), random)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


@contextlib.contextmanager
def silo(folder: Path) -> Iterator[Reader]:
    """A silo that is asked for anything: it answers, whatever it thinks of it."""
    federation = federation_of(3)
    asked = Asked(agreed(federation, rounds=50), federation, folder)
    kinds = ("train", "finish", "measure", "share", "receive")
    samples = [asked.request(kind, job=SUM.to_json()).to_bytes() for kind in kinds]
    samples.append(asked.request().to_bytes())

    def read(content: bytes) -> None:
        reply = asked.silo.answer(Request.from_bytes(content))
        assert Reply.from_bytes(reply.to_bytes()).state in ("done", "refused", "failed")
        log = asked.folder / "log.txt"
        if log.exists():
            text = log.read_text(encoding="utf-8")
            assert all(line.isprintable() for line in text.splitlines())
            log.unlink()

    yield Reader(lambda random: in_header(random.choice(samples), random), read, Unreadable)


@contextlib.contextmanager
def jobs(folder: Path) -> Iterator[Reader]:
    samples = [json.dumps(job.to_json()).encode() for job in (SUM, MIX)]

    def read(content: bytes) -> None:
        try:
            described = json.loads(content)
        except (ValueError, RecursionError):
            raise TacitError("no JSON") from None
        if not isinstance(described, dict):
            raise TacitError("no object")
        job = job_from_json(described, JOBS)
        assert isinstance(job, Job) and len(job.names) < 200
        json.dumps(job.to_json())

    yield Reader(lambda random: changed_json(random.choice(samples), random), read, TacitError)


@contextlib.contextmanager
def frames(folder: Path) -> Iterator[Reader]:
    """What a channel reads after TLS: heads, labels, payloads, JSON."""
    text = json.dumps({"role": "link", "job": "0" * 32}).encode()
    first = HEADER.pack(MAGIC, NO_JOB, 0, 5, len(text)) + b"hello" + text
    second = HEADER.pack(MAGIC, NO_JOB, 1, 5, 1000) + b"share" + bytes(1000)

    def read(content: bytes) -> None:
        near, far = socket.socketpair()
        with near, far:
            sender = threading.Thread(target=_sent, args=(near, content))
            sender.start()
            try:
                channel = Connection(Unsealed(far), "ann")
                channel.read_json("hello", 2.0, 1 << 14)
                channel.read_into("share", memoryview(bytearray(1000)), 2.0)
            finally:
                far.close()
                sender.join()

    yield Reader(lambda random: changed(first + second, random), read, PartyError)


class Unsealed:
    """A socket as a channel reads it, without TLS on top."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read_into(self, into: memoryview, end: float | None) -> int:
        self._sock.settimeout(None if end is None else max(end - time.monotonic(), 1e-3))
        return self._sock.recv_into(into)


def _sent(sock: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(content)
        sock.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def states(folder: Path) -> Iterator[Reader]:
    """What a server tells the coordinator of its part."""
    samples: list[dict[str, Any]] = [
        {"state": "failed", "party": "ann", "what": "left"},
        {"state": "done", "sent_bytes": {"ann": 3}, "sent_messages": 1, "seconds": 1.0,
         "peak_memory": 5},
    ]  # fmt: skip

    class Says:
        def __init__(self, heard: Any) -> None:
            self._heard = [heard, {"state": "failed", "party": "ann", "what": "left"}]

        def read_json(self, label: str, patience: float) -> Any:
            return self._heard.pop(0)

    def read(content: bytes) -> None:
        heard = json.loads(content)
        made: Any = _Round(SUM, Addresses(("a:1", "b:2", "c:3")), {}, 1.0, {})
        made._follow("server-1", Says(heard if isinstance(heard, dict) else {}))
        assert sum(made._statistics["server-1"]["sent_bytes"].values()) is not None

    def make(random: Random) -> bytes:
        while True:
            text = changed_json(json.dumps(random.choice(samples)).encode(), random)
            with contextlib.suppress(ValueError, RecursionError):
                json.loads(text)
                return text

    yield Reader(make, read, PartyError)


READERS = {
    "requests": requests,
    "replies": replies,
    "silo": silo,
    "jobs": jobs,
    "frames": frames,
    "states": states,
}
