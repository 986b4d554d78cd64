"""A run in one process: all tasks are here, and rounds ask them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit.federation import Federation
from tacit.methods.base import Board
from tacit.methods.exchange import ExchangeMethod
from tacit.privacy.channel import Channel
from tacit.privacy.curator import Curated
from tacit.runtime.attendance import Attendance
from tacit.runtime.course import Course
from tacit.runtime.exchange import Exchange, Receiving
from tacit.runtime.rounds import Billboard, OnRound, Rounds
from tacit.runtime.store import Store
from tacit.runtime.tasks import Tasks
from tacit.secure.settings import Secure


class Simulation:
    """A method on a federation: its tasks, and its rounds."""

    def __init__(
        self,
        course: Course,
        federation: Federation,
        store: Store,
        *,
        attendance: Attendance | None = None,
        curator: Secure | None = None,
    ) -> None:
        self.course, self.tasks = course, Tasks(course, federation, store)
        self.method, self.model = course.method, course.model
        self.device, self.randomness = course.device, course.randomness
        self.personal, self.newcomer = self.tasks.personal, self.tasks.newcomer
        self.measure, self.outputs = self.tasks.measure, self.tasks.outputs
        self.exchange: Exchange | None = None
        """Where tasks talk through a curator, what that knows."""
        if isinstance(course.method, ExchangeMethod):
            self.exchange = _exchange(course, Receiving(self.tasks, attendance), curator)
        strategy = self.exchange or Billboard(course, self.tasks)
        self.rounds = Rounds(course, store, strategy, self.tasks)

    def run(
        self,
        *,
        patience: int | None = None,
        epsilon: Callable[[int], float | None] = lambda releases: None,
        on_round: OnRound = lambda round, point: None,
    ) -> None:
        """All rounds that are left, then every task's own last step."""
        self.rounds.run(patience=patience, epsilon=epsilon, on_round=on_round)
        if self.method.settles:
            self.tasks.settle()
            self.rounds.save()
        self.tasks.rescue()

    def resume(self) -> None:
        """Go on from the last saved round, if there is one."""
        self.rounds.resume()

    @property
    def board(self) -> Board:
        return self.rounds.board

    @property
    def shown(self) -> Board:
        """The billboard as tasks end with it."""
        return self.rounds.shown

    @property
    def federation(self) -> Federation:
        return self.tasks.federation

    @property
    def channel(self) -> Channel:
        return self.course.channel

    @property
    def curve(self) -> list[dict[str, Any]]:
        return self.rounds.curve

    @property
    def stopped(self) -> str | None:
        """Why the run ended before its last round."""
        return self.rounds.stopped

    @property
    def curated(self) -> Curated | None:
        """Who curates, if it is not one machine that sees everything."""
        return self.rounds.strategy.curated


def _exchange(course: Course, asked: Receiving, curator: Secure | None) -> Exchange:
    if curator is None:
        return Exchange(course, asked)
    from tacit.runtime.secure_exchange import SecureExchange  # needs tacit[secure]

    return SecureExchange(course, asked, curator)
