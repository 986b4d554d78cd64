"""A run in one process: all tasks are here, and rounds ask them."""

from __future__ import annotations

from typing import Any

import torch

from tacit.data.federation import Federation
from tacit.engine.attendance import Attendance
from tacit.engine.course import Course
from tacit.engine.exchange import AnsweredTasks, Exchange
from tacit.engine.foresight import Foresight
from tacit.engine.persons import Persons
from tacit.engine.rounds import Billboard, Rounds
from tacit.engine.secure_exchange import SecureExchange
from tacit.engine.store import Store
from tacit.engine.tasks import Tasks
from tacit.methods.base import Board
from tacit.methods.exchange import ExchangeMethod
from tacit.privacy.channel import Channel
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
        self.course = course
        self.method, self.model = course.method, course.model
        self.device, self.randomness = course.device, course.randomness
        self.exchange: Exchange | None = None
        """Where tasks talk through a curator, what that knows."""
        if isinstance(course.method, ExchangeMethod):
            self.tasks = tasks = AnsweredTasks(course, federation, store, attendance)
            self.exchange = _exchange(course, tasks, curator)
        else:
            self.tasks = tasks = Tasks(course, federation, store)
            tasks.foresight = Foresight(course.cohort, tasks.foreseen, course.length)
        strategy = self.exchange or Billboard(course, self.tasks)
        draw = self.tasks.foresight and self.tasks.foresight.cohort
        if course.of_persons:
            everyone = torch.arange(len(federation), device=course.device)
            strategy, draw = Billboard(course, Persons(self.tasks)), lambda round: everyone
        self.rounds = Rounds(strategy, store, draw=draw)
        self.run, self.resume = self.rounds.run, self.rounds.resume
        self.personal, self.newcomer = self.tasks.personal, self.tasks.newcomer
        self.measure, self.outputs = self.tasks.measure, self.tasks.outputs

    @property
    def board(self) -> Board:
        return self.rounds.board

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


def _exchange(course: Course, asked: AnsweredTasks, curator: Secure | None) -> Exchange:
    if curator is None:
        return Exchange(course, asked)
    return SecureExchange(course, asked, curator)
