"""Rounds: draw a cohort, ask it, sum, book, release, publish, and keep what must not be lost.

Whom a round asks is not known here. A simulation answers with its `Tasks`, a coordinator asks
silos. How a round goes depends on the channel: `Billboard` is below, `exchange.Exchange` beside.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tacit.engine.course import Course, Public
from tacit.engine.store import REMEDY, Store, in_the_place_of, lost
from tacit.files import reading
from tacit.local.threads import threads_for
from tacit.local.together import fixed
from tacit.methods.base import LARGEST, BillboardMethod, Board, OnBillboard
from tacit.methods.publishing import shortened
from tacit.privacy import Privacy
from tacit.privacy.accounting import growth
from tacit.privacy.channel import BudgetSpent, Collection
from tacit.privacy.curator import Curated
from tacit.privacy.reach import Reach

CURVE_POINTS = 20
SAVE_EVERY_SECONDS = 1.0
ASTRAY = (
    "the billboard diverged in round {}, and tasks keep the one before: use a smaller lr, or "
    "method auto, whose steps cannot diverge"
)
OnRound = Callable[[int, dict[str, Any]], None]
Draw = Callable[[int], Tensor]
"""The cohort of a round."""


class Sent(NamedTuple):
    """What part of a cohort contributes."""

    tasks: Tensor
    vectors: Tensor
    """One for each of the tasks, stacked."""
    count: int
    """The first so many are meant, and the others fill a chunk."""
    sizes: Tensor | None = None
    """How many rows each was trained on; on the billboard nobody is told."""
    bounded: bool = False
    """Whether tasks bounded their vectors themselves."""
    reach: Reach | None = None
    """Where in long vectors the numbers are, if vectors are short."""

    @property
    def whole(self) -> Tensor:
        """The vectors in their full length."""
        return self.vectors if self.reach is None else self.reach.whole(self.vectors)

    def add_to(self, collection: Collection) -> None:
        """Hand it on, unread."""
        if self.bounded:
            collection.add_bounded(self.vectors)
        else:
            with threads_for(self.vectors.numel(), len(self.tasks)):
                collection.add(self.vectors, self.tasks, self.count, self.reach)


class Asked(Protocol):
    """Those whom rounds ask, and who read the billboard after each."""

    def ask(self, board: Board, cohort: Tensor) -> Iterator[Sent]:
        """What the cohort contributes, in any order; who does not answer is left out."""
        ...

    def read(self, board: Board) -> None:
        """This is the billboard from now on."""

    def look(self, *, closely: bool) -> dict[str, Any]:
        """What is measured now, as far as it may be known here; `closely` if much hangs on it."""
        ...

    def finish(self) -> bool:
        """After the last round; returns whether there is anything new to save."""
        ...

    @property
    def notes(self) -> dict[str, Any]:
        """What a checkpoint keeps of them."""
        ...

    def remember(self, notes: dict[str, Any]) -> None:
        """Take back what `notes` were."""


class Strategy(ABC):
    """How a round goes on one channel."""

    def __init__(self, course: Course, asked: Asked) -> None:
        self.course, self.asked = course, asked

    @abstractmethod
    def round(self, board: Board, draw: Draw) -> Board:
        """One round: the billboard after it."""

    @property
    def kept(self) -> dict[str, Tensor]:
        """What a checkpoint keeps beside the billboard."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 (most keep nothing)
        """Take back what was kept."""

    @property
    def curated(self) -> Curated | None:
        """Who curates, if it is not one machine that sees everything."""
        curator = self.course.channel.curator
        return None if curator is None else curator.about


class Billboard(Strategy):
    """Contributions are summed, and the noisy mean is published."""

    def __init__(self, course: Course, asked: Asked) -> None:
        super().__init__(course, asked)
        channel, start = course.channel, course.model.start
        sums = 1 if channel.relation is None else channel.relation.sums
        public, moments = course.public(course.start), channel.moments
        # What is published is fixed before any rows are seen.
        self._publish: dict[str, Callable[..., dict[str, Tensor]]] = {}
        for stage, size in course.sizes.items():
            mean = start.new_zeros(sums * size if moments is None else moments.size(size))
            self._publish[stage] = fixed(partial(self._next, stage), public, mean)

    def round(self, board: Board, draw: Draw) -> Board:
        """The only code that sees tasks' contributions, and it hands them on unread."""
        course, method, channel = self.course, self.course.method, self.course.channel
        speaks, stage = isinstance(method, OnBillboard), course.stage_at(board.round)
        collection = channel.open(board.round, course.length, stage) if speaks else None
        if collection is not None:
            collection.expect(course.size_at(board.round))
        public, cohort = course.public(board), draw(board.round)
        for sent in self.asked.ask(board, cohort):
            if collection is not None:
                sent.add_to(collection)
        if collection is None:
            return dataclasses.replace(board, round=board.round + 1)
        clip = channel.unit  # before it follows the quantile
        mean = collection.publishable(course.size_at(board.round))
        if _diverged(Board({"mean": mean}, board.round)):  # nothing can be made of it: `run` stops
            nowhere = {name: value * torch.nan for name, value in board.tensors.items()}
            return Board(nowhere, board.round + 1)
        mean = mean.to(course.device)
        if isinstance(method, BillboardMethod) and method.shorten and not stage:
            mean = shortened(mean, clip)
        with threads_for(mean.numel()):
            return Board(self._publish[stage](public, mean), board.round + 1)

    def _next(self, stage: str, public: Public, mean: Tensor) -> dict[str, Tensor]:
        """The next billboard: where the method would go, taken as `Publishing` takes it."""
        course, votes, board = self.course, self.course.votes, Board(*public, stage)
        if stage in votes.stages:
            return votes.counted(board, mean)
        if course.per_holder is not None:
            mean = course.by_parameter(stage, mean, course.per_holder)
        own = votes.without(board)
        return course.publishing.step(own, course.method.publish(own, mean)) | votes.kept(board)


class Rounds:
    """The billboard, and the loop over rounds."""

    def __init__(
        self,
        strategy: Strategy,
        store: Store,
        *,
        draw: Draw | None = None,
        careful: bool = False,
    ) -> None:
        self.strategy, self.store, self._draw = strategy, store, draw or self.draw
        self.course, self._asked = strategy.course, strategy.asked
        # Without a seed, a round that is lost would have to be paid for again.
        self._careful = careful or self.course.randomness.secret
        self.board = self.course.start
        self.curve: list[dict[str, Any]] = []
        self.stopped: str | None = None
        self.broke_off = False
        """Whether it stopped for another reason than patience."""

    @property
    def shown(self) -> Board:
        """The billboard as tasks end with it."""
        return self.course.publishing.shown(self.board)

    def draw(self, round: int) -> Tensor:
        """The cohort of a round, as the sampler draws it."""
        return self.course.cohort(round)

    def run(
        self,
        *,
        patience: int | None = None,
        epsilon: Callable[[int], float | None] = lambda releases: None,
        on_round: OnRound = lambda round, point: None,
    ) -> None:
        """All rounds that are left. `patience` evaluations without a better loss end the run."""
        length = self.course.length
        every, saved = max(1, length // CURVE_POINTS), time.monotonic()
        while True:
            round, seen = self.board.round, self.curve[-1]["round"] if self.curve else -1
            if seen < round and (round % every == 0 or round == length):
                self.look(epsilon, closely=patience is not None)
            so_far = {"epsilon": epsilon(self.course.channel.ledger.before(round))}
            on_round(round, self.curve[-1] | so_far)
            if round == length:
                break
            if patience is not None and _no_better_for(self.curve) >= patience:
                self.stopped = f"validation loss did not improve for {patience} evaluations"
                break
            try:
                after = self.next_board()
                if _diverged(self.course.votes.without(after)):
                    self.stopped, self.broke_off = ASTRAY.format(round + 1), True
                    break
                self.publish(after)
            except BudgetSpent as reason:
                self.stopped, self.broke_off = str(reason), True
                break
            late = time.monotonic() - saved > SAVE_EVERY_SECONDS
            save = late or self._careful or self.board.round == length
            self.save(now=save)
            saved = time.monotonic() if save else saved
        if self._asked.finish():
            self.save()

    def next_board(self) -> Board:
        """One more round: what would be the billboard after it."""
        return self.strategy.round(self.board, self._draw)

    def publish(self, board: Board) -> None:
        """From now on this is the billboard."""
        self.board = board
        self._asked.read(board)

    def look(self, epsilon: Callable[[int], float | None], *, closely: bool = False) -> None:
        """One point of the learning curve."""
        round = self.board.round
        spent = epsilon(self.course.channel.ledger.before(round))
        self.curve.append({"round": round, **self._asked.look(closely=closely), "epsilon": spent})

    def save(self, *, now: bool = True) -> None:
        """End a round; `now` it also survives whatever comes next."""
        board = Board(self.board.tensors | self.strategy.kept, self.board.round)
        self.store.settle(board, self._notes() if self.store.keeps else {}, save=now)

    def _notes(self) -> dict[str, Any]:
        """What a checkpoint keeps beside states and the billboard."""
        channel = self.course.channel
        return {
            "curve": self.curve,
            "dropped": channel.dropped,
            "clip": channel.clip if math.isfinite(channel.clip) else None,
            **self._asked.notes,
            "ledger": channel.ledger.mark,
        }

    def resume(self) -> None:
        """Go on from the last saved round of the store's folder, if there is one."""
        found, channel = self.store.reopen(), self.course.channel
        if found is None:
            if self._careful and channel.ledger.has(1):  # the first round was saved before
                raise lost(self.store.journal, "rounds were released")
            return
        board, notes = found
        with reading(self.store.journal, REMEDY):
            if board.round > self.course.length:
                raise ValueError(f"its round is {board.round} of {self.course.length}")
            here = in_the_place_of(self.board, board).to(self.course.device)
            self.strategy.restore(board.tensors)
            self.publish(here)
            self.curve = [{**point, "round": int(point["round"])} for point in notes["curve"]]
            channel.dropped = int(notes["dropped"])
            channel.clip = math.inf if notes["clip"] is None else float(notes["clip"])
            self._asked.remember(notes)


def epsilon_so_far(
    made: Rounds, privacy: Privacy | None, rounds: int
) -> Callable[[int], float | None]:
    """ε after so many releases, for display while the run goes on."""
    channel = made.course.channel
    release = channel.release
    if release is None or privacy is None:
        return lambda releases: None
    repeats = len(channel.ledger) - made.board.round if channel.randomness.secret else 0
    longest, tasks = rounds + max(0, repeats), channel.tasks
    coming = [channel.release_at(min(t, rounds - 1)) or release for t in range(longest)]
    curve = growth(coming, privacy.delta_for(tasks), privacy.neighbours)
    return lambda releases: curve[min(releases, longest)] if math.isfinite(curve[-1]) else None


def _diverged(board: Board) -> bool:
    """Whether the billboard diverged; it is public, so nothing is told by stopping there."""
    ends = [end for v in board.tensors.values() if v.numel() for end in torch.aminmax(v)]
    return bool(ends) and not bool((torch.stack(ends).abs() < LARGEST).all())


def _no_better_for(curve: list[dict[str, Any]]) -> int:
    """Evaluations since the lowest loss."""
    losses = [point["loss"] for point in curve]
    return len(losses) - 1 - losses.index(min(losses))
