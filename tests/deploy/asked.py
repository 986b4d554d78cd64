"""One silo and a coordinator's requests to it, made by hand: any part can be wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

import tacit
from tacit.data.federation import Federation
from tacit.deploy.conduct import begin, open_run
from tacit.deploy.coordinator import Asking
from tacit.deploy.diary import LOG, Diary
from tacit.deploy.messages import Reply, Request
from tacit.deploy.silo import Silo
from tacit.deploy.terms import Terms, terms_of
from tacit.experiment.plan import Plan
from tests.conftest import arrays
from tests.deploy.direct import Direct, own_of

AGREED = tacit.Privacy(noise=2.0, delta=1 / 30)


def federation_of(tasks: int = 3) -> Federation:
    x, y, names = arrays(tasks, 4, "regression", rows=(12, 20))
    return tacit.data.from_arrays(x, y, names, scale="none", target_scale="none", kind="regression")


def agreed(
    federation: Federation,
    method=None,
    *,
    metrics: bool = False,
    relaxed: bool = False,
    retries: int = 0,
    **changes,
) -> Terms:
    """Small terms; `relaxed` ones without privacy."""
    method = tacit.FedAvg(clip=0.5) if method is None else method
    settings = {"model": "linear", "rounds": 3, "cohort": 1.0, "publishing": None, "seed": None}
    settings["privacy"] = None if relaxed else AGREED
    made = terms_of(federation, Plan(method=method, **(settings | changes)))
    planned = {"retries": retries} if retries else {}
    return dataclasses.replace(made, metrics=metrics, **planned)


class Asked:
    """A silo, and the requests that an honest coordinator would make of it."""

    def __init__(self, terms: Terms, federation: Federation, folder: Path, task=0, **settings):
        self.terms, self.folder = terms, folder / f"silo-{task}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make = lambda: Silo(
            terms, terms.silos[task], own_of(federation, task), self.folder, **settings
        )
        self.silo = self._make()
        place = folder / "coordinator"
        place.mkdir(exist_ok=True)
        self.start = begin(terms, place)
        asking = Asking(
            terms, self.start["run"], self.start["noise"], Direct([]), place, Diary(None)
        )
        self.coordination = open_run(terms, place, self.start, asking)
        self.run = self.start["run"]

    def reopened(self) -> Asked:
        """The same silo as a new process would find it."""
        self.silo = self._make()
        return self

    def request(self, kind="train", round=0, **changes) -> Request:
        channel = self.coordination.course.channel
        honest = {
            "run": self.run,
            "terms": self.terms.to_json(),
            "key": self.start["key"],
            "noise": self.start["noise"],
            "spread": float(torch.tensor(channel.noise_at(min(round, self.terms.rounds - 1)))),
            "clip": None if channel.release is None else channel.clip,
            "tensors": {} if kind in ("measure", "receive") else self.board(round),
        }
        return Request(kind=kind, round=round, **(honest | changes))

    def board(self, round: int) -> dict[str, torch.Tensor]:
        """A billboard of the right shape, another one in each round."""
        tensors = self.coordination.rounds.board.tensors
        return {name: value + 0.1 * round for name, value in tensors.items()}

    def ask(self, request: Request | None = None, **changes) -> Reply:
        """As over a wire: both messages are bytes on their way."""
        request = request or self.request(**changes)
        reply = self.silo.answer(Request.from_bytes(request.to_bytes()))
        return Reply.from_bytes(reply.to_bytes())

    @property
    def log(self) -> str:
        path = self.folder / LOG
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def booked(self, run: str | None = None) -> list[int]:
        """The rounds on this silo's account."""
        path = self.folder / "runs" / (run or self.run) / "ledger.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line)["round"] for line in lines]

    def sees_refused(self, words: str, request: Request | None = None, **changes) -> None:
        """A refusal says why, to the coordinator and in the log; nothing leaves or is booked."""
        before = self.booked()
        request = request or self.request(**changes)
        reply = self.ask(request)
        assert reply.state == "refused", reply
        assert words in reply.reason, reply.reason
        assert reply.reason in self.log and "refused" in self.log
        assert not reply.tensors and not reply.size
        assert reply.nonce == request.nonce
        assert self.booked() == before


def run_name(number: int) -> str:
    return f"{number:032x}"


def vector(reply: Reply) -> np.ndarray:
    """What left the silo."""
    assert reply.state == "done", reply.reason
    return reply.tensors["sent"].numpy()
