"""What everybody knows about a run before it begins: its stages, and what is computed in each.

A simulation, a coordinator and every silo make the same course from the same settings. No rows are
needed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from tacit.data.federation import Federation
from tacit.engine.rehearse import activations, blank_rows, first_board, heads_of
from tacit.engine.votes import Votes
from tacit.errors import TacitError
from tacit.local.batches import Batches
from tacit.local.dropout import own_chance
from tacit.local.flat import FlatModel
from tacit.local.reached import Reached
from tacit.local.together import Together, fixed
from tacit.methods.base import Board, Method, RelatedMethod, State
from tacit.methods.publishing import Publishing
from tacit.privacy.channel import Channel
from tacit.privacy.guarantee import Guarantee, Privacy, guarantee
from tacit.privacy.reach import Reach, turned

TRACED_GRADIENTS = 64
"""A client step with more gradients takes long anyway, and tracing it would take longer; one that
needs none is a few large operations."""
TRACED_SIZE = {"cpu": 1 << 16, "cuda": 1 << 19}
"""Larger models spend their time in their operations, not between them: on a processor, one of two
convolutions takes as long either way, and tracing it takes as long as a chunk of tasks."""
Public = tuple[dict[str, Tensor], Any, Any]
"""The billboard as tensors, in the order of `Board`'s fields."""
Own = tuple[State, Batches, Tensor, Tensor, Tensor]
"""What belongs to one task: its state, rows, place and heads, and a key for what it draws."""
After = tuple[State, Tensor, Reach | None]
"""The state after a client step, what is sent, and where in a long vector, if it is short."""


class Course:
    """A method's rounds: what a task computes in each stage, from which billboard."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        model: FlatModel,
        channel: Channel,
        rounds: int,
        publishing: Publishing,
        *,
        trace: bool = True,
    ) -> None:
        self.method, self.model, self.channel, self.length = method, model, channel, rounds
        self.randomness, self.publishing = channel.randomness, publishing
        self.device = device = model.start.device
        self.names, self.heads = federation.names, federation.heads
        self.of_persons = channel.of_persons
        """Whether persons contribute, and not tasks."""
        self.votes = votes = Votes.of(method, federation)
        relation = channel.relation
        self.places = model.start.new_zeros((len(federation), 0))
        if relation is not None:
            self.places = relation.places
        self.holds, self.per_holder = heads_of(federation, method, model, device)
        start = publishing.start(first_board(method, model, relation))
        self.start = Board(start | votes.blank(model.start))
        self.activations = activations(model, federation, method, device)
        left = votes.rounds_after(rounds)
        self.stages = (*votes.stages, *method.stages(federation.kind, left))
        # A silo has one task, which is not worth it: tracing takes as long as hundreds of steps.
        self.one_task = not trace
        traced = (
            trace
            and 0 < method.gradients <= TRACED_GRADIENTS
            and model.size <= TRACED_SIZE[device.type]
        )
        self.clients: dict[str, Together] = {}
        self.sizes: dict[str, int] = {}
        for stage in dict.fromkeys(self.stages):
            once = stage in votes.stages  # not worth tracing
            together = Together(
                partial(self._client, stage, model),
                trace=traced and not once,
                single=method.channel != "billboard",
            )
            if traced and not once:  # for further runs with this model; it holds on to this one
                together = model.traced.setdefault(("client", method, votes, stage), together)
            self.clients[stage] = together
            self.sizes[stage] = self._contribution(federation, stage)

        def first(public: Public, place: Tensor) -> State:
            return method.state(model, self.read(Board(*public), place))

        plain = relation is None and channel.moments is None and self.per_holder is None
        steps = plain and method.sends_only_steps
        self.reached = Reached.of(model) if steps else None
        """Where what a task sends has only numbers that its rows reach, and those are few."""

        # What a new task starts from is fixed before any rows are seen.
        state = fixed(first, self.public(self.start), self.places[0])
        # Without a relation all newcomers are alike, and one state serves them all.
        self._fresh = state if relation is None else vmap(state, in_dims=(None, 0))

    def client(self, stage: str, public: Public) -> Callable[[Own], After]:
        """The client step of a round, for tasks that are stacked."""
        whole, near = self.clients[stage], self._near(stage, public)

        def step(own: Own) -> After:
            rows = own[1]
            if near is not None and len(rows.x) == 1 and near.pays(rows):
                return near(own)
            return *whole(public, own), None

        return step

    def _near(self, stage: str, public: Public) -> Near | None:
        """For those whose rows reach little of the model; None if tasks keep more than that."""
        if self.reached is None or stage in self.votes.stages:
            return None
        keeps = self._fresh(public, self.places[0])
        if any(value.shape == (self.model.size,) for value in keeps.values()):
            return None
        return Near(self.reached, partial(self._client, stage), public)

    def stage_at(self, round: int) -> str:
        """What this round is for; after the last round it is over, and nothing new begins."""
        return self.stages[min(round, len(self.stages) - 1)]

    def votes_at(self, round: int) -> bool:
        """Whether tasks vote for common units in this round."""
        return self.stage_at(round) in self.votes.stages

    def cohort(self, round: int) -> Tensor:
        """Whom this round asks, as the sampler draws it; without a seed, others each time."""
        return torch.from_numpy(self.channel.cohort(round)).to(self.device)

    def size_at(self, round: int) -> int:
        """The length of a contribution in this round."""
        return self.sizes[self.stage_at(round)]

    @property
    def contribution_size(self) -> int:
        """The length of the longest contribution."""
        return max(self.sizes.values())

    def skip_tracing(self) -> None:
        """Run client steps as they are: in a few rounds, tracing takes longer than it saves."""
        for client in self.clients.values():
            client.traces = False

    def promise(
        self,
        federation: Federation,
        privacy: Privacy | None,
        *,
        seeded: bool,
        public: Iterable[str] = (),
        **more: Any,
    ) -> Guarantee:
        """The guarantee, read off the ledger; what is taken to be `public` is assumed as well."""
        channel = self.channel
        return guarantee(
            channel.ledger.releases(),
            channel=self.method.channel,
            privacy=privacy,
            tasks=len(federation),
            sampler=channel.sampler,
            clip=channel.clip,
            seeded=seeded,
            assumptions=(*federation.assumptions, *public),
            **more,
        )

    def public(self, board: Board) -> Public:
        """The billboard with its round and its noise, made where they are: for what comes from a
        CPU, a GPU would have to be waited for."""
        numbers = board.round, self.channel.noise_at(min(board.round, self.length - 1))
        round, noise = (torch.full((), number, device=self.device) for number in numbers)
        return board.tensors, round, noise

    def read(self, board: Board, place: Tensor) -> Board:
        """The billboard as the task in this place reads it."""
        return self.method.read(board, place) if isinstance(self.method, RelatedMethod) else board

    def newcomers(self, public: Public) -> Callable[[Tensor], State]:
        """What tasks start from with this billboard, by their places."""
        if self.channel.relation is not None:
            return partial(self._fresh, public)
        alike = self._fresh(public, self.places[0])
        return lambda places: alike

    def _contribution(self, federation: Federation, stage: str) -> int:
        """Try the client step of a stage on blank rows; the length of a contribution."""
        method, device = self.method, self.device
        few, y = blank_rows(federation, device)
        place, holds = self.places[:1].expand(2, -1), self.holds[:1].expand(2, -1)
        fresh = method.state(self.model, self.read(self.start, self.places[0]))
        blank = Batches(
            few.expand(2, method.steps, 2, *few.shape[1:]),
            y.expand(2, method.steps, *y.shape).clone(),
            torch.full((2, method.steps, 2), 0.5, device=device),
        )
        if stage in self.votes.stages:
            nobody = torch.zeros(2, dtype=torch.int64, device=device)
            blank = self.votes.known(federation, nobody)
        stacked = {name: value.expand(2, *value.shape) for name, value in fresh.items()}
        public, keys = self.public(self.start), torch.zeros_like(federation.keys[:1])
        states, sent = self.clients[stage].rehearse(
            public, (stacked, blank, place, holds, keys.expand(2))
        )
        if {k: v.shape[1:] for k, v in states.items()} != {k: v.shape for k, v in fresh.items()}:
            raise TacitError(
                f"{type(method).__name__}.client returns a state of another shape than `state`"
            )
        if sent.ndim != 2:
            raise TacitError(f"{type(method).__name__}.client must contribute one flat vector")
        return sent.shape[1]

    def _client(
        self, stage: str, model: FlatModel, public: Public, own: Own
    ) -> tuple[State, Tensor]:
        """What runs for one task: it is handed the billboard, its own state, its own rows."""
        state, batches, place, holds, key = own
        if stage in self.votes.stages:
            return state, self.votes.cast(Board(*public, stage), batches.x[0])
        board = self.read(Board(*public, stage), place)
        with own_chance(key):
            state, sent = self.method.client(model, board, state, batches)
        if self.per_holder is not None:
            # About heads that it does not work on, a task has nothing to say.
            held = self.model.spread(sent.new_ones(()), holds)
            sent = self.by_parameter(stage, sent, held)
        return state, sent

    def by_parameter(self, stage: str, sent: Tensor, factor: Tensor) -> Tensor:
        """What was sent, or summed, with its updates of the model times this [size]."""
        size = self.model.size
        updates = self.method.updates(stage, self.sizes.get(stage, len(sent)), size)
        if self.channel.relation is not None:
            updates *= self.channel.relation.sums
        head, tail = sent[: updates * size], sent[updates * size :]
        return torch.cat([(head.reshape(-1, size) * factor).reshape(-1), tail])


class Near:
    """The client step of one task at a time, with what its rows reach of a long model."""

    def __init__(
        self,
        reached: Reached,
        client: Callable[[FlatModel, Public, Own], tuple[State, Tensor]],
        public: Public,
    ) -> None:
        self.pays, self._reached, self._client = reached.pays, reached, client
        tensors, *self._numbers = public
        size, table = reached.model.size, (reached.height, reached.words)
        self._long = {
            name: turned(value, *table) for name, value in tensors.items() if value.shape == (size,)
        }
        self._others = {name: v for name, v in tensors.items() if name not in self._long}

    def __call__(self, own: Own) -> After:
        """Of one task [1, ...]; what it sends is short."""
        state, batches, place, holds, key = own
        reach, x = self._reached.by(batches.x)
        model = self._reached.within(reach)
        tensors = {name: reach.short(value) for name, value in self._long.items()}
        step = vmap(partial(self._client, model), in_dims=(None, 0), randomness="error")
        public = tensors | self._others, *self._numbers
        return *step(public, (state, batches._replace(x=x), place, holds, key)), reach
