"""Silos and a coordinator in one process, each on a disk of its own; without servers on shares."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import safetensors.torch

from tacit.deploy.conduct import BILLBOARD, conduct
from tacit.deploy.messages import Reply, Request
from tacit.deploy.silo import Silo
from tacit.deploy.terms import Terms
from tacit.errors import TacitError
from tacit.secure.settings import Secure
from tests.deploy.asked import agreed
from tests.deploy.direct import own_of
from tests.faults.disk import Killed
from tests.faults.messages import Network
from tests.faults.schedule import DAMAGE, Schedule
from tests.faults.trains import METHODS, calm, federation
from tests.faults.trial import Trial

SILOS, ROUNDS = 4, 3


@lru_cache
def terms_of(method: str, cohort: float, seed: int | None, scores: bool, **more: Any) -> Terms:
    given = {"rounds": ROUNDS, "cohort": cohort, "seed": seed, "metrics": scores}
    return agreed(federation(SILOS), METHODS[method], **given, **more)


@dataclass
class SilosTrial(Trial):
    party: str = "coordinator"
    method: str = "fixed"
    cohort: float = 1.0
    seed: int | None = 1
    scores: bool = False
    _sent: dict[tuple[int, str, int], set[bytes]] = field(default_factory=dict)
    """What left each silo, by kind and round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.terms = self.agreed()
        self.network = Network(self.schedule, self.terms.silos, self.answer)
        self._silos: dict[int, Silo] = {}
        for name in self.terms.silos:
            (self.folder / name).mkdir()

    def agreed(self) -> Terms:
        return terms_of(self.method, self.cohort, self.seed, self.scores)

    def servers(self) -> Secure | None:
        return None

    def made(self, task: int, **given: Any) -> Silo:
        name = self.terms.silos[task]
        return Silo(self.terms, name, own_of(federation(SILOS), task), self.folder / name, **given)

    def once(self) -> int:
        done = conduct(self.terms, self.folder / self.party, self.network, servers=self.servers())
        return done.guarantee.releases

    def answer(self, task: int, request: Request) -> Reply | None:
        """A silo's answer; it may die over it, and hear of the request again, or never."""
        self.publish()  # whoever is asked sees the billboard
        name, patient = self.terms.silos[task], self.schedule.random.random() < 0.7
        for _ in range(3 if patient else 1):
            try:
                if task not in self._silos:
                    self._silos[task] = self.made(task)
                reply = self._silos[task].answer(request)
            except Killed as death:
                self.disk.revive(death.party)
                self._silos.pop(task, None)
                continue
            except TacitError as error:
                self.sentences.append(f"{name}: {error}")
                return None
            except Exception:
                self.wrong(f"{name} raised: {traceback.format_exc()}")
                return None
            self._left(task, request, reply)
            return reply
        return None

    def _left(self, task: int, request: Request, reply: Reply) -> None:
        """What leaves a silo is booked there, and there is one of it."""
        if "sent" not in reply.tensors or not request.takes_part:
            return
        name, round = self.terms.silos[task], request.round
        sent = self._sent.setdefault((task, request.kind, round), set())
        sent.add(reply.tensors["sent"].numpy().tobytes())
        if len(sent) > 1:
            self.wrong(f"{name} sent {len(sent)} contributions in round {round}")
        if round not in self.booked(name):
            self.wrong(f"{name} sent a contribution in round {round} that is not booked")

    def ledger(self, party: str) -> Path:
        if party == self.party:
            return super().ledger(party)
        found = sorted((self.folder / party).glob("runs/*/ledger.jsonl"))
        return found[0] if found else self.folder / party / "none"

    def outcome(self) -> Any:
        untold = any(self.network.missing.get(("train", t)) for t in range(ROUNDS))
        if self.seed is None or untold or self.network.changed or self.schedule.had(DAMAGE):
            return None
        board = safetensors.torch.load_file(self.folder / self.party / BILLBOARD)
        return {name: value.numpy().tobytes() for name, value in board.items()}


def silos_trial(seed: str, folder: Path, quiet: Path) -> Trial:
    random = Random(f"silos {seed}")
    settings: Mapping[str, Any] = {
        "method": random.choice(sorted(METHODS)),
        "cohort": random.choice((1.0, 0.6)),
        "seed": random.choice((1, 1, None)),
        "scores": random.choice((False, True)),
    }
    undisturbed = calm(SilosTrial, quiet, **settings)
    schedule = Schedule.drawn(f"silos {seed}", undisturbed.schedule.steps)
    return SilosTrial(folder, schedule, expected=undisturbed.expected, **settings).run()
