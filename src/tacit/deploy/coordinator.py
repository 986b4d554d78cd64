"""Rounds whose tasks are silos elsewhere: ask, collect, publish.

A round is the round of the simulation; only where tasks would train, silos are asked. A silo that
does not answer in time contributes zero, and the sum is divided by the expected cohort all the
same, so that nothing about the guarantee depends on who answered. What silos say is not believed:
a contribution of another shape, with values that are not finite, or longer than the clip is not
taken, and whoever sent it is left out from then on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from tacit.deploy.diary import Diary
from tacit.deploy.events import RoundFailed, SiloDeclined, SiloExcluded, SiloSilent
from tacit.deploy.guard import SLACK
from tacit.deploy.messages import Broken, Kind, Reply, Request, same_shape
from tacit.deploy.scores import released_scores
from tacit.deploy.terms import Terms
from tacit.deploy.work import SCORES
from tacit.engine.exchange import Exchange, acceptable
from tacit.engine.simulate import Public, Simulation
from tacit.errors import TacitError
from tacit.files import read_json, reading, replace
from tacit.methods import Board, FedMTL
from tacit.privacy.channel import BudgetSpent, Channel, Collection
from tacit.privacy.curator import Curated
from tacit.words import shortened

if TYPE_CHECKING:
    from tacit.deploy.servers import Together

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
        """What those answer that do so in time; who does not is left out."""
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
        """`why` is in our own words; names of tensors in it are cut, and not more."""
        self.excluded[name] = why = shortened(why)
        self.diary.write(SiloExcluded(name, why))


def _wrong(reply: Reply, request: Request, expected: Mapping[str, Tensor]) -> str:
    """What no honest silo would send, in words."""
    if isinstance(reply, Broken):
        return reply.reason
    if reply.nonce != request.nonce:
        return "answers another request"
    return "" if reply.state != "done" else same_shape(reply.tensors, expected)


class _Coordinating(Simulation):
    """What does not depend on the channel: nothing is measured here, and everything is saved."""

    def __init__(self, *given: Any, asking: Asking, together: Together | None = None) -> None:
        self.asking, self.together = asking, together
        super().__init__(*given, trace=False)

    def _make_ready(self, board: Board, public: Public, cohort: list[int]) -> None:
        """Have the cohort train, for servers on shares; all who were asked share, if only zeros."""
        together, asked = self.together, self._asked(board, public)
        assert together is not None
        replies = self._ask_cohort("train", cohort, board.round, {}, tensors=board.tensors, **asked)
        together.begin(replies, board.round)
        together.asked = asked

    @property
    def _hides(self) -> bool:
        """Whether nobody may learn who is in a cohort."""
        channel = self.channel
        return channel.release is not None and channel.sampler.secret and not self.asking.one_owner

    def _ask_cohort(
        self, kind: Kind, cohort: list[int], round: int, expected: Mapping[str, Tensor], **same: Any
    ) -> dict[int, Reply]:
        """Ask the cohort; where it is a secret, everybody, and those outside work for nothing.

        A round is over when the slowest silo has answered. If the slowest of the cohort decided,
        all others could tell from its length whether a slow silo was drawn, and the guarantee
        counts on their not knowing.
        """
        tasks, members = cohort, set(cohort)
        if self._hides:
            tasks = list(range(len(self.federation)))
        return self.asking.ask(
            kind, tasks, round, expected, each=lambda k: {"takes_part": k in members}, **same
        )

    def _heard(
        self, kind: Kind, cohort: list[int], round: int, size: int, **same: Any
    ) -> Iterator[tuple[int, Tensor]]:
        """The vectors [1, size] of silos that answered; whatever came from outside counts as zeros.

        They are handed on all the same: adding them up must not take longer for a larger cohort.
        """
        replies = self._ask_cohort(kind, cohort, round, {"sent": torch.zeros(size)}, **same)
        for task, reply in replies.items():
            yield task, reply.tensors["sent"].unsqueeze(0) * (task in cohort)

    @property
    def careful(self) -> bool:
        return True

    def _asked(self, board: Board, public: Public) -> dict[str, Any]:
        """What a request of this round carries."""
        clip = self.channel.clip if self.channel.release is not None else None
        return {"key": self.randomness.run_key, "spread": float(public[2]), "clip": clip}

    def _cohort(self, round: int) -> Tensor:
        """Drawn once for each round: asking other silos after a crash would change the sampling."""
        path = self.asking.folder / COHORT
        if path.exists():
            known = read_json(path, {"round": int, "tasks": list}, LOST_COHORT)
            with reading(path, LOST_COHORT):
                tasks = torch.tensor(known["tasks"], dtype=torch.int64)
                if not torch.equal(tasks, tasks.unique()) or bool(
                    ((tasks < 0) | (tasks >= len(self.federation))).any()
                ):
                    raise ValueError(f"its tasks are {known['tasks']}")
            if known["round"] == round:
                return tasks
        cohort = super()._cohort(round)
        replace(path, json.dumps({"round": round, "tasks": cohort.tolist()}).encode())
        return cohort

    def _look(self, epsilon: Callable[[int], float | None]) -> None:
        """Silos' losses are their own: the curve here has no loss."""
        spent = epsilon(self.channel.ledger.before(self.board.round))
        self.curve.append({"round": self.board.round, "epsilon": spent})

    def _settle(self) -> None:
        """Silos do it, with the last billboard."""

    @property
    def _notes(self) -> dict[str, Any]:
        asking = self.asking
        return super()._notes | {"excluded": asking.excluded, "answered": asking.answered}

    def _remember(self, notes: dict[str, Any]) -> None:
        self.asking.excluded.update(notes["excluded"])
        self.asking.answered.update(notes["answered"])

    def finish(self, have: set[int]) -> set[int]:
        """Give everybody the last billboard but those who have it; returns who does then."""
        board, tasks = self.board, [k for k in range(len(self.federation)) if k not in have]
        asked = self._asked(board, self._public(board))
        return have | set(
            self.asking.ask("finish", tasks, board.round, {}, tensors=board.tensors, **asked)
        )

    def measured(self) -> dict[str, float]:
        """The mean score and loss of all silos: a release like any other, after the last."""
        round, channel = self.rounds, self.channel
        if channel.release is None:
            raise TacitError("scores of silos are released with noise only, and here is none")
        once = dataclasses.replace(
            channel, clip=1.0, relation=None, quantile=None, moments=None, weights=None,
            _room=None,
        )  # fmt: skip
        once.release = dataclasses.replace(channel.release, replaced=2.0)
        collection = once.open(round, round + 1)
        cohort = self._cohort(round).tolist()
        asked = self._asked(self.board, self._public(self.board))
        for _, vector in self._heard("measure", cohort, round, SCORES, **asked):
            collection.add_bounded(vector)
        mean = collection.publishable(SCORES)
        return released_scores(self.federation, mean, once.noise_at(round))


class Coordinated(_Coordinating):
    """The billboard, with silos as tasks."""

    def _round(self, board: Board) -> Board:
        if self.together is None:
            return super()._round(board)
        from tacit.deploy.servers import RoundLost  # needs tacit[secure]
        from tacit.secure.jobs.summing import Spoiled

        try:
            return super()._round(board)
        except (RoundLost, Spoiled) as lost:
            if len(set(self.stages)) > 1 or self.rounds == 1:
                raise BudgetSpent(
                    f"{lost}, and this method can spare none: agree on retries"
                ) from lost
            self.asking.diary.write(RoundFailed(board.round, str(lost)))
            return dataclasses.replace(board, round=board.round + 1)

    def _collect(
        self, board: Board, public: Public, cohort: Tensor, collection: Collection | None
    ) -> None:
        assert collection is not None  # `Terms.sampler` lets only methods through that speak
        if self.together is not None:
            self._make_ready(board, public, cohort.tolist())
            return
        size = self.channel.place.size(self.size_at(board.round))
        asked = {"tensors": board.tensors, **self._asked(board, public)}
        for task, vector in self._heard("train", cohort.tolist(), board.round, size, **asked):
            if self._too_long(vector, self.channel):
                self.asking.exclude(self.asking.terms.silos[task], "is longer than the clip")
            elif not bool(acceptable(vector)):  # without privacy nothing is clipped
                self.asking.exclude(self.asking.terms.silos[task], "is too long for any sum")
            else:
                collection.add_bounded(vector)

    @staticmethod
    def _too_long(vector: Tensor, channel: Channel) -> bool:
        """An honest silo clips: what is longer was meant to be, even if it could be shortened."""
        length = float(torch.linalg.vector_norm(vector.double()))
        return channel.release is not None and length > 1 + SLACK


class CoordinatedExchange(_Coordinating, Exchange):
    """The exchange, with silos as tasks: the curator is this machine."""

    def _round(self, board: Board) -> Board:
        public, cohort = self._public(board), self._cohort(board.round).tolist()
        asked = self._asked(board, public)
        if self.together is not None:
            self._round_on_shares(board, public, cohort, self.together)
            return dataclasses.replace(board, round=board.round + 1)
        expected = {"sent": torch.zeros(self.contribution_size)}
        replies = self._ask_cohort(
            "train", cohort, board.round, expected, tensors=board.tensors, **asked
        )
        usable = {}
        for task, reply in replies.items():
            if reply.size > 0 and bool(acceptable(reply.tensors["sent"].unsqueeze(0))):
                usable[task] = reply
            else:
                self.asking.exclude(self.asking.terms.silos[task], "cannot be mixed")
        if usable:
            here = torch.tensor(list(usable))
            vectors = torch.stack([reply.tensors["sent"] for reply in usable.values()])
            sizes = torch.tensor([reply.size for reply in usable.values()])
            uploads = self._uploads(here, vectors, sizes, board.round)
            answers = dict(zip(here.tolist(), self._curated(uploads), strict=True))
            self.asking.ask(
                "receive", list(answers), board.round, {},
                each=lambda task: {"tensors": {"answer": answers[task]}}, **asked,
            )  # fmt: skip
        return dataclasses.replace(board, round=board.round + 1)

    def _round_on_shares(
        self, board: Board, public: Public, cohort: list[int], together: Together
    ) -> None:
        self._make_ready(board, public, cohort)
        if len(together.ready) < 2:  # there is nobody to hear of
            return
        from tacit.deploy.servers import RoundLost
        from tacit.engine.on_shares import OnShares  # needs tacit[secure]

        assert isinstance(self.method, FedMTL)
        made = OnShares(self.method, together.settings, self.model, self.contribution_size).job
        try:
            together.run(made, board.round)
        except RoundLost as lost:
            self.asking.diary.write(RoundFailed(board.round, str(lost), kept=True))

    @property
    def curated(self) -> Curated | None:
        if self.together is None:
            return None
        from tacit.engine.on_shares import about

        return about(self.together.settings)
