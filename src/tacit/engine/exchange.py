"""Rounds of the exchange on one machine: train, upload, let the curator answer, receive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.data.federation import Federation
from tacit.engine.attendance import Attendance
from tacit.engine.simulate import Public, Simulation
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


class Exchange(Simulation):
    """A simulation whose tasks talk through a curator."""

    method: ExchangeMethod

    def __init__(
        self, *given: Any, attendance: Attendance | None = None, trace: bool = True
    ) -> None:
        super().__init__(*given, trace=trace)
        tasks = len(self.federation)
        self._attendance = attendance or Attendance()
        self._since = self._attendance.since(self.federation).to(self.device)
        memory = self.method.memory(tasks)
        self.memory = {name: value.to(self.device) for name, value in memory.items()}
        self.record = Record.blank(tasks, self.device)
        self._kept_room = self.model.start.new_empty(0, self.contribution_size)
        self._receivers = Together(self._received, trace=False, single=True)
        self._rehearse_answer()

    def _round(self, board: Board) -> Board:
        cohort = self._cohort(board.round)
        cohort = cohort[self._since[cohort] <= board.round]
        public, trained = self._public(board), []
        vectors = self._room(len(cohort))
        for (tasks, *_), states, sent in self.trained(board, public, cohort):
            begin = sum(len(some) for some, _ in trained)
            vectors[begin : begin + len(tasks)] = sent[: len(tasks)]
            trained.append((tasks, states))
        if not trained:
            return dataclasses.replace(board, round=board.round + 1)
        cohort = torch.cat([tasks for tasks, _ in trained])
        stays = self._attendance.stays(cohort, board.round, self.randomness)
        finite = acceptable(vectors)
        self.channel.dropped += int((stays & ~finite).sum())
        here = stays & finite
        accepted = vectors if bool(here.all()) else vectors[here]
        sizes = self.federation.train.count(cohort[here])
        uploads = self._uploads(cohort[here], accepted, sizes, board.round)
        if len(uploads):
            trained = self._answered(public, self._curated(uploads), trained, here)
        for tasks, states in trained:
            self.store.put(tasks, states)
        return dataclasses.replace(board, round=board.round + 1)

    def _room(self, tasks: int) -> Tensor:
        """Where uploads are put: the same memory in every round, because fresh pages are slow."""
        if len(self._kept_room) < tasks:
            self._kept_room = self.model.start.new_empty(tasks, self.contribution_size)
        return self._kept_room[:tasks]

    def _uploads(self, tasks: Tensor, vectors: Tensor, sizes: Tensor, round: int) -> Uploads:
        heads, size = self.federation.heads, self.model.size
        holds = torch.ones(len(tasks), len(self.model.parts) - 1, device=self.device) > 0
        return Uploads(
            tasks,
            vectors,
            sizes,
            holds if heads is None else heads.holds[tasks],
            [*self.model.parts, slice(size, vectors.shape[1])],
            round,
            self.rounds,
        )

    def _curated(self, uploads: Uploads) -> Iterator[Tensor]:
        """The curator: what each client that is here is sent, [copies, length], in their order."""
        answer = self.method.answer(uploads, self.memory)
        self.memory |= answer.memory
        self.record.note(uploads, answer)
        return self._answers(uploads, answer)

    def _answered(
        self,
        public: Public,
        answers: Iterator[Tensor],
        trained: list[tuple[Tensor, State]],
        here: Tensor,
    ) -> list[tuple[Tensor, State]]:
        """The states of all tasks, after those that are here made something of their answers."""
        begin, after = 0, []
        for tasks, states in trained:
            there = here[begin : begin + len(tasks)].nonzero().squeeze(1)
            begin += len(tasks)
            if len(there):
                sent = [next(answers) for _ in range(len(there))]
                vectors = torch.stack(sent) if len(sent) > 1 else sent[0].unsqueeze(0)
                whole = len(there) == len(tasks)
                own = states if whole else {name: v[there] for name, v in states.items()}
                new = self.received(public, tasks[there], own, vectors)
                states = (
                    new
                    if whole
                    else {name: v.index_copy(0, there, new[name]) for name, v in states.items()}
                )
            after.append((tasks, states))
        return after

    def received(self, public: Public, tasks: Tensor, states: State, answers: Tensor) -> State:
        """What these tasks make of their answers [tasks, copies, length]."""
        return self._receivers(public, (states, answers, self._judged(tasks)))

    def _answers(self, uploads: Uploads, answer: Answer) -> Iterator[Tensor]:
        """The mixtures, for many clients at a time."""
        length = 4 * answer.weights.shape[0] * uploads.vectors.shape[1]
        many = max(1, chunk_bytes(self.device) * MIXED // max(1, length))
        for receivers in torch.arange(len(uploads), device=self.device).split(many):
            yield from mixed(answer.weights, uploads, receivers)

    def _judged(self, tasks: Tensor) -> Batches:
        """All validation rows of these tasks as one batch, if clients judge with them."""
        if self.method.judges:
            rows = self.federation.validation
            return all_rows(rows, tasks, int(widths_of(rows.count(tasks)).max()))
        none = torch.zeros(len(tasks), 0, device=self.device)
        return Batches(none, none, none)

    def _received(self, public: Public, own: tuple[State, Tensor, Batches]) -> State:
        state, vectors, rows = own
        return self.method.receive(self.model, Board(*public), state, vectors, rows)

    def _rehearse_answer(self) -> None:
        """Try the curator and `receive` on blank uploads, so that errors come before work."""
        counts = self.federation.train.counts  # at a silo, only its own rows are there
        tasks = counts.nonzero().squeeze(1)[:2]
        blank = self.model.start.new_zeros(len(tasks), self.contribution_size)
        uploads = self._uploads(tasks, blank, counts[tasks], 0)
        answers = self._answers(uploads, self.method.answer(uploads, self.memory))
        fresh = self.method.state(self.model, self.board)
        states = {name: value.expand(len(tasks), *value.shape) for name, value in fresh.items()}
        here = torch.ones(len(tasks), dtype=torch.bool, device=self.device)
        self._answered(self._public(self.board), answers, [(tasks, states)], here)

    @property
    def _saved(self) -> Board:
        kept = {
            f"{CURATOR}{name}": value for name, value in (self.memory | vars(self.record)).items()
        }
        return Board(self.board.tensors | kept, self.board.round)

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        kept = {
            name.removeprefix(CURATOR): value.to(self.device)
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
    """Whose upload can be mixed: one whose square is no number would spoil all it goes into."""
    return torch.linalg.vector_norm(vectors, dim=1).isfinite()


def _rounded(values: Tensor) -> list[list[float | None]]:
    return [[None if math.isnan(v) else round(v, 4) for v in row] for row in values.tolist()]


def judges_without_rows(method: ExchangeMethod, federation: Federation) -> str | None:
    """The name of a task that cannot judge its answers because it has no validation rows."""
    if not method.judges:
        return None
    empty = (federation.validation.counts == 0).nonzero()
    return federation.names[int(empty[0])] if len(empty) else None
