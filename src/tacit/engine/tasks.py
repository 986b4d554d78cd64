"""Tasks at work: their client steps in chunks that fit memory, their states, their own measuring.

A method's `client` runs for one task; `torch.func.vmap` runs it for a chunk of them. Per round the
work and the memory grow with the cohort, not with the number of tasks. A silo has one task.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from tacit import metrics
from tacit.data.federation import Federation, Part, Rows
from tacit.engine import evaluate
from tacit.engine.alone import trained_alone
from tacit.engine.blend import Blend
from tacit.engine.course import Course, Public
from tacit.engine.foresight import Foresight
from tacit.engine.rounds import Sent
from tacit.engine.store import Store
from tacit.local.batches import Batches, all_rows, draw
from tacit.local.chunks import SLOTS, Chunk, chunk_bytes, chunks, slots_for, widths_of
from tacit.local.threads import side_by_side, threads_for
from tacit.local.together import Together
from tacit.methods.base import Board, State
from tacit.privacy.reach import Reach
from tacit.randomness import scramble

CURVE_TASKS, CURVE_NUMBERS = 1000, 1 << 27
"""The learning curve is drawn from at most so many tasks, and so many parameters of them: looking
must not cost more than doing."""
GLANCE = 1 << 24
"""Nor from more numbers in work, parameters among them: with a small network that is some three
hundred rows."""
CHUNK_COSTS = {"cpu": 1 << 17, "cuda": 1 << 24}
"""A chunk costs as much as so many numbers, whatever it holds: every operation takes its time. A
GPU needs a hundred networks at once to be busy."""


class Tasks:
    """All tasks whose rows are here, with their states and the billboard that they last read."""

    def __init__(self, course: Course, federation: Federation, store: Store) -> None:
        self.course, self.store = course, store
        self.federation = course.votes.before(federation)
        self.method, self.model = course.method, course.model
        self.device, self.randomness = course.device, course.randomness
        self.board = course.start
        self.diverged = torch.zeros(len(federation), dtype=torch.bool, device=self.device)
        """Tasks whose own training was not finite: they contributed zeros, and are left alone."""
        self.foresight: Foresight | None = None
        """Who draws cohorts, if rounds that come next can be looked at."""
        self._rescued: tuple[Tensor, Tensor, Tensor] | None = None
        self._at_most = 1 if course.one_task else None
        solves = self.device.type == "cpu" and not self.method.gradients
        self.abreast = torch.get_num_threads() if solves else 1

    @property
    def learns(self) -> bool:
        """Whether tasks have models of their own that rounds go on with."""
        return not self.method.settles and set(self.store.holds) > {"buffers"}

    def ask(self, board: Board, cohort: Tensor) -> Iterator[Sent]:
        """Have the cohort train; their states count once the round is settled."""
        foresight = self.foresight if self.device.type == "cuda" else None
        if foresight is not None:
            foresight.mark()
        for chunk, states, sent, reach in self._train(board, self.course.public(board), cohort):
            yield Sent(chunk.filled, sent, len(chunk.tasks), reach=reach)
            self.store.put(chunk.tasks, states)
        if foresight is not None:
            foresight.look(board.round + 1)

    def read(self, board: Board) -> None:
        """Everybody reads the billboard; rows are in common units as soon as those are on it."""
        self.board = board
        if not self.course.votes_at(board.round):
            self.federation = self.course.votes.applied(self.federation, board)

    @property
    def notes(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the states."""
        return {"diverged": self.diverged.nonzero().squeeze(1).tolist()}

    def remember(self, notes: dict[str, Any]) -> None:
        """Take back what `notes` were."""
        self.diverged[notes["diverged"]] = True

    def look(self, *, closely: bool = False) -> dict[str, Any]:
        """One point of the learning curve, on validation rows (training rows if there are none)."""
        part: Part = "validation" if len(self.federation.validation.y) else "train"
        tasks, few = None, min(CURVE_TASKS, CURVE_NUMBERS // self.model.size)
        if not closely:
            rows = math.ceil(len(self.federation.part(part).y) / len(self.federation))
            work = rows * (self.course.activations + self._features) + self.model.size
            few = min(few, GLANCE // work)
        few = max(1, few)
        if len(self.federation) > few:
            step = len(self.federation) / few
            tasks = (torch.arange(few, device=self.device) * step).long()
        overall = self.measure(part, tasks).overall
        score = metrics.main_score(self.federation.kind, self.federation.heads)[0]
        return {"loss": overall["loss"], score: overall[score]}

    def train(
        self, board: Board, public: Public, cohort: Tensor
    ) -> Iterator[tuple[Chunk, State, Tensor]]:
        """The client steps of a cohort: chunks, their tasks' states, and what is sent.

        What fills a chunk is still among what is sent: it is bounded with the others, in the shape
        that every chunk has, and left out of the sum.
        """
        for chunk, states, sent, reach in self._train(board, public, cohort):
            yield chunk, states, sent if reach is None else reach.whole(sent)

    def _train(
        self, board: Board, public: Public, cohort: Tensor
    ) -> Iterator[tuple[Chunk, State, Tensor, Reach | None]]:
        """The same; where it says so, what is sent is short."""
        course, keys = self.course, self.federation.keys
        chance, batches_of = self.randomness.key("layers", board.round), self._batches(board.round)
        client = course.client(course.stage_at(board.round), public)
        fresh = course.newcomers(public)
        ready = self.foresight.batches(board.round, cohort) if self.foresight else None

        def step(numbered: tuple[int, Chunk]) -> tuple[Chunk, State, Tensor, Reach | None]:
            number, chunk = numbered
            some = chunk.filled
            with threads_for(self.in_flight(chunk), len(some)):
                batches = batches_of(chunk) if number or ready is None else ready
                places, holds = course.places[some], course.holds[some]
                own = scramble(chance, keys[some])
                states = self.store.take(some, fresh(places))
                after, sent, reach = client((states, batches, places, holds, own))
                after, sent = self._sound(chunk, states, after, sent)
                return chunk, _first(chunk, after), sent, reach

        each = enumerate(self._chunks_at(board.round, cohort))
        yield from side_by_side(step, each, self.abreast)

    def foreseen(self, round: int, cohort: Tensor) -> Batches | None:
        """What the first chunk of this cohort will train on, if its rows will be what they are now
        and all chunks have one width."""
        votes = self.course.votes_at(round - 1) or self.course.votes_at(round)
        if votes or self.method.rows is None:
            return None
        first = next(self._chunks_at(round, cohort), None)
        return None if first is None else self._batches(round)(first)

    def _chunks_at(self, round: int, cohort: Tensor) -> Iterator[Chunk]:
        """The cohort of this round."""
        rows = 1 if self.course.votes_at(round) else self.method.rows
        return self.chunks(cohort, self.federation.train, rows)

    def _batches(self, round: int) -> Callable[[Chunk], Batches]:
        """What a chunk of this round trains on."""
        course, method, federation = self.course, self.method, self.federation
        shuffle = self.randomness.key("batches", round)

        def batches(chunk: Chunk) -> Batches:
            some = chunk.filled
            if course.votes_at(round):
                return course.votes.known(federation, some)
            if method.rows is None:
                return all_rows(federation.train, some, chunk.width, method.steps)
            own = scramble(shuffle, federation.keys[some])
            return draw(federation.train, some, method.steps, method.rows, own)

        return batches

    def _sound(
        self, chunk: Chunk, before: State, after: State, sent: Tensor | None = None
    ) -> tuple[State, Tensor]:
        """A task whose training diverged keeps its state; what it sends is dropped, and counted."""
        values = [*after.values(), *(() if sent is None else (sent,))]
        ends = [end for value in values if value.shape[1] for end in value.aminmax(dim=1)]
        sound = torch.stack(ends).isfinite().all(dim=0)
        if not sound.is_cuda and bool(sound.all()):  # a GPU is not waited for
            return after, values[-1]
        self.diverged[chunk.filled] |= ~sound
        sound = sound.unsqueeze(1)
        kept = {name: torch.where(sound, value, before[name]) for name, value in after.items()}
        return kept, torch.where(sound, values[-1], torch.nan)

    def finish(self) -> bool:
        """Every task's own last step, if the method has one, and a model for those that need it."""
        if self.method.settles:
            self.settle()
        self.rescue()
        return self.method.settles

    def settle(self) -> None:
        """Every task's own step after the last round: nothing leaves it any more."""
        everyone = torch.arange(len(self.federation), device=self.device)
        for tasks, states in self.settled(self.course.public(self.shown), everyone):
            self.store.put(tasks, states)

    def settled(
        self, public: Public, tasks: Tensor, rows: Rows | None = None
    ) -> Iterator[tuple[Tensor, State]]:
        """The states of these tasks after their own step with the last billboard.

        `rows` are those of these tasks and no others, and a task may be there several times, with
        other rows each; then the states are those of the first, second … of them. By default rows
        are all that the run learns from, and the states those of the tasks with these numbers.
        """
        settle: Together = self.model.traced.setdefault(
            ("settle", self.method), Together(self._settled, trace=False)
        )
        course, number = self.course, tasks
        fresh = course.newcomers(public)
        if rows is None:
            rows, number = self.federation.train, torch.arange(len(self.federation)).to(tasks)
            some = tasks
        else:
            some = torch.arange(len(tasks)).to(tasks)

        def step(chunk: Chunk) -> tuple[Tensor, State]:
            with threads_for(self.in_flight(chunk), len(chunk.filled)):
                here = Chunk(number[chunk.tasks], number[chunk.filled], chunk.width)
                places = course.places[here.filled]
                before = self.store.take(here.filled, fresh(places))
                after = settle(public, (before, all_rows(rows, chunk.filled, chunk.width), places))
                return chunk.tasks, _first(here, self._sound(here, before, after)[0])

        each = self.chunks(some, rows, None, everyone=True)
        yield from side_by_side(step, each, self.abreast)

    def settled_models(self, rows: Rows, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """What these tasks would predict with, had they had these rows for their own step."""
        found: tuple[Tensor, Tensor] | None = None
        diverged = self.diverged.clone()
        for some, states in self.settled(self.course.public(self.shown), tasks, rows):
            made = self._models(states, self.course.places[tasks[some]])
            if found is None:
                w, buffers = (side.new_zeros(len(tasks), side.shape[1]) for side in made)
                found = w, buffers
            for side, new in zip(found, made, strict=True):
                side[some] = new
        self.diverged = diverged  # only tried
        assert found is not None
        return found

    def _settled(self, public: Public, own: tuple[State, Batches, Tensor]) -> State:
        state, batches, place = own
        board = self.course.read(Board(*public), place)
        return self.method.settle(self.model, board, state, batches)

    def rescue(self) -> None:
        """Tasks that could not be trained end with the best model that they find alone."""
        tasks = self.diverged.nonzero().squeeze(1)
        if len(tasks) and not self.method.personal_is_public:
            place = torch.full_like(self.diverged, -1, dtype=torch.int64)
            place[tasks] = torch.arange(len(tasks), device=self.device)
            rows = self.federation.train
            chunks = self.chunks(tasks, rows, None, everyone=True)
            alone = trained_alone(self.model, rows, tasks, chunks)
            self._rescued = (place, *alone)

    def chunks(
        self,
        tasks: Tensor,
        rows: Rows,
        batch: int | None,
        of: int | None = None,
        *,
        everyone: bool = False,
    ) -> Iterator[Chunk]:
        """These tasks in chunks whose shape says nothing about the others (`local.chunks`).

        `of` is how many there are to draw from, by default all tasks. After the last round nobody
        is drawn (`everyone`): chunks of a small cohort would hold one task each.
        """
        traced = self.method.gradients > 0
        widths = widths_of(rows.count(tasks), traced=traced) if batch is None else batch
        ragged = batch is None
        expected = len(self.federation) if everyone else None

        def slots(width: int) -> int:
            return self.slots(width, ragged=ragged, expected=expected, of=of)

        return chunks(tasks, widths, slots)

    def slots(
        self,
        width: int,
        *,
        ragged: bool,
        models: int = 1,
        expected: float | None = None,
        of: int | None = None,
    ) -> int:
        """How many tasks with so many rows are computed at a time.

        `expected` tasks take part (by default as many as the sampler draws), with so many models.
        """
        if self._at_most is not None and of is None:  # who asks persons has more than one
            return self._at_most
        method, of = self.method, len(self.federation) if of is None else of
        expected = self.course.channel.sampler.expected(of) if expected is None else expected
        row = self._features * method.steps + self.course.activations
        # Exact methods look at a row of an outcome over time once for each interval.
        times = self.federation.outputs if self.federation.kind == "survival" else 1
        numbers = models * (width * row + method.workspace(times * width, self.model.size))
        limit, costs = chunk_bytes(self.device) // (4 * numbers), CHUNK_COSTS[self.device.type]
        if self.method.channel != "billboard" and limit < SLOTS and self.device.type == "cpu":
            return 1  # see `Together`, `single`: nobody is promised anything
        return slots_for(expected, of, limit, ragged=ragged, overhead=costs // numbers)

    def in_flight(self, chunk: Chunk) -> int:
        """How many numbers a local step of this chunk has in work."""
        return len(chunk.filled) * chunk.width * (self._features + self.course.activations)

    @property
    def _features(self) -> int:
        """How many numbers a row has."""
        return max(1, math.prod(self.federation.input_shape))

    def personal(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers these tasks predict with, stacked."""
        w, buffers = self._models(self.states(tasks), self.course.places[tasks])
        if self._rescued is None:
            return w, buffers
        place, own_w, own_buffers = self._rescued
        mine = place[tasks]
        alone = (mine >= 0).unsqueeze(1)
        return torch.where(alone, own_w[mine], w), torch.where(alone, own_buffers[mine], buffers)

    def states(self, tasks: Tensor) -> State:
        """What these tasks keep to themselves, stacked."""
        places = self.course.places[tasks]
        fresh = self.course.newcomers(self.course.public(self.shown))
        return self.store.take(tasks, fresh(places))

    def newcomer(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """What the billboard alone gives these tasks: the model of one that never took part."""
        places = self.course.places[tasks]
        fresh = self.course.newcomers(self.course.public(self.shown))(places)
        shape = (len(tasks), -1)
        return self._models({name: value.expand(shape) for name, value in fresh.items()}, places)

    def joined(self, tasks: Tensor, batches: Batches) -> tuple[Tensor, Tensor]:
        """What the billboard gives tasks that never took part and have these rows."""
        board, read, method = self.shown, self.course.read, self.method

        def join(place: Tensor, rows: Batches) -> tuple[Tensor, Tensor]:
            seen = read(board, place)
            state = method.join(self.model, seen, rows)
            return method.personal(self.model, seen, state), state["buffers"]

        return vmap(join)(self.course.places[tasks], batches)

    @property
    def shown(self) -> Board:
        """The billboard as tasks end with it."""
        return self.course.publishing.shown(self.board)

    def _models(self, states: State, places: Tensor) -> tuple[Tensor, Tensor]:
        board, read = self.shown, self.course.read
        personal = vmap(lambda s, p: self.method.personal(self.model, read(board, p), s))
        return personal(states, places), states["buffers"]

    def outputs(
        self, part: Part, tasks: Tensor, personal: evaluate.Personal | None = None
    ) -> Tensor:
        """Raw outputs of every task's own model on its own rows."""
        rows, models = self.federation.part(part), personal or self.personal
        return evaluate.outputs(self.model, models, rows, tasks, self.seen_at_once)

    def seen_at_once(self, width: int) -> int:
        """How many models predict at a time, each on so many rows."""
        row = math.prod(self.federation.input_shape) + 64 + self.course.activations
        return chunk_bytes(self.device) // (4 * max(width * row, 3 * self.model.size))

    @property
    def test_part(self) -> Part:
        """Where models are measured: test rows, or training rows if there are none."""
        return "test" if len(self.federation.test.y) else "train"

    def measure(
        self,
        part: Part,
        tasks: Tensor | None = None,
        personal: evaluate.Personal | None = None,
        blend: Blend | None = None,
    ) -> metrics.Metrics:
        """Scores of the personal models, and of what is combined with them: not covered by ε."""
        federation = self.federation
        every = torch.arange(len(federation), device=self.device)
        chosen = every if tasks is None else tasks
        rows = federation.part(part)
        rows = rows if tasks is None else evaluate.select(rows, chosen)
        scale = federation.target_scale
        if scale is not None and tasks is not None:
            index = chosen.to(scale.shift.device)
            scale = dataclasses.replace(scale, shift=scale.shift[index], scale=scale.scale[index])
        out = self.outputs(part, chosen, personal)
        if blend is not None:
            out = blend(rows.x, out, chosen.repeat_interleave(rows.counts))
        return metrics.evaluate_rows(federation.kind, out, rows, scale, federation.heads)


def _first(chunk: Chunk, states: State) -> State:
    """Without what fills the chunk."""
    return {name: value[: len(chunk.tasks)] for name, value in states.items()}
