"""The same run on Flower's simulation engine: every task is a silo, answered for by Ray's workers.

    train ──► conduct ──► Flower's grid ──► whichever worker is free: opens the silo, answers

With a Ray cluster of several machines (RAY_ADDRESS), the run's folder has to be on a file system
that all of them share. Without RAY_ADDRESS, Ray is started on the cores of this machine; either way
this process is connected to no Ray any more when the run is over.

Whoever reaches one of Ray's ports can run code there, and Ray asks for no password. Started here it
listens on the loopback address only; a cluster has to be on a network of its own.

All rows here are one owner's, and nobody waits for anybody: only the cohort is asked, and how long
a round takes is no secret. Across real silos everybody works in every round (`silos.coordinator`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.simulation import run_simulation
from ray._private import ray_constants

from tacit.data.federation import Federation
from tacit.deploy.conduct import Conducted, begin, conduct
from tacit.deploy.diary import LOG
from tacit.deploy.flower.app import make_server_app
from tacit.deploy.flower.records import pack, unpack
from tacit.deploy.flower.virtual import TASK, folder_of, hand_out, virtual_silos
from tacit.deploy.messages import Reply, Request
from tacit.deploy.terms import Terms, terms_of
from tacit.engine.progress import Progress
from tacit.engine.rounds import epsilon_so_far
from tacit.engine.simulate import Simulation
from tacit.engine.store import LEDGER
from tacit.errors import TacitError
from tacit.experiment.plan import Plan
from tacit.files import make_folder

SILENCE = 1800.0
"""Seconds without any answer after which workers are taken to be gone, or stuck."""
PAUSE = 0.02
QUIET = {"logging_level": logging.CRITICAL, "log_to_driver": False}


def run_elsewhere(
    simulation: Simulation,
    plan: Plan,
    federation: Federation,
    folder: Path | None,
    progress: Progress,
) -> None:
    """Run all rounds that are left in `folder`, and bring what they end with into `simulation`."""
    terms = terms_of(federation, plan)
    with _place(folder) as place:
        coordinator = place / "coordinator"
        make_folder(coordinator)
        if folder is not None and not (coordinator / LEDGER).is_symlink():
            # One ledger: what is booked is in the run's own folder before anything is released.
            (coordinator / LEDGER).symlink_to(Path("..", "..", LEDGER))
        start = begin(terms, coordinator, simulation.randomness.run_key)
        hand_out(simulation.federation, terms, place)
        done = _conduct(terms, place, progress)
        silos = [folder_of(place, task) for task in range(len(terms.silos))]
        _bring(simulation, done, [folder / "runs" / start["run"] for folder in silos])


@contextlib.contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Where coordinator and silos keep what is theirs."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tacit-") as made:
            yield Path(made)
    else:
        place = folder.absolute() / "flower"
        make_folder(place)
        yield place


class _Over(Exception):
    """Ray has stopped, so that nobody answers any more."""


class VirtualSilos:
    """Silos behind Flower's grid that always answer; one that does not is an error."""

    def __init__(self, grid: Grid, terms: Terms, over: threading.Event) -> None:
        self._grid, self._names, self._over = grid, terms.silos, over
        self._nodes = self._find()

    def expect(self, numbers: int) -> None:
        """Nobody here sends more than agreed."""

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        task_of = {self._nodes[task]: task for task in requests}
        messages = [
            Message(pack(request.to_bytes()), self._nodes[task], "train")
            for task, request in requests.items()
        ]
        replies = {}
        for message in self._hear(messages):
            task = task_of[message.metadata.src_node_id]
            reply = Reply.from_bytes(unpack(message.content))
            if reply.state != "done":
                raise TacitError(f"silo {self._names[task]!r} {reply.state}: {reply.reason}")
            replies[task] = reply
        return replies

    def _find(self) -> dict[int, int]:
        """The node of each task; only the nodes themselves know."""
        while len(nodes := list(self._grid.get_node_ids())) < len(self._names):
            self._wait()
        heard = self._hear([Message(RecordDict(), node, "query") for node in nodes])
        found: dict[int, int] = {}
        for message in heard:
            record: Any = message.content[TASK]
            found[record[TASK]] = message.metadata.src_node_id
        return found

    def _hear(self, messages: list[Message]) -> Iterator[Message]:
        waiting = set(self._grid.push_messages(messages))
        last = time.monotonic()
        while waiting:
            found = list(self._grid.pull_messages(waiting))
            for message in found:
                waiting.discard(message.metadata.reply_to_message_id)
                if message.has_error():
                    said = (message.error.reason or "it did not say why").splitlines()[0]
                    said = said.split(":<'")[-1].rstrip(".")  # after the kind of exception
                    raise TacitError(
                        f"a worker of Ray failed ({said}): look for "
                        "what ended it, such as a lack of memory, and go on with resume=True "
                        "(--resume)"
                    )
                yield message
            last = time.monotonic() if found else last
            if time.monotonic() - last > SILENCE:
                raise TacitError(
                    f"no silo answered for {SILENCE:g} seconds: see whether Ray's workers are "
                    "alive (`ray status`), then go on with resume=True (--resume)"
                )
            if waiting:
                self._wait()

    def _wait(self) -> None:
        if self._over.wait(PAUSE):
            raise _Over


def _conduct(terms: Terms, place: Path, progress: Progress) -> Conducted:
    """The coordinator's run on a thread of Flower's; its errors come out here as they are."""
    done: list[Conducted] = []
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []
    over = threading.Event()

    def rounds(grid: Grid, context: Context) -> None:
        threads.append(threading.current_thread())
        try:
            silos = VirtualSilos(grid, terms, over)
            coordinator = place / "coordinator"
            done.append(conduct(terms, coordinator, silos, progress=progress, one_owner=True))
        except BaseException as error:  # Flower would only write it to its log
            errors.append(error)

    stopped: Exception | None = None
    try:
        with _quiet(), _within_reach():
            apps = make_server_app(rounds), virtual_silos(place)
            run_simulation(*apps, len(terms.silos), backend_config=_backend())
    except Exception as error:
        stopped = error
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for error in errors:
        if not isinstance(error, _Over):
            raise error
    if not done:
        raise TacitError(
            f"Ray did not run the silos ({_cause(stopped)}): see whether Ray works here "
            "(`python -c 'import ray; ray.init()'`), or leave engine out"
        ) from stopped
    return done[0]


def _backend() -> dict[str, dict[str, Any]]:
    """One core for each worker, on the cluster that RAY_ADDRESS names or on this machine."""
    here = {} if os.environ.get("RAY_ADDRESS") else {"address": "local"}
    return {"init_args": here | QUIET, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


@contextlib.contextmanager
def _within_reach() -> Iterator[None]:
    """Have Ray listen on this machine only, or warn that somebody started it otherwise."""
    if os.environ.get("RAY_ADDRESS") or ray.is_initialized():
        warnings.warn(
            "this Ray was not started here: whoever reaches its ports can read all rows and run "
            "code on its machines, so keep them on a network of their own",
            stacklevel=2,
        )
        yield
        return
    before = ray_constants.ENABLE_RAY_CLUSTER
    # What RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 sets, if it is there before Ray is imported.
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Flower logs what is raised here anyway, and changes where Python looks for modules."""
    log, path = logging.getLogger("flwr"), os.environ.get("PYTHONPATH")
    level = log.level
    # Ray would warn that it hides GPUs from workers that asked for none: ours compute on cores.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
        if path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = path


def _cause(error: BaseException | None) -> str:
    """Flower wraps what went wrong several times; the innermost says what it was."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    words = str(error).strip().splitlines() if error is not None else []
    return words[0] if words else type(error).__name__


def _bring(simulation: Simulation, done: Conducted, silos: list[Path]) -> None:
    """All that the run ended with, as if `simulation` had made the rounds itself."""
    theirs, ours = done.coordination, simulation.rounds
    if len(done.finished) < len(silos):
        raise TacitError(
            f"{len(silos) - len(done.finished)} silos did not take the last billboard: "
            f"{theirs.asking.folder / LOG} says why"
        )
    ours.publish(theirs.rounds.board)
    ours.stopped = theirs.rounds.stopped
    channel, other = simulation.channel, theirs.course.channel
    channel.ledger, channel.clip, channel.dropped = other.ledger, other.clip, other.dropped
    ours.strategy.restore(theirs.rounds.strategy.kept)
    for task, folder in enumerate(silos):
        ours.store.bring(task, folder / "checkpoint")
    ours.save()
    privacy = theirs.asking.terms.make_privacy()
    ours.curve = []  # silos told nobody their losses: only the end can be measured
    ours.look(epsilon_so_far(ours, privacy, ours.course.length))
