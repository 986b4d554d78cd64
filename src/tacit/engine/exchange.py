"""Rounds of the exchange: train, upload, let the curator answer, receive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.engine.attendance import Attendance
from tacit.engine.course import Course, Public
from tacit.engine.rounds import Asked, Draw, Sent, Strategy
from tacit.engine.store import Store
from tacit.engine.tasks import Tasks
from tacit.exchange import Answer, Uploads, mixed, reveals
from tacit.local.batches import Batches, all_rows
from tacit.local.chunks import chunk_bytes, widths_of
from tacit.local.together import Together
from tacit.methods.base import Board, State
from tacit.methods.exchange import ExchangeMethod

CURATOR = "curator."
"""Names of what the curator remembers begin so in a checkpoint."""
MIXED = 8
"""Answers are mixed in larger chunks than models train in: it is one product."""
SHOWN = 120
"""Pictures of who learns from whom have at most so many tasks."""


class Answered(Asked, Protocol):
    """Whom a round asks, and whom a curator answers."""

    def answer(self, board: Board, tasks: Tensor, answers: Iterator[Tensor]) -> None:
        """Give these tasks their answers, which come in their order; the others get none."""


class AnsweredTasks(Tasks):
    """Tasks that make something of a curator's answers before a round is over."""

    method: ExchangeMethod

    def __init__(
        self,
        course: Course,
        federation: Federation,
        store: Store,
        attendance: Attendance | None = None,
    ) -> None:
        super().__init__(course, federation, store)
        self._attendance = attendance or Attendance()
        self._since = self._attendance.since(federation).to(self.device)
        self._trained: list[tuple[Tensor, State]] = []
        self._receivers = Together(self._receive, trace=False, single=True)
        self._rehearse()

    def ask(self, board: Board, cohort: Tensor) -> Iterator[Sent]:
        """Have those of the cohort train that have joined; nobody hears of those that are lost."""
        self._trained = []
        cohort = cohort[self._since[cohort] <= board.round]
        for chunk, states, sent in self.train(board, self.course.public(board), cohort):
            mine, sent = chunk.tasks, sent[: len(chunk.tasks)]
            self._trained.append((mine, states))
            if self._attendance.lost:
                stays = self._attendance.stays(mine, board.round, self.randomness)
                mine, sent = mine[stays], sent[stays]
            yield Sent(mine, sent, len(mine), self.federation.train.count(mine))

    def answer(self, board: Board, tasks: Tensor, answers: Iterator[Tensor]) -> None:
        """What all that were trained end the round with, with an answer or without one."""
        public, after = self.course.public(board), []
        for mine, states in self._trained:
            there = torch.isin(mine, tasks).nonzero().squeeze(1)
            if len(there):
                sent = [next(answers) for _ in range(len(there))]
                vectors = torch.stack(sent) if len(sent) > 1 else sent[0].unsqueeze(0)
                whole = len(there) == len(mine)
                own = states if whole else {name: v[there] for name, v in states.items()}
                new = self.receive(public, mine[there], own, vectors)
                states = (
                    new
                    if whole
                    else {name: v.index_copy(0, there, new[name]) for name, v in states.items()}
                )
            after.append((mine, states))
        for mine, states in after:
            self.store.put(mine, states)
        self._trained = []

    def receive(self, public: Public, tasks: Tensor, states: State, answers: Tensor) -> State:
        """What these tasks make of their answers [tasks, copies, length]."""
        return self._receivers(public, (states, answers, self._rows_to_judge(tasks)))

    def _rows_to_judge(self, tasks: Tensor) -> Batches:
        """All validation rows of these tasks as one batch, if clients judge with them."""
        if self.method.judges:
            rows = self.federation.validation
            return all_rows(rows, tasks, int(widths_of(rows.count(tasks)).max()))
        none = torch.zeros(len(tasks), 0, device=self.device)
        return Batches(none, none, none)

    def _receive(self, public: Public, own: tuple[State, Tensor, Batches]) -> State:
        state, vectors, rows = own
        return self.method.receive(self.model, Board(*public), state, vectors, rows)

    def _rehearse(self) -> None:
        """Try `receive` on blank answers, so that errors come before work."""
        course, model = self.course, self.model
        counts = self.federation.train.counts  # at a silo, only its own rows are there
        few = counts.nonzero().squeeze(1)[:2]
        blank = model.start.new_zeros(len(few), self.method.copies, course.contribution_size)
        fresh = self.method.state(model, course.start)
        states = {name: value.expand(len(few), *value.shape) for name, value in fresh.items()}
        self.receive(course.public(course.start), few, states, blank)


class Exchange(Strategy):
    """Rounds whose tasks talk through a curator: it sees uploads, and answers with mixtures."""

    def __init__(self, course: Course, asked: Answered) -> None:
        super().__init__(course, asked)
        assert isinstance(course.method, ExchangeMethod)
        self.method, self._answered = course.method, asked
        tasks, device = len(course.names), course.device
        self.memory = {name: v.to(device) for name, v in self.method.memory(tasks).items()}
        self.record = Record.blank(tasks, device)
        self._kept_room = course.model.start.new_empty(0, course.contribution_size)
        self._rehearse()

    def round(self, board: Board, draw: Draw) -> Board:
        cohort = draw(board.round)
        vectors, here, sizes = self._room(len(cohort)), cohort[:0], cohort[:0]
        for sent in self.asked.ask(board, cohort):
            assert sent.sizes is not None
            vectors[len(here) : len(here) + sent.count] = sent.vectors
            here, sizes = torch.cat([here, sent.tasks]), torch.cat([sizes, sent.sizes])
        finite = acceptable(vectors[: len(here)])
        self.course.channel.dropped += int((~finite).sum())
        vectors = vectors[: len(here)] if bool(finite.all()) else vectors[: len(here)][finite]
        uploads = self.uploads(here[finite], vectors, sizes[finite], board.round)
        answers = self.answers(uploads) if len(uploads) else iter(())
        self._answered.answer(board, uploads.tasks, answers)
        return dataclasses.replace(board, round=board.round + 1)

    def _room(self, tasks: int) -> Tensor:
        """Where uploads are put: the same memory in every round, because fresh pages are slow."""
        if len(self._kept_room) < tasks:
            length = self.course.contribution_size
            self._kept_room = self.course.model.start.new_empty(tasks, length)
        return self._kept_room[:tasks]

    def uploads(self, tasks: Tensor, vectors: Tensor, sizes: Tensor, round: int) -> Uploads:
        """What a curator is handed of these tasks."""
        course, model = self.course, self.course.model
        holds = torch.ones(len(tasks), len(model.parts) - 1, device=course.device) > 0
        return Uploads(
            tasks,
            vectors,
            sizes,
            holds if course.heads is None else course.heads.holds[tasks],
            [*model.parts, slice(model.size, vectors.shape[1])],
            round,
            course.length,
        )

    def answers(self, uploads: Uploads) -> Iterator[Tensor]:
        """The curator: what each client that is here is sent, [copies, length], in their order."""
        answer = self.method.answer(uploads, self.memory)
        self.memory |= answer.memory
        self.record.note(uploads, answer)
        return self._mixtures(uploads, answer)

    def _mixtures(self, uploads: Uploads, answer: Answer) -> Iterator[Tensor]:
        """For many clients at a time."""
        device = self.course.device
        length = 4 * answer.weights.shape[0] * uploads.vectors.shape[1]
        many = max(1, chunk_bytes(device) * MIXED // max(1, length))
        for receivers in torch.arange(len(uploads), device=device).split(many):
            yield from mixed(answer.weights, uploads, receivers)

    def _rehearse(self) -> None:
        """Try the curator on blank uploads, so that errors come before work."""
        few = torch.arange(min(2, len(self.course.names)), device=self.course.device)
        blank = torch.zeros_like(self._room(len(few)))
        uploads = self.uploads(few, blank, torch.ones_like(few), 0)
        next(self._mixtures(uploads, self.method.answer(uploads, self.memory)))

    @property
    def kept(self) -> dict[str, Tensor]:
        return {f"{CURATOR}{name}": v for name, v in (self.memory | vars(self.record)).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        kept = {
            name.removeprefix(CURATOR): value.to(self.course.device)
            for name, value in tensors.items()
            if name.startswith(CURATOR)
        }
        kind = type(self.record)
        self.record = kind(*(kept.pop(field.name) for field in dataclasses.fields(kind)))
        self.memory = kept


@dataclasses.dataclass
class Record:
    """What is known afterwards about who learned from whom; for the report, not for any client."""

    weights: Tensor
    """Of the shared layers in each task's last answer: [tasks, tasks]."""
    similarity: Tensor
    """As the curator last saw it; NaN where it never looked."""
    revealed: Tensor
    """Rounds in which a task's answer gave another's upload away up to one number."""
    kept: Tensor
    """Rounds in which a task was answered with nothing but its own: [tasks]."""
    answered: Tensor
    """Rounds in which a task was answered: [tasks]."""

    @classmethod
    def blank(cls, tasks: int, device: torch.device) -> Record:
        square = torch.zeros(tasks, tasks, device=device)
        line = torch.zeros(tasks, device=device)
        return cls(square, square + torch.nan, square.clone(), line, line.clone())

    def note(self, uploads: Uploads, answer: Answer) -> None:
        here, pairs = uploads.tasks, (uploads.tasks.unsqueeze(1), uploads.tasks)
        shared = answer.weights[:, 0].mean(dim=0)
        self.weights[here] = 0.0
        self.weights[pairs] = shared.to(self.weights)
        if answer.similarity is not None:
            self.similarity[pairs] = answer.similarity.to(self.similarity)
        self.revealed[pairs] += reveals(answer.weights).to(self.revealed)
        own = torch.eye(len(here), device=here.device).expand(answer.weights.shape[1:])
        alone = (answer.weights == own).all(dim=-1).all(dim=1).all(dim=0)
        self.kept[here] += alone.to(self.kept)
        self.answered[here] += 1

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """For the report; tables of pairs have at most `SHOWN` tasks, evenly chosen."""
        tasks = len(self.answered)
        shown = torch.linspace(0, tasks - 1, min(tasks, SHOWN)).round().long().to(self.kept.device)
        pairs = (shown.unsqueeze(1), shown)
        looked = not bool(self.similarity.isnan().all())
        gave = self.revealed.nonzero()
        # The plainest case of each receiver, and of those the plainest ten.
        times, who = self.revealed.max(dim=1)
        worst = [i for i in times.argsort(descending=True)[:10].tolist() if times[i] > 0]
        examples = [[names[i], names[int(who[i])], int(times[i])] for i in worst]
        return {
            "shown": shown.tolist(),
            "weights": _rounded(self.weights[pairs]),
            "similarity": _rounded(self.similarity[pairs]) if looked else None,
            "answers": int(self.answered.sum()),
            "kept_own": int(self.kept.sum()),
            "revealed": {
                "receivers": len(gave[:, 0].unique()),
                "senders": len(gave[:, 1].unique()),
                "times": int(self.revealed.sum()),
                "examples": examples,
            },
        }


def acceptable(vectors: Tensor) -> Tensor:
    """Which uploads can be mixed: one whose square is not finite would spoil every mixture."""
    return torch.linalg.vector_norm(vectors, dim=1).isfinite()


def _rounded(values: Tensor) -> list[list[float | None]]:
    return [[None if math.isnan(v) else round(v, 4) for v in row] for row in values.tolist()]


def judges_without_rows(method: ExchangeMethod, federation: Federation) -> str | None:
    """The name of a task that cannot judge its answers because it has no validation rows."""
    if not method.judges or not len(federation.train.y):  # a coordinator has nobody's rows
        return None
    empty = (federation.validation.counts == 0).nonzero()
    return federation.names[int(empty[0])] if len(empty) else None
