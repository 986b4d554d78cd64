"""One thing that servers do together for clients: a round of FedMTL, or one noisy sum.

    coordinator ──► job (public: who, which shapes, which settings) ──► servers, dealer, clients
    client      ──► upload ──► servers: serve ──► collect ──► client
                               dealer:  deal  ──►  servers
                               servers  ──► conclude ──► coordinator (only what may be opened)

The same functions run as threads of one process (`InProcess`) and as processes (`remote`).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Protocol, Self, TypeVar

from tacit.checks import annotations_of, fits, in_words
from tacit.errors import TacitError
from tacit.secure.net.links import PATIENCE, Links, Mesh
from tacit.words import LONGEST_NAME, shortened

T = TypeVar("T")
COORDINATOR, DEALER = "coordinator", "dealer"
MOST_SERVERS, MOST_CLIENTS, MOST_NUMBERS = 100, 100_000, 1 << 28
"""Of a job that somebody else describes: nothing is made for more before it is refused."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TAKEN = re.compile(r"ca|coordinator|dealer|server-.*")


def server_name(index: int) -> str:
    return f"server-{index}"


def check_name(name: str) -> None:
    """Names become file names and names in certificates."""
    if not _NAME.fullmatch(name):
        raise TacitError(
            f"{name!r} cannot be the name of a client: use up to 64 letters, digits and -_. "
            "beginning with a letter or digit"
        )
    if _TAKEN.fullmatch(name):
        raise TacitError(f"{name!r} cannot be the name of a client: it means another party")


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What is public about it; all parties have to agree on every field."""

    kind: ClassVar[str]
    repeatable: ClassVar[bool] = False
    """Whether servers that are asked once more show nothing but what they showed before."""
    servers: int
    clients: tuple[str, ...]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    """Fresh for every round, so that nothing of one round passes in another."""

    @property
    def digest(self) -> str:
        """Names all that is public about it: parties who were told different things do not meet."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def tag(self) -> bytes:
        """Stands in every message of this job."""
        return bytes.fromhex(self.digest)[:16]

    @property
    def dealer(self) -> bool:
        """Whether a dealer takes part."""
        return False

    @property
    def names(self) -> list[str]:
        """The servers, and the dealer if there is one."""
        return [server_name(i) for i in range(self.servers)] + [DEALER] * self.dealer

    @abstractmethod
    def upload(self, links: Links, secret: Any) -> None:
        """A client hands in what it has."""

    @abstractmethod
    def serve(self, links: Links, index: int) -> None:
        """A server's part."""

    def deal(self, links: Links) -> None:
        """The dealer's part."""
        raise TacitError(f"a job of kind {self.kind!r} has no dealer")

    def collect(self, links: Links) -> Any:
        """What a client is answered."""
        return None

    def take_part(self, links: Links, secret: Any) -> Generator[None, None, Any]:
        """A client's whole part, in steps between which a thread may serve other clients.

        Of several clients, all take a step before any takes the next: servers must not have to wait
        for a later step of one before an earlier step of another.
        """
        self.upload(links, secret)
        yield
        return self.collect(links)

    def conclude(self, links: Links) -> Any:
        """What the coordinator learns."""
        return None

    def work(self, links: Links) -> None:
        """The part of the server, or of the dealer, whose links these are."""
        if links.name == DEALER:
            self.deal(links)
        else:
            self.serve(links, self.names.index(links.name))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Self:
        """What `to_json` described, perhaps after a journey as text, where tuples become lists."""
        _check_sizes(described)
        kinds = annotations_of(cls)
        for one in fields(cls):  # before anything is computed from them
            if one.name in described and not fits(kinds[one.name], described[one.name]):
                raise TacitError(f"{one.name} of a job must be {in_words(kinds[one.name])}")
        return cls(**{key: _tuples(value) for key, value in described.items() if key != "kind"})


def _check_sizes(described: Mapping[str, Any]) -> None:
    servers, clients = described.get("servers"), described.get("clients")
    if not isinstance(servers, int) or not 1 <= servers <= MOST_SERVERS:
        raise TacitError(f"a job needs 1 to {MOST_SERVERS} servers")
    if not isinstance(clients, list | tuple) or len(clients) > MOST_CLIENTS:
        raise TacitError(f"a job needs a list of at most {MOST_CLIENTS} clients")
    names = {name for name in clients if isinstance(name, str)}
    if len(names) < len(clients):
        raise TacitError("the clients of a job need a name each, and no two the same")
    for name, value in described.items():
        if isinstance(value, int) and abs(value).bit_length() > 64:
            raise TacitError(f"{shortened(name, LONGEST_NAME)} of a job has more than 64 bits")


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """What came of a job."""

    answers: dict[str, Any]
    """What each client was answered."""
    opened: Any
    """What the coordinator learned."""
    sent: dict[str, int]
    """Bytes that each party sent; all clients together are `clients`."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """What each server process says about its part: see `session`."""


def finish(steps: Generator[None, None, T]) -> T:
    """What comes of all steps, taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Servers(Protocol):
    """Where servers run."""

    def run(self, job: Job, secret_of: Mapping[str, Any]) -> Outcome:
        """Do a job for clients with these secrets; raises `PartyError` if a party fails."""
        ...


@dataclass
class InProcess:
    """Servers, dealer and clients as threads of this process, for simulation and tests."""

    patience: float = PATIENCE
    watch: Callable[[Mapping[str, Links]], None] = lambda links: None
    """Is shown the links before anything is sent, where a test wants to listen."""

    def run(self, job: Job, secret_of: Mapping[str, Any]) -> Outcome:
        mesh = Mesh([COORDINATOR, *job.names, *job.clients], self.patience)
        links = mesh.links
        self.watch(links)
        for name in job.clients:  # links inside a process hold any number of messages
            job.upload(links[name], secret_of[name])
        with _threads(job, mesh) as failed:
            try:
                answers = {name: job.collect(links[name]) for name in job.clients}
                opened = job.conclude(links[COORDINATOR])
            except TacitError as error:
                failed.append(error)
                answers, opened = {}, None
        if failed:
            raise failed[0]
        sent = {name: links[name].sent_bytes.total() for name in job.names}
        sent["clients"] = sum(links[name].sent_bytes.total() for name in job.clients)
        return Outcome(answers, opened, sent)


@contextmanager
def _threads(job: Job, mesh: Mesh) -> Iterator[list[BaseException]]:
    """Run servers and dealer meanwhile; yields what went wrong, the first cause first."""
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            job.work(mesh.links[name])
        except BaseException as error:
            failed.append(error)
        finally:
            mesh.stop(name)

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in job.names]
    for thread in threads:
        thread.start()
    yield failed
    for thread in threads:
        thread.join()
