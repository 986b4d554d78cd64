"""A silo: one site's rows, its personal model, and what it is willing to give away.

`answer` is all that a coordinator can reach. It refuses what was not agreed, and whatever happens
inside, nothing but a bounded contribution, an acknowledgement or a reason leaves.
"""

from __future__ import annotations

import contextlib
import shutil
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from tacit.deploy.diary import Diary
from tacit.deploy.events import (
    AnswerTaken,
    Contributed,
    Event,
    RequestFailed,
    RequestRefused,
    RunOver,
    ScoresSent,
    SharesHanded,
)
from tacit.deploy.guard import Refused, check_terms
from tacit.deploy.messages import Reply, Request
from tacit.deploy.scores import bound_scores
from tacit.deploy.servers import ToServers
from tacit.deploy.shares import Handed, hand_in
from tacit.deploy.terms import Own, Terms
from tacit.deploy.work import Work
from tacit.errors import TacitError
from tacit.files import make_folder

FAILED = "the silo could not do it; its own log says why"


class Silo:
    """One party that answers a coordinator; `folder` is where it keeps everything."""

    def __init__(
        self,
        terms: Terms,
        name: str,
        own: Own,
        folder: Path,
        *,
        budget: float | None = None,
        runs: int = 1,
        also: Callable[[str], None] = lambda line: None,
        servers: ToServers | None = None,
    ) -> None:
        self.terms, self.name, self.own = terms, name, own
        self.folder, self.task = folder, terms.index(name)
        self._budget, self._runs, self._servers = budget, runs, servers
        make_folder(folder)
        self.diary = Diary(folder, also)
        self._works: dict[str, Work] = {}
        self._handed = Handed(folder)

    def answer(self, request: Request) -> Reply:
        """Do what is asked if it was agreed; never raises."""
        try:
            check_terms(self.terms, request)
            work = self.work(request)
            reply: Reply = getattr(self, f"_{request.kind}")(work, request)
            work.remember_answer()
            return reply
        except Refused as refusal:
            self._note(RequestRefused(request.kind, request.round, str(refusal)))
            return Reply(nonce=request.nonce, state="refused", reason=str(refusal))
        except Exception as error:
            # What went wrong may speak of rows: it stays here.
            what, trace = (type(error).__name__, str(error)), traceback.format_exc()
            self._note(RequestFailed(request.kind, request.round, *what, trace))
            return Reply(nonce=request.nonce, state="failed", reason=FAILED)

    def _note(self, event: Event) -> None:
        """Write an event where nothing leaves; a log that cannot be written is no error then."""
        with contextlib.suppress(TacitError):
            self.diary.write(event)

    def work(self, request: Request) -> Work:
        """What this silo does in the run of this request, as it was left."""
        known = self._works.get(request.run)
        place = self.folder / "runs" / request.run
        if known is None:
            taken = [p for p in (self.folder / "runs").glob("*") if p != place]
            if not place.exists() and len(taken) >= self._runs:
                raise Refused(
                    f"this silo takes part in {self._runs} run{'s' * (self._runs > 1)} under these "
                    "terms, and has"
                )
            known = self._begin_run(place, request)
        Work.begin(place, request, self.terms)
        return known

    def latest(self) -> Work | None:
        """The run that this silo last took part in."""
        places = sorted(
            (self.folder / "runs").glob("*/checkpoint/journal.safetensors"),
            key=lambda path: path.stat().st_mtime,
        )
        if not places:
            return None
        place = places[-1].parent.parent
        if place.name not in self._works:
            return self._open_work(place, Work.read_start(place, self.terms))
        return self._works[place.name]

    def _begin_run(self, place: Path, request: Request) -> Work:
        """Begin a run; one that is refused as a whole does not count as begun."""
        new = not place.exists()
        start = Work.begin(place, request, self.terms)
        try:
            return self._open_work(place, start)
        except Exception:
            if new:
                shutil.rmtree(place, ignore_errors=True)
            raise

    def _open_work(self, place: Path, start: Mapping[str, Any]) -> Work:
        def others() -> list[Path]:
            return [path for path in sorted((self.folder / "runs").iterdir()) if path != place]

        work = Work(
            self.terms, self.task, self.own, place, start, others=others, budget=self._budget
        )
        self._works[place.name] = work
        return work

    def _train(self, work: Work, request: Request) -> Reply:
        vector, rows, again = work.train(request)
        shared = self.terms.curator is not None
        if not again:
            length = float(torch.linalg.vector_norm(vector.double())) / work.step_at(request.round)
            what = request.round, request.takes_part, len(vector), length, request.clip, shared
            release, noised = work.channel.release, bool(work.channel.noisy_tasks)
            unit = "task" if release is None else release.unit
            self.diary.write(Contributed(*what, work.spent_so_far, unit, noised))
        if shared:  # not even how many rows there are: servers on shares hide that too
            return Reply(nonce=request.nonce)
        size = rows if work.exchanges else 0
        return Reply(nonce=request.nonce, size=size, tensors={"sent": vector})

    def _share(self, work: Work, request: Request) -> Reply:
        if self.terms.curator is None or self._servers is None:
            raise Refused("shares were asked for, but this silo knows no servers")
        numbers = hand_in(work, request, self._servers, self._handed)
        servers = self._servers.settings.servers
        self.diary.write(SharesHanded(request.round, numbers, servers, work.spent_so_far))
        return Reply(nonce=request.nonce)

    def _receive(self, work: Work, request: Request) -> Reply:
        if not work.receive(request):
            self.diary.write(AnswerTaken(request.round))
        return Reply(nonce=request.nonce)

    def _finish(self, work: Work, request: Request) -> Reply:
        if not work.finish(request):
            self.diary.write(RunOver(work.spent))
        return Reply(nonce=request.nonce)

    def _measure(self, work: Work, request: Request) -> Reply:
        if not work.finished:
            raise Refused("scores were asked for before the run was over")
        scores = work.measure(bound_scores(work), takes_part=request.takes_part)
        self.diary.write(ScoresSent(request.takes_part, work.spent))
        return Reply(nonce=request.nonce, tensors={"sent": scores})
