"""Rounds whose tasks are silos elsewhere: ask, collect, publish.

Rounds are those of a simulation; only where its tasks would train, silos are asked. A silo that
does not answer in time contributes zero, and the sum is divided by the expected cohort all the
same, so that nothing about the guarantee depends on who answered. What silos say is not believed:
a contribution of another shape, with values that are not finite, or longer than the clip is not
taken, and whoever sent it is left out from then on. Where persons are protected, silos draw, bound
and add up their own, so all of them are asked in every round, and what they send is as long as it
is: `Collection.add_bounded` says why that harms nobody's promise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.deploy.diary import Diary
from tacit.deploy.events import RoundFailed, SiloDeclined, SiloExcluded, SiloSilent
from tacit.deploy.guard import SLACK
from tacit.deploy.messages import Broken, Kind, Reply, Request, same_shape
from tacit.deploy.scores import release_scores
from tacit.deploy.servers import RoundLost, SharedJobs
from tacit.deploy.terms import Terms
from tacit.deploy.work import SCORES
from tacit.engine.course import Course
from tacit.engine.exchange import Exchange, acceptable
from tacit.engine.on_shares import OnShares, about
from tacit.engine.rounds import Billboard, Draw, Rounds, Sent, Strategy
from tacit.engine.store import Store
from tacit.errors import TacitError
from tacit.files import read_json, reading, replace
from tacit.methods import Board, ExchangeMethod, FedMTL
from tacit.privacy.channel import BudgetSpent
from tacit.privacy.curator import Curated
from tacit.secure.jobs.summing import Spoiled
from tacit.words import shortened

COHORT = "cohort.json"
LOST_COHORT = (
    "put it back from a backup, because who was drawn must not be drawn anew; without one, count "
    "all that the ledger beside it has as spent, and begin again in another folder"
)


class Silos(Protocol):
    """The way to the silos."""

    def expect(self, numbers: int) -> None:
        """An honest reply holds at most so many numbers."""
        ...

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        """Replies that came in time, by task; a silo that sent none is missing."""
        ...


@dataclass
class Asking:
    """One run: what it asks with, and what it knows of the silos."""

    terms: Terms
    run: str
    noise: float
    silos: Silos
    folder: Path
    diary: Diary
    one_owner: bool = False
    """Whether all silos belong to whoever runs this, so that no cohort has to be kept from any."""
    blamed: dict[str, str] = field(default_factory=dict)
    """Silos that the transport caught, and at what."""
    excluded: dict[str, str] = field(default_factory=dict)
    """Silos that broke the protocol, and how."""
    answered: dict[str, int] = field(default_factory=dict)
    """The last round that each silo answered in."""

    def ask(
        self,
        kind: Kind,
        tasks: list[int],
        round: int,
        expected: Mapping[str, Tensor],
        each: Callable[[int], Mapping[str, Any]] = lambda task: {},
        **same: Any,
    ) -> dict[int, Reply]:
        """What these silos sent that can be used, in the order of their tasks."""
        for name in self.blamed.keys() - self.excluded.keys():
            self.exclude(name, self.blamed[name])
        names, requests = self.terms.silos, {}
        plain = self.terms.to_json()
        for task in tasks:
            if names[task] not in self.excluded:
                fields = {"noise": self.noise, **same, **each(task)}
                requests[task] = Request(
                    kind=kind, run=self.run, round=round, terms=plain, **fields
                )
        replies = self.silos.ask(requests)
        for task in requests.keys() - replies.keys():
            self.diary.write(SiloSilent(names[task], kind, round))
        used = {}
        for task in sorted(replies):
            reply, name = replies[task], names[task]
            wrong = _wrong(reply, requests[task], expected)
            if wrong:
                self.exclude(name, wrong)
            elif reply.state != "done":
                reason = shortened(reply.reason)
                self.diary.write(SiloDeclined(name, reply.state, kind, round, reason))
            else:
                used[task] = reply
                self.answered[name] = round
        return used

    def exclude(self, name: str, why: str) -> None:
        """Ask this silo no more; of `why`, only names of tensors are its own words."""
        self.excluded[name] = why = shortened(why)
        self.diary.write(SiloExcluded(name, why))


def _wrong(reply: Reply, request: Request, expected: Mapping[str, Tensor]) -> str:
    """What no honest silo would send, in words."""
    if isinstance(reply, Broken):
        return reply.reason
    if reply.nonce != request.nonce:
        return "answers another request"
    return "" if reply.state != "done" else same_shape(reply.tensors, expected)


class AskedSilos:
    """Silos in the place of tasks: what they have and measure stays with them."""

    def __init__(self, course: Course, asking: Asking, together: SharedJobs | None = None) -> None:
        self._course, self.asking, self.together = course, asking, together

    def ask(self, board: Board, cohort: Tensor) -> Iterator[Sent]:
        """What silos contribute; for servers on shares they only get ready, and share later."""
        drawn, course = cohort.tolist(), self._course
        if self.together is not None:
            self.make_ready(board, drawn, self.together)
            return
        exchanges = isinstance(course.method, ExchangeMethod)
        size = course.size_at(board.round)
        size = course.contribution_size if exchanges else course.channel.place.size(size)
        whole = torch.int64 if course.of_persons else torch.float32
        expected = {"sent": torch.zeros(size, dtype=whole)}
        asked = {"tensors": board.tensors, **self.request(board)}
        replies = self._ask_cohort("train", drawn, board.round, expected, **asked)
        if not replies:
            self._stop_without_silos(board.round, len(drawn))
        for task, reply in replies.items():
            vector = reply.tensors["sent"].unsqueeze(0) * (task in drawn)
            if exchanges:
                wrong = _unmixable(vector, reply.size)
            else:
                wrong = self._unsummable(vector, board.round)
            if wrong:
                self.asking.exclude(self.asking.terms.silos[task], wrong)
            else:
                sizes = torch.tensor([reply.size]) if exchanges else None
                yield Sent(torch.tensor([task]), vector, 1, sizes, bounded=True)

    def _stop_without_silos(self, round: int, drawn: int) -> None:
        """Nothing but noise would be released, and paid for.

        Who answers is known to whoever asks. In rounds of a few, those may be away by chance.
        """
        everybody = drawn == len(self._course.names) or self._hides
        nobody_yet = drawn > 0 and not self.asking.answered
        if self._course.channel.release is not None and (everybody or nobody_yet):
            raise TacitError(
                f"no silo answered in round {round + 1} with what can be used (events.jsonl says "
                "why), so there is nothing to release: nothing was booked for it; start the "
                "coordinator again when silos are there, and the run goes on with this round"
            )

    def answer(self, board: Board, tasks: Tensor, answers: Iterator[Tensor]) -> None:
        """Send silos what the curator answers them."""
        each = dict(zip(tasks.tolist(), answers, strict=True))
        if each:
            self.asking.ask(
                "receive", list(each), board.round, {},
                each=lambda task: {"tensors": {"answer": each[task]}}, **self.request(board),
            )  # fmt: skip

    def read(self, board: Board) -> None:
        """Silos read it with the next request."""

    def finish(self) -> bool:
        """Silos take their last step with the last billboard, which `Coordination` gives them."""
        return False

    def look(self, *, closely: bool = False) -> dict[str, Any]:
        """Silos' losses are their own: the curve here has no loss."""
        return {}

    @property
    def notes(self) -> dict[str, Any]:
        asking = self.asking
        return {"diverged": [], "excluded": asking.excluded, "answered": asking.answered}

    def remember(self, notes: dict[str, Any]) -> None:
        self.asking.excluded.update(notes["excluded"])
        self.asking.answered.update(notes["answered"])

    def request(self, board: Board) -> dict[str, Any]:
        """What a request of this round carries."""
        course, channel = self._course, self._course.channel
        clip = channel.clip if channel.release is not None else None
        spread = float(course.public(board)[2])
        return {"key": course.randomness.run_key, "spread": spread, "clip": clip}

    def scores(self, board: Board, cohort: list[int], round: int) -> Iterator[Tensor]:
        """Bounded scores [1, size] of the silos' models, zeros from outside the cohort."""
        expected, asked = {"sent": torch.zeros(SCORES)}, self.request(board)
        replies = self._ask_cohort("measure", cohort, round, expected, **asked)
        for task, reply in replies.items():
            yield reply.tensors["sent"].unsqueeze(0) * (task in cohort)

    def make_ready(self, board: Board, cohort: list[int], together: SharedJobs) -> None:
        """Let the cohort train, for servers on shares; silos outside it will share zeros."""
        asked = self.request(board)
        replies = self._ask_cohort("train", cohort, board.round, {}, tensors=board.tensors, **asked)
        together.begin(replies, board.round)
        together.asked = asked

    @property
    def _hides(self) -> bool:
        """Whether nobody may learn who is in a cohort."""
        channel = self._course.channel
        secret = channel.release is not None and channel.sampler.secret
        return secret and not channel.of_persons and not self.asking.one_owner

    def _ask_cohort(
        self, kind: Kind, cohort: list[int], round: int, expected: Mapping[str, Tensor], **same: Any
    ) -> dict[int, Reply]:
        """Ask the cohort; where it is a secret, everybody, and those outside work for nothing.

        A round is over when the slowest silo has answered. If the slowest of the cohort decided,
        all others could tell from its length whether a slow silo was drawn, and the guarantee
        counts on their not knowing. What comes from outside counts as zeros, but is handed on all
        the same: adding them up must not take longer for a larger cohort.
        """
        tasks, members = cohort, set(cohort)
        if self._hides:
            tasks = list(range(len(self._course.names)))
        return self.asking.ask(
            kind, tasks, round, expected, each=lambda k: {"takes_part": k in members}, **same
        )

    def _unsummable(self, vector: Tensor, round: int) -> str:
        """Why this cannot be summed; an honest silo clips, so nothing is shortened here."""
        channel = self._course.channel
        if channel.of_persons:
            most = channel.longest_at(round)
            return "" if bool((vector.double().abs() <= most).all()) else "is too long for any sum"
        length = float(torch.linalg.vector_norm(vector.double()))
        if self._course.channel.release is not None and length > 1 + SLACK:
            return "is longer than the clip"
        # Without privacy nothing is clipped.
        return "" if bool(acceptable(vector)) else "is too long for any sum"


def _unmixable(vector: Tensor, size: int) -> str:
    return "" if size > 0 and bool(acceptable(vector)) else "cannot be mixed"


class SummedOnShares(Billboard):
    """The billboard where servers sum on shares: a round may be lost with a silo that leaves."""

    def __init__(self, course: Course, asked: AskedSilos) -> None:
        super().__init__(course, asked)
        self._diary = asked.asking.diary

    def round(self, board: Board, draw: Draw) -> Board:
        try:
            return super().round(board, draw)
        except (RoundLost, Spoiled) as lost:
            if len(set(self.course.stages)) > 1 or self.course.length == 1:
                raise BudgetSpent(
                    f"{lost}, and this method can spare none: agree on retries"
                ) from lost
            self._diary.write(RoundFailed(board.round, str(lost)))
            return dataclasses.replace(board, round=board.round + 1)


class MixedOnShares(Exchange):
    """The exchange where servers mix on shares: silos get their answers from them."""

    def __init__(self, course: Course, asked: AskedSilos, together: SharedJobs) -> None:
        super().__init__(course, asked)
        self._silos, self._together = asked, together

    def round(self, board: Board, draw: Draw) -> Board:
        course, after = self.course, dataclasses.replace(board, round=board.round + 1)
        self._silos.make_ready(board, draw(board.round).tolist(), self._together)
        if len(self._together.ready) < 2:  # nobody to mix with
            return after
        assert isinstance(self.method, FedMTL)
        settings, length = self._together.settings, course.contribution_size
        try:
            job = OnShares(self.method, settings, course.model, length).job
            self._together.run(job, board.round)
        except RoundLost as lost:
            self._silos.asking.diary.write(RoundFailed(board.round, str(lost), kept=True))
        return after

    @property
    def curated(self) -> Curated | None:
        return about(self._together.settings)


class Coordination:
    """The rounds of a consortium, whose tasks are silos elsewhere."""

    def __init__(
        self,
        course: Course,
        federation: Federation,
        store: Store,
        *,
        asking: Asking,
        together: SharedJobs | None = None,
    ) -> None:
        self.course, self.federation, self.asking = course, federation, asking
        course.channel.noise_comes = bool(course.channel.noisy_tasks)
        self.silos = AskedSilos(course, asking, together)
        strategy = self._strategy(together)
        self.rounds = Rounds(strategy, store, draw=self._cohort, careful=True)

    def _strategy(self, together: SharedJobs | None) -> Strategy:
        course, silos = self.course, self.silos
        exchanges = isinstance(course.method, ExchangeMethod)
        if together is None:
            return Exchange(course, silos) if exchanges else Billboard(course, silos)
        if exchanges:
            return MixedOnShares(course, silos, together)
        course.channel.curator = together.summing(len(course.names), course.channel.room)
        return SummedOnShares(course, silos)

    def _cohort(self, round: int) -> Tensor:
        """Drawn once for each round: asking other silos after a crash would change the sampling."""
        if self.course.of_persons:  # who is drawn are persons, by their own silo
            return torch.arange(len(self.course.names))
        path = self.asking.folder / COHORT
        if path.exists():
            known = read_json(path, {"round": int, "tasks": list}, LOST_COHORT)
            with reading(path, LOST_COHORT):
                tasks = torch.tensor(known["tasks"], dtype=torch.int64)
                if not torch.equal(tasks, tasks.unique()) or bool(
                    ((tasks < 0) | (tasks >= len(self.course.names))).any()
                ):
                    raise ValueError(f"its tasks are {known['tasks']}")
            if known["round"] == round:
                return tasks
        cohort = self.rounds.draw(round)
        replace(path, json.dumps({"round": round, "tasks": cohort.tolist()}).encode())
        return cohort

    def finish(self, have: set[int]) -> set[int]:
        """Give the last billboard to all silos that lack it; returns all that have it."""
        board, tasks = self.rounds.board, [k for k in range(len(self.federation)) if k not in have]
        asked = self.silos.request(board)
        return have | set(
            self.asking.ask("finish", tasks, board.round, {}, tensors=board.tensors, **asked)
        )

    def measure(self) -> dict[str, float]:
        """The mean score and loss of all silos: a release like any other, after the last."""
        round, channel = self.course.length, self.course.channel
        if channel.release is None:
            raise TacitError("scores of silos are released with noise only, and here is none")
        once = dataclasses.replace(
            channel, clip=1.0, relation=None, quantile=None, moments=None, weights=None,
            _room=None,
        )  # fmt: skip
        once.release = dataclasses.replace(channel.release, replaced=2.0)
        collection = once.open(round, round + 1)
        cohort = self._cohort(round).tolist()
        for vector in self.silos.scores(self.rounds.board, cohort, round):
            collection.add_bounded(vector)
        mean = collection.publishable(SCORES)
        return release_scores(self.federation, mean, once.noise_at(round))
