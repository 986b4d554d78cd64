"""One run at one silo: the method's client step on its own rows, and what it keeps on its own disk.

The `Tasks` at work here are those of a simulation, with one task whose rows are here. Every step is
saved together with what left the silo, in one file that is replaced at once: a request that comes
again, after a crash on either side, is answered again with the same numbers, and is neither
computed nor paid for twice. Steps are numbered, and a second file has the number of the last one
that was answered from: if the first file is lost, or an older one, the run ends here, because other
numbers would leave for the price of one.

Outside the cohort of a round a silo does the very same, on the same rows from the same state, but
keeps its state and sends random numbers: neither the time it takes nor the length of its answer
tells others who was drawn.

Where persons are protected, every silo takes part in every round, with the sum over those of its
persons that it draws itself (`engine.persons`, `privacy.subtotal`): all of them do the same work,
and those who are not drawn count as nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tacit.deploy import guard
from tacit.deploy.account import Account
from tacit.deploy.events import Spending
from tacit.deploy.guard import Refused
from tacit.deploy.messages import Request, padding, same_shape
from tacit.deploy.terms import Own, Terms
from tacit.engine.course import Public
from tacit.engine.exchange import AnsweredTasks
from tacit.engine.persons import Persons
from tacit.engine.store import (
    CHECKPOINT,
    JOURNAL,
    LEDGER,
    REMEDY,
    check_unused,
    lost,
    saved_notes,
)
from tacit.engine.tasks import Tasks
from tacit.errors import TacitError
from tacit.experiment.prepare import simulation_of
from tacit.experiment.start import model_of
from tacit.files import append, make_folder, read_json, reading, replace
from tacit.methods import Board, ExchangeMethod, State
from tacit.privacy import Everyone, Release
from tacit.privacy.bounds import Bounded
from tacit.privacy.grid import Grid
from tacit.privacy.subtotal import subtotal
from tacit.randomness import Randomness

RUN, ANSWERED = "run.json", "answered.txt"
NO_STEP = b"0\n"
LONGEST_STEP = 32
"""Bytes in which the last line of that is."""
BEGUN = {"key": int, "noise": float | int, "terms": str}
"""What that holds."""
SCORES = 2
"""Numbers that are released about all silos' models: a score and a loss."""
CPU = torch.device("cpu")


class Last(NamedTuple):
    """The last step that was saved."""

    round: int
    phase: str
    asked: str
    """Names what was asked for: the same request again has the same."""
    times: int
    """How often this silo was in a cohort so far."""
    handed: list[str]
    """Jobs of servers on shares that got something in this round."""
    steps: int
    """How many were saved so far, with this one."""
    tensors: Mapping[str, Tensor]


class Work:
    """A run that this silo takes part in; `folder` holds all that it must not forget."""

    def __init__(
        self,
        terms: Terms,
        task: int,
        own: Own,
        folder: Path,
        start: Mapping[str, Any],
        *,
        others: Callable[[], list[Path]],
        budget: float | None,
    ) -> None:
        self.terms, self.task, self.folder = terms, task, folder
        method, self.privacy = terms.make_method(), terms.make_privacy()
        self._chosen = torch.tensor([task])
        federation = terms.federation({task: own})
        randomness = Randomness(terms.seed, start["key"])
        model = model_of(terms.model, federation, randomness.key("model", 0))
        given = self.privacy and dataclasses.replace(
            self.privacy, epsilon=None, noise=start["noise"]
        )
        kind = AnsweredTasks if isinstance(method, ExchangeMethod) else Tasks
        plan, sampler = terms.plan().but(privacy=given, curator=None, store="disk"), terms.sampler()
        tasks = simulation_of(plan, federation, model, sampler, randomness, CPU, folder, kind)
        assert isinstance(tasks, Tasks)
        self.tasks, self.course, self.channel = tasks, tasks.course, tasks.course.channel
        self._persons = Persons(tasks, all_work=True) if self.course.of_persons else None
        self._account = self._open_account(others, budget)

    def _open_account(
        self, others: Callable[[], list[Path]], budget: float | None
    ) -> Account | None:
        channel, privacy = self.channel, self.privacy
        if channel.release is None or privacy is None:
            return None
        coming = [channel.release_at(t) or channel.release for t in range(self.terms.rounds)]
        if self.terms.metrics:
            after = channel.sampler.at(self.terms.rounds, channel.randomness.run_key)
            coming.append(Release(after, channel.release.noise_multiplier))
        dearest = min(coming, key=lambda release: release.noise_multiplier)
        again = [dataclasses.replace(dearest, sampler=Everyone())] * self.terms.retries
        guard.check_noise(self.terms, privacy, coming + again)
        limit = budget if budget is not None else privacy.epsilon or float("inf")
        silos, seeded = len(self.terms.silos), self.terms.seed is not None
        return Account(channel.ledger, others, coming, privacy, silos, limit, seeded=seeded)

    @classmethod
    def begin(cls, folder: Path, request: Request, terms: Terms) -> dict[str, Any]:
        """What stays the same in a run, from its first request; returns it on every call.

        No step was answered from yet, which is said before anything is booked: so whoever finds
        releases on the account, and nothing about steps, knows that this was lost.
        """
        path = folder / RUN
        begun = {"key": request.key, "noise": request.noise, "terms": terms.digest}
        if not path.exists():
            check_unused(folder, path)
            # A silo that answered from here once would answer again, and pay nothing for it.
            if (folder / LEDGER).exists():
                raise lost(path, f"{folder} has releases on its account")
            make_folder(folder)
            replace(folder / ANSWERED, NO_STEP)
            replace(path, json.dumps(begun).encode())
        known = read_json(path, BEGUN, REMEDY)
        changed = next((name for name in begun if known[name] != begun[name]), None)
        if changed is not None:
            raise Refused(
                f"{changed} is {begun[changed]} now, and was {known[changed]} when the run began"
            )
        return known

    @staticmethod
    def read_start(folder: Path, terms: Terms) -> dict[str, Any]:
        """What `begin` kept."""
        known = read_json(folder / RUN, BEGUN, REMEDY)
        if known["terms"] != terms.digest:
            raise TacitError(f"the run in {folder} was made under other terms: give it its own")
        return known

    @property
    def spent(self) -> Spending | None:
        """In all runs of this silo; None where nothing is booked."""
        return None if self._account is None else self._account.in_all()

    @property
    def spent_so_far(self) -> Spending | None:
        return None if self._account is None else self._account.so_far()

    @property
    def last(self) -> Last:
        """The last saved step; raises an error if a later one was answered from."""
        journal, found = self.tasks.store.journal, self.tasks.store.reopen()
        if found is None:
            last = Last(-1, "nothing", "", 0, [], 0, {})
        else:
            board, notes = found
            with reading(journal, REMEDY):
                said = notes["phase"], str(notes["asked"]), int(notes["times"])
                handed = list(map(str, notes.get("handed", ())))
                steps = int(notes.get("steps", 0))
            last = Last(board.round, *said, handed, steps, board.tensors)
        if last.steps < self._answered:
            raise TacitError(
                f"{journal} is gone, or an older copy, but {self.folder / ANSWERED} says that this "
                f"silo answered from it; {REMEDY}"
            )
        return last

    @property
    def _answered(self) -> int:
        """The step that was last answered from, as far as its file is whole."""
        path = self.folder / ANSWERED
        if not path.exists():
            if len(self.channel.ledger):
                raise lost(path, f"{self.folder} has releases on its account")
            return 0
        with reading(path, REMEDY), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LONGEST_STEP))
            *_, last, _ = (NO_STEP + file.read()).split(b"\n")
        return int(last) if last.isdigit() else 0

    def remember_answer(self) -> None:
        """Note, before anything of it leaves, that the last step was answered from.

        No other answer is ever given in its place. A loss of power may take this line away; it is
        needed only where the journal is lost, too.
        """
        steps = (saved_notes(self.folder / CHECKPOINT) or {}).get("steps", 0)
        if steps > self._answered:
            append(self.folder / ANSWERED, f"{steps}\n")

    def train(self, request: Request) -> tuple[Tensor, int, bool]:
        """What leaves the silo, how many rows it trained on, and whether it is a repetition.

        What leaves is the contribution, or, outside the cohort, random numbers of its size. Whether
        the silo is in the cohort is part of a request's name, so that a second request cannot say
        otherwise.
        """
        board, asked, last = self._board(request), _name(request), self.last
        guard.check_spread(self.terms, self.channel, request)
        clip = guard.check_clip(self.tasks.method, self.privacy, request)
        rows = self.rows
        if last.phase == "finished":
            raise Refused(f"round {request.round + 1} was asked for, but the run is over")
        if self.exchanges and not request.takes_part:
            raise Refused("on the exchange there is nothing to do outside the cohort")
        if self._persons is not None and not request.takes_part:
            raise Refused("persons are drawn by their own silo, and every silo is in every round")
        if last.round == request.round and last.asked == asked:
            return last.tensors["sent"], rows, True
        if request.round <= last.round:
            raise Refused(
                f"round {request.round + 1} was asked for, but round {last.round + 1} was answered"
            )
        if self.channel.ledger.has(request.round + 1):  # its answer may have left, and been lost
            raise Refused(
                f"round {request.round + 1} was asked for, but later ones are on this silo's "
                "account"
            )
        channel, times = self.channel, last.times + request.takes_part
        rate = channel.sampler.expected(channel.tasks) / channel.tasks
        if self._persons is not None:
            pass  # nobody else draws
        elif channel.sampler.secret:
            guard.check_often(times, request.round + 1, rate)
        elif request.takes_part:
            guard.check_turn(channel, self.task, request.round)
        if self._account is not None:
            self._account.pay(request.round, clip=clip)
        if self._persons is not None:
            self._persons.read(board)  # rows are in the units that are on it
        public = self._public(request, board)
        size = self.course.size_at(request.round)
        size = size if self.exchanges else channel.place.size(size)
        if self._persons is not None:
            vector = self._sum_persons(self._persons, board, public, size, clip)
            states = self._learned(board, public)
        else:
            _, states, sent = next(self.tasks.train(board, public, self._chosen))
            vector = self._bound(sent, clip) if not self.exchanges else sent[0]
        bounded = self._account is not None and self._persons is None
        guard.check_leaving(vector, size, bounded=bounded)
        instead = padding(size)  # drawn in a cohort, too: it takes time
        if request.takes_part:
            self._save(request, "trained", asked, states, vector, last._replace(times=times))
            return vector, rows, False
        self._save(request, "watched", asked, None, instead, last._replace(times=times))
        return instead, rows, False

    def receive(self, request: Request) -> bool:
        """Make something of the curator's answer; returns whether this is a repetition."""
        last, method = self.last, self.tasks.method
        if not isinstance(method, ExchangeMethod):
            raise Refused("an answer was sent, but this method has no curator that answers")
        if last.round == request.round and last.phase == "received":
            return True
        if last.round != request.round or last.phase != "trained":
            raise Refused(f"nothing was sent in round {request.round + 1}, so nothing is answered")
        expected = {"answer": torch.zeros(method.copies, len(last.tensors["sent"]))}
        wrong = same_shape(request.tensors, expected)
        if wrong:
            raise Refused(f"the answer {wrong}")
        self.take_answer(request, request.tensors["answer"])
        return False

    def take_answer(self, request: Request, answer: Tensor) -> None:
        """Make something of the vectors [copies, length] that this silo is answered."""
        tasks, last, board = self.tasks, self.last, self.tasks.board
        assert isinstance(tasks, AnsweredTasks)
        own = tasks.store.take(self._chosen, tasks.method.state(tasks.model, board))
        public = self._public(request, board)
        states = tasks.receive(public, self._chosen, own, answer.unsqueeze(0))
        self._save(request, "received", last.asked, states, last.tensors["sent"], last)

    def finish(self, request: Request) -> bool:
        """Keep the last billboard, and take the method's own last step."""
        last = self.last
        if last.phase == "finished":
            return True
        board = self._board(request)
        guard.check_spread(self.terms, self.channel, request)
        if self._account is not None:
            self._account.close(request.round)
        if self._persons is not None:
            self._persons.read(board)
        states: State | None = None
        if self.tasks.method.settles:
            public = self._public(request, self.course.publishing.shown(board))
            _, states = next(self.tasks.settled(public, self._chosen))
        sent = last.tensors.get("sent")
        self._save(request, "finished", _name(request), states, sent, last)
        return False

    def measure(self, scores: Tensor, *, takes_part: bool) -> Tensor:
        """Bounded scores on their way out, or random numbers; the release after the last round."""
        if self._account is None:
            raise Refused("scores leave a silo with noise only, and nothing here is private")
        if takes_part:
            guard.check_turn(self.channel, self.task, self.terms.rounds)
        self._account.pay(self.terms.rounds)
        scores = guard.check_leaving(scores, SCORES, bounded=True)
        return scores if takes_part else padding(SCORES)

    def pay_again(self, round: int) -> None:
        """Pay for one more sum of this round; its cohort is the same, so sampling hides nothing."""
        release = self.channel.release_at(round)
        if self._account is not None and release is not None:
            once_more = dataclasses.replace(release, sampler=Everyone())
            self._account.pay_more(once_more, self.terms.retries)

    def keep_handed(self, job: str) -> None:
        """Note beside the round's state that its vector is about to be handed to this job."""
        found, last = self.tasks.store.reopen(), self.last
        if found is not None and job not in last.handed:
            board, notes = found
            more = {"handed": [*last.handed, job], "steps": last.steps + 1}
            self.tasks.store.put_back(self._chosen)
            self.tasks.store.settle(board, notes | more, save=True)

    @property
    def rows(self) -> int:
        """How many rows this silo trains on."""
        return int(self.tasks.federation.train.count(self._chosen))

    @property
    def name(self) -> str:
        return self.terms.silos[self.task]

    @property
    def exchanges(self) -> bool:
        return isinstance(self.tasks, AnsweredTasks)

    @property
    def finished(self) -> bool:
        return self.last.phase == "finished"

    @property
    def saved_at(self) -> float:
        """When the last step was saved, in seconds since 1970."""
        return (self.folder / CHECKPOINT / JOURNAL).stat().st_mtime

    def reopen(self) -> Tasks | None:
        """The silo's task with the last billboard that it saw; None before the first."""
        last = self.last
        if last.round < 0:
            return None
        names = self.tasks.board.tensors
        with reading(self.tasks.store.journal, REMEDY):
            public = {name: last.tensors[f"public.{name}"] for name in names}
            if wrong := same_shape(public, names, self.course.votes.names):
                raise ValueError(wrong)
        self.tasks.read(Board(public, last.round))
        return self.tasks

    def step_at(self, round: int) -> int:
        """In how many parts a clip is in what leaves in this round."""
        return 1 if self._persons is None else self._grid_at(round).steps

    def _grid_at(self, round: int) -> Grid:
        """The integers that persons are summed in: of whoever sums for all silos."""
        release, grid = self.channel.release_at(round), self.channel.grid_at(round)
        assert release is not None and grid is not None
        if self.terms.curator is None:
            return grid
        summed = len(self.terms.silos) * self.channel.room
        return Grid.of(summed, self.terms.curator["servers"], release.noise_multiplier)

    def _sum_persons(
        self, persons: Persons, board: Board, public: Public, size: int, clip: float
    ) -> Tensor:
        """The sum over this silo's persons that leaves, drawn and bounded here."""
        self.channel.clip = clip
        grid = self._grid_at(board.round)
        sent = persons.contribute(board, public, self._chosen, grid)
        each = ((some.whole, some.tasks, some.count) for some in sent)
        return subtotal(self.channel, self.name, board.round, size, grid, each)

    def _learned(self, board: Board, public: Public) -> State | None:
        """What this silo learns for itself, where persons contribute; None if it keeps nothing."""
        if not self.tasks.learns or self.course.votes_at(board.round):
            return None
        _, states, _ = next(self.tasks.train(board, public, self._chosen))
        return states

    def _bound(self, sent: Tensor, clip: float) -> Tensor:
        """The vector of length at most one that is summed."""
        self.channel.clip = clip
        bounded = Bounded.of(sent, clip, self.channel.moments)
        return bounded.vectors(self.channel.place, self._chosen)[0].float()

    def _board(self, request: Request) -> Board:
        expected = self.tasks.board.tensors
        wrong = same_shape(request.tensors, expected, self.course.votes.names)
        if wrong:
            raise Refused(f"the billboard {wrong}")
        # In the order of the first one: what was traced takes tensors by position.
        return Board({name: request.tensors[name] for name in expected}, request.round)

    def _public(self, request: Request, board: Board) -> Public:
        return board.tensors, torch.tensor(request.round), torch.tensor(request.spread)

    def _save(
        self,
        request: Request,
        phase: str,
        asked: str,
        states: State | None,
        sent: Tensor | None,
        last: Last,
    ) -> None:
        """Save a step; `last` is the one before it, which is not read again."""
        store, board = self.tasks.store, self._kept_board(request)
        if states is None:
            store.put_back(self._chosen)
        else:
            store.put(self._chosen, states)
        kept = {f"public.{name}": value for name, value in board.items()}
        kept |= {} if sent is None else {"sent": sent}
        mark = self.channel.ledger.mark
        handed = last.handed if last.round == request.round else []
        notes = {"phase": phase, "asked": asked, "times": last.times, "ledger": mark}
        more = {"handed": handed, "steps": last.steps + 1}
        store.settle(Board(kept, request.round), notes | more, save=True)

    def _kept_board(self, request: Request) -> Mapping[str, Tensor]:
        told = request.kind in ("train", "finish")
        return request.tensors if told else self.tasks.board.tensors


def _name(request: Request) -> str:
    plain = f"{request.round} {request.clip} {request.spread} {request.takes_part}"
    digest = hashlib.sha256(plain.encode())
    for name, value in sorted(request.tensors.items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()
