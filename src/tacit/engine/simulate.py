"""Rounds on one machine: the cohort's tasks are trained together, in chunks that fit memory.

A method's `client` runs for one task; `torch.func.vmap` runs it for a chunk of them. Per round the
work and the memory grow with the cohort, not with the number of tasks.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from tacit import metrics
from tacit.data.federation import Federation, Part, Rows
from tacit.engine import evaluate
from tacit.engine.alone import trained_alone
from tacit.engine.rehearse import activations, contribution, first_board, heads_of
from tacit.engine.stopping import ASTRAY, astray, no_better_for
from tacit.engine.store import REMEDY, Store, in_the_place_of, lost
from tacit.engine.votes import Votes
from tacit.files import reading
from tacit.local.batches import Batches, all_rows, draw
from tacit.local.chunks import SLOTS, Chunk, chunk_bytes, chunks, slots_for, widths_of
from tacit.local.dropout import own_chance
from tacit.local.flat import FlatModel
from tacit.local.threads import side_by_side, threads_for
from tacit.local.together import Together, fixed
from tacit.methods.base import BillboardMethod, Board, Method, OnBillboard, RelatedMethod, State
from tacit.methods.server import Server, shortened
from tacit.privacy.channel import BudgetSpent, Channel, Collection
from tacit.privacy.curator import Curated
from tacit.randomness import Randomness, scramble

CURVE_POINTS = 20
CURVE_TASKS = 1000
"""The learning curve is drawn from at most so many tasks: looking must not cost more than doing."""
SAVE_EVERY_SECONDS = 1.0
CHUNK_COSTS = 1 << 17
"""A chunk costs as much as so many numbers, whatever it holds: every operation takes its time."""
TRACED_GRADIENTS = 64
"""A client step with more gradients takes long anyway, and tracing it would take longer; one that
needs none is a few large operations."""
TRACED_SIZE = 1 << 19
"""Larger models spend their time in their operations, not between them."""
OnRound = Callable[[int, dict[str, Any]], None]
Public = tuple[dict[str, Tensor], Any, Any]
"""The billboard as tensors, in the order of `Board`'s fields."""


class Simulation:
    """A method on a federation: the billboard, all tasks' states, and the loop over rounds."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        model: FlatModel,
        channel: Channel,
        store: Store,
        rounds: int,
        randomness: Randomness,
        device: torch.device,
        server: Server,
        *,
        trace: bool = True,
    ) -> None:
        self._votes = votes = Votes.of(method, federation)
        federation = votes.before(federation)
        self.federation, self.method, self.model = federation, method, model
        self.channel, self.store, self.rounds = channel, store, rounds
        self.device, self.randomness, self._server = device, randomness, server
        relation = channel.relation
        self._places = model.start.new_zeros((len(federation), 0))
        if relation is not None:
            self._places = relation.places
        self._holds, self._per_holder = heads_of(federation, method, model, device)
        start = server.start(first_board(method, model, relation))
        self.board = Board(start | votes.blank(model.start))
        self.curve: list[dict[str, Any]] = []
        self.diverged = torch.zeros(len(federation), dtype=torch.bool, device=device)
        """Tasks whose own training was not finite: they contributed zeros, and are left alone."""
        self._rescued: tuple[Tensor, Tensor, Tensor] | None = None
        self.stopped: str | None = None
        # A silo has one task, which is not worth it: tracing takes as long as hundreds of steps.
        traced = trace and 0 < method.gradients <= TRACED_GRADIENTS and model.size <= TRACED_SIZE
        self._at_most = None if trace else 1
        solves = device.type == "cpu" and not method.gradients
        self._abreast = torch.get_num_threads() if solves else 1
        self._activations = activations(model, federation, method, device)
        left = votes.rounds_after(rounds)
        self.stages = (*votes.stages, *method.stages(federation.kind, left))
        # What is published, and what a new task starts from, is fixed before any rows are seen.
        public, sums = self._public(self.board), 1 if relation is None else relation.sums
        self._clients: dict[str, Together] = {}
        self._publish: dict[str, Callable[..., dict[str, Tensor]]] = {}
        self._sizes: dict[str, int] = {}
        for stage in dict.fromkeys(self.stages):
            together = Together(
                partial(self._client, stage), trace=traced, single=method.channel != "billboard"
            )
            if traced:  # for further runs with this model; it holds on to this one
                together = model.traced.setdefault(("client", method, votes, stage), together)
            self._clients[stage] = together
            size = self._sizes[stage] = contribution(self, stage)
            moments = channel.moments
            mean = model.start.new_zeros(sums * size if moments is None else moments.size(size))
            self._publish[stage] = fixed(partial(self._next, stage), public, mean)

        def first(public: Public, place: Tensor) -> State:
            return method.state(model, self._read(Board(*public), place))

        state = fixed(first, public, self._places[0])
        # Without a relation all newcomers are alike, and one state serves them all.
        self._fresh = state if relation is None else vmap(state, in_dims=(None, 0))

    def skip_tracing(self) -> None:
        """Run client steps as they are: in a few rounds, tracing takes longer than it saves."""
        for client in self._clients.values():
            client.traces = False

    def run(
        self,
        *,
        patience: int | None = None,
        epsilon: Callable[[int], float | None] = lambda releases: None,
        on_round: OnRound = lambda round, point: None,
    ) -> None:
        """All rounds that are left. `patience` evaluations without a better loss end the run."""
        every, saved = max(1, self.rounds // CURVE_POINTS), time.monotonic()
        while True:
            round, seen = self.board.round, self.curve[-1]["round"] if self.curve else -1
            if seen < round and (round % every == 0 or round == self.rounds):
                self._look(epsilon)
            so_far = {"epsilon": epsilon(self.channel.ledger.before(round))}
            on_round(round, self.curve[-1] | so_far)
            if round == self.rounds:
                break
            if patience is not None and no_better_for(self.curve) >= patience:
                self.stopped = f"validation loss did not improve for {patience} evaluations"
                break
            try:
                after = self._round(self.board)
                if astray(self._votes.without(after)):
                    self.stopped = ASTRAY.format(round + 1)
                    break
                self.board = after
                self._in_units()
            except BudgetSpent as reason:
                self.stopped = str(reason)
                break
            # Without a seed, a round that is lost would have to be paid for again.
            late = time.monotonic() - saved > SAVE_EVERY_SECONDS
            save = late or self.careful or self.board.round == self.rounds
            self.store.settle(self._saved, self._notes, save=save)
            saved = time.monotonic() if save else saved
        if self.method.settles:
            self._settle()
        self._rescue()

    def _rescue(self) -> None:
        """Tasks that could not be trained end with the best model that they find alone."""
        tasks = self.diverged.nonzero().squeeze(1)
        if len(tasks) and not self.method.personal_is_public:
            place = torch.full_like(self.diverged, -1, dtype=torch.int64)
            place[tasks] = torch.arange(len(tasks), device=self.device)
            self._rescued = (place, *trained_alone(self, tasks))

    def _settle(self) -> None:
        """Every task's own step after the last round: nothing leaves it any more."""
        everyone = torch.arange(len(self.federation), device=self.device)
        for tasks, states in self.settled(self._public(self.shown), everyone):
            self.store.put(tasks, states)
        self.store.settle(self._saved, self._notes, save=True)

    def settled(self, public: Public, tasks: Tensor) -> Iterator[tuple[Tensor, State]]:
        """The states of these tasks after their own step with the last billboard."""
        settle: Together = self.model.traced.setdefault(
            ("settle", self.method), Together(self._settled, trace=False)
        )
        train = self.federation.train

        def step(chunk: Chunk) -> tuple[Tensor, State]:
            some, places = chunk.filled, self._places[chunk.filled]
            with threads_for(self.in_flight(chunk), len(some)):
                before = self.store.take(some, self._newcomers(public, places))
                after = settle(public, (before, all_rows(train, some, chunk.width), places))
                return chunk.tasks, self._first(chunk, self._sound(chunk, before, after)[0])

        yield from side_by_side(step, self.chunks(tasks, train, None), self._abreast)

    @property
    def careful(self) -> bool:
        """Whether every round is saved as soon as it is over."""
        return self.randomness.secret

    @property
    def curated(self) -> Curated | None:
        """Who curates, if it is not one machine that sees everything."""
        return None if self.channel.curator is None else self.channel.curator.about

    @property
    def _saved(self) -> Board:
        """What a checkpoint keeps beside the tasks' states."""
        return self.board

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `_saved` kept beside the billboard."""

    @property
    def _notes(self) -> dict[str, Any]:
        return {
            "curve": self.curve,
            "dropped": self.channel.dropped,
            "clip": self.channel.clip if math.isfinite(self.channel.clip) else None,
            "diverged": self.diverged.nonzero().squeeze(1).tolist(),
            "ledger": self.channel.ledger.mark,
        }

    def resume(self) -> None:
        """Go on from the last saved round of the store's folder, if there is one."""
        found = self.store.reopen()
        if found is None:
            if self.careful and self.channel.ledger.has(1):  # the first round was saved before
                raise lost(self.store.journal, "rounds were released")
            return
        board, notes = found
        with reading(self.store.journal, REMEDY):
            if board.round > self.rounds:
                raise ValueError(f"its round is {board.round} of {self.rounds}")
            self.board = in_the_place_of(self.board, board).to(self.device)
            self._restore(board.tensors)
            self._in_units()
            self.curve = [{**point, "round": int(point["round"])} for point in notes["curve"]]
            self.channel.dropped = int(notes["dropped"])
            self.channel.clip = math.inf if notes["clip"] is None else float(notes["clip"])
            self.diverged[notes["diverged"]] = True
            self._remember(notes)

    def _remember(self, notes: dict[str, Any]) -> None:
        """Take back what a kind of simulation adds to `_notes`."""

    def _round(self, board: Board) -> Board:
        """One round: the only code that sees tasks' contributions, and it hands them on unread."""
        method = self.method
        speaks = isinstance(method, OnBillboard)
        stage = self.stage_at(board.round)
        collection = self.channel.open(board.round, self.rounds, stage) if speaks else None
        public, cohort = self._public(board), self._cohort(board.round)
        self._collect(board, public, cohort, collection)
        if collection is None:
            return dataclasses.replace(board, round=board.round + 1)
        clip = self.channel.unit  # before it follows the quantile
        mean = collection.publishable(self.size_at(board.round)).to(self.device)
        if isinstance(method, BillboardMethod) and method.shorten and not stage:
            mean = shortened(mean, clip)
        with threads_for(mean.numel()):
            return Board(self._publish[stage](public, mean), board.round + 1)

    def stage_at(self, round: int) -> str:
        """What this round is for; after the last round it is over, and nothing new begins."""
        return self.stages[min(round, len(self.stages) - 1)]

    def size_at(self, round: int) -> int:
        """The length of a contribution in this round."""
        return self._sizes[self.stage_at(round)]

    @property
    def contribution_size(self) -> int:
        """The length of the longest contribution."""
        return max(self._sizes.values())

    def _cohort(self, round: int) -> Tensor:
        return torch.from_numpy(self.channel.cohort(round)).to(self.device)

    def _collect(
        self, board: Board, public: Public, cohort: Tensor, collection: Collection | None
    ) -> None:
        """Have the cohort train, and hand on what it contributes."""
        for chunk, states, contributions in self.trained(board, public, cohort):
            if collection is not None:
                with threads_for(contributions.numel(), len(chunk.filled)):
                    collection.add(contributions, chunk.filled, len(chunk.tasks))
            self.store.put(chunk.tasks, states)

    def trained(
        self, board: Board, public: Public, cohort: Tensor
    ) -> Iterator[tuple[Chunk, State, Tensor]]:
        """The client steps of a cohort: chunks, their tasks' states, and what is sent.

        What fills a chunk is still among what is sent: it is bounded with the others, in the shape
        that every chunk has, and left out of the sum.
        """
        method, train, keys = self.method, self.federation.train, self.federation.keys
        shuffle, chance = (self.randomness.key(use, board.round) for use in ("batches", "layers"))
        clients = self._clients[self.stage_at(board.round)]
        voting = self.stage_at(board.round) in self._votes.stages

        def step(chunk: Chunk) -> tuple[Chunk, State, Tensor]:
            some = chunk.filled
            with threads_for(self.in_flight(chunk), len(some)):
                if voting:
                    batches = self._votes.known(self.federation, some)
                elif method.rows is None:
                    batches = all_rows(train, some, chunk.width, method.steps)
                else:
                    own = scramble(shuffle, keys[some])
                    batches = draw(train, some, method.steps, method.rows, own)
                places, holds = self._places[some], self._holds[some]
                own = scramble(chance, keys[some])
                states = self.store.take(some, self._newcomers(public, places))
                after, sent = clients(public, (states, batches, places, holds, own))
                after, sent = self._sound(chunk, states, after, sent)
                return chunk, self._first(chunk, after), sent

        each = self.chunks(cohort, train, 1 if voting else method.rows)
        yield from side_by_side(step, each, self._abreast)

    def _sound(
        self, chunk: Chunk, before: State, after: State, sent: Tensor | None = None
    ) -> tuple[State, Tensor]:
        """A task whose training diverged keeps its state; what it sends is dropped, and counted."""
        values = [*after.values(), *(() if sent is None else (sent,))]
        sound = torch.stack([value.isfinite().all(dim=1) for value in values]).all(dim=0)
        self.diverged[chunk.filled] |= ~sound
        sound = sound.unsqueeze(1)
        kept = {name: torch.where(sound, value, before[name]) for name, value in after.items()}
        return kept, torch.where(sound, values[-1], torch.nan)

    def _in_units(self) -> None:
        """Rows in common units, as soon as those are on the billboard."""
        if self.stage_at(self.board.round) not in self._votes.stages:
            self.federation = self._votes.applied(self.federation, self.board)

    def _first(self, chunk: Chunk, states: State) -> State:
        """Without what fills the chunk."""
        return {name: value[: len(chunk.tasks)] for name, value in states.items()}

    def _public(self, board: Board) -> Public:
        noise = torch.tensor(self.channel.noise_at(min(board.round, self.rounds - 1)))
        round = torch.tensor(board.round)
        return board.tensors, round.to(self.device), noise.to(self.device)

    def _next(self, stage: str, public: Public, mean: Tensor) -> dict[str, Tensor]:
        """The next billboard: where the method would go, taken as the server's rule takes it."""
        board = Board(*public, stage)
        if stage in self._votes.stages:
            return self._votes.counted(board, mean)
        if self._per_holder is not None and self._sizes[stage] == self.model.size:
            mean = (mean.reshape(-1, self.model.size) * self._per_holder).reshape(-1)
        own = self._votes.without(board)
        return self._server.step(own, self.method.publish(own, mean)) | self._votes.kept(board)

    def _read(self, board: Board, place: Tensor) -> Board:
        """The billboard as the task in this place reads it."""
        return self.method.read(board, place) if isinstance(self.method, RelatedMethod) else board

    def _newcomers(self, public: Public, places: Tensor) -> State:
        return self._fresh(public, places if self.channel.relation is not None else places[0])

    def _client(
        self, stage: str, public: Public, own: tuple[State, Batches, Tensor, Tensor, Tensor]
    ) -> tuple[State, Tensor]:
        """What runs for one task: it is handed the billboard, its own state, its own rows."""
        state, batches, place, holds, key = own
        if stage in self._votes.stages:
            return state, self._votes.cast(Board(*public, stage), batches.x[0])
        board = self._read(Board(*public, stage), place)
        with own_chance(key):
            state, sent = self.method.client(self.model, board, state, batches)
        if self._per_holder is not None and len(sent) == self.model.size:
            # About heads that it does not work on, a task has nothing to say.
            sent = sent * self.model.spread(sent.new_ones(()), holds)
        return state, sent

    def _settled(self, public: Public, own: tuple[State, Batches, Tensor]) -> State:
        state, batches, place = own
        board = self._read(Board(*public), place)
        return self.method.settle(self.model, board, state, batches)

    def chunks(self, tasks: Tensor, rows: Rows, batch: int | None) -> Iterator[Chunk]:
        """These tasks in chunks whose shape says nothing about the others (`local.chunks`)."""
        widths = widths_of(rows.count(tasks)) if batch is None else batch
        return chunks(tasks, widths, lambda width: self.slots(width, ragged=batch is None))

    def slots(
        self, width: int, *, ragged: bool, models: int = 1, expected: float | None = None
    ) -> int:
        """How many tasks with so many rows are computed at a time.

        `expected` tasks take part (by default as many as the sampler draws), with so many models.
        """
        if self._at_most is not None:
            return self._at_most
        method, of = self.method, len(self.federation)
        expected = self.channel.sampler.expected(of) if expected is None else expected
        row = max(1, math.prod(self.federation.input_shape)) * method.steps + self._activations
        numbers = models * (width * row + method.workspace(width, self.model.size))
        limit = chunk_bytes(self.device) // (4 * numbers)
        if self.method.channel != "billboard" and limit < SLOTS and self.device.type == "cpu":
            return 1  # see `Together`, `single`: nobody is promised anything
        return slots_for(expected, of, limit, ragged=ragged, overhead=CHUNK_COSTS // numbers)

    def in_flight(self, chunk: Chunk) -> int:
        """How many numbers a local step of this chunk has in work."""
        row = max(1, math.prod(self.federation.input_shape))
        return len(chunk.filled) * chunk.width * (row + self._activations)

    def personal(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers these tasks predict with, stacked."""
        places = self._places[tasks]
        w, buffers = self._models(
            self.store.take(tasks, self._newcomers(self._public(self.shown), places)), places
        )
        if self._rescued is None:
            return w, buffers
        place, own_w, own_buffers = self._rescued
        mine = place[tasks]
        alone = (mine >= 0).unsqueeze(1)
        return torch.where(alone, own_w[mine], w), torch.where(alone, own_buffers[mine], buffers)

    def newcomer(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """What the billboard alone gives these tasks: the model of one that never took part."""
        places = self._places[tasks]
        fresh = self._newcomers(self._public(self.shown), places)
        shape = (len(tasks), -1)
        return self._models({name: value.expand(shape) for name, value in fresh.items()}, places)

    @property
    def shown(self) -> Board:
        """The billboard that tasks end with."""
        return self.shown_of(self.board)

    def shown_of(self, board: Board) -> Board:
        """A billboard as tasks would end with it."""
        return self._server.shown(board)

    def _models(self, states: State, places: Tensor) -> tuple[Tensor, Tensor]:
        board = self.shown
        personal = vmap(lambda s, p: self.method.personal(self.model, self._read(board, p), s))
        return personal(states, places), states["buffers"]

    def outputs(
        self, part: Part, tasks: Tensor, personal: evaluate.Personal | None = None
    ) -> Tensor:
        """Raw outputs of every task's own model on its own rows."""
        rows, models = self.federation.part(part), personal or self.personal
        return evaluate.outputs(self.model, models, rows, tasks, self.seen_at_once)

    def seen_at_once(self, width: int) -> int:
        """How many models predict at a time, each on so many rows."""
        row = math.prod(self.federation.input_shape) + 64 + self._activations
        return chunk_bytes(self.device) // (4 * max(width * row, 3 * self.model.size))

    @property
    def test_part(self) -> Part:
        """Where models are measured: test rows, or training rows if there are none."""
        return "test" if len(self.federation.test.y) else "train"

    def measure(
        self, part: Part, tasks: Tensor | None = None, personal: evaluate.Personal | None = None
    ) -> metrics.Metrics:
        """Scores of the personal models: not covered by the guarantee."""
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
        return metrics.evaluate_rows(federation.kind, out, rows, scale, federation.heads)

    def _look(self, epsilon: Callable[[int], float | None]) -> None:
        """One point of the learning curve, on validation rows (training rows if there are none)."""
        part: Part = "validation" if len(self.federation.validation.y) else "train"
        tasks = None
        if len(self.federation) > CURVE_TASKS:
            step = len(self.federation) / CURVE_TASKS
            tasks = (torch.arange(CURVE_TASKS, device=self.device) * step).long()
        overall = self.measure(part, tasks).overall
        score = metrics.main_score(self.federation.kind, self.federation.heads)[0]
        self.curve.append(
            {
                "round": self.board.round,
                "loss": overall["loss"],
                score: overall[score],
                "epsilon": epsilon(self.channel.ledger.before(self.board.round)),
            }
        )
