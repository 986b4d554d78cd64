"""Silos in this process, asked without any transport: messages still travel as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from tacit.data.federation import PARTS, Federation
from tacit.deploy.messages import Reply, Request
from tacit.deploy.silo import Silo
from tacit.deploy.terms import Own, Terms


def own_of(federation: Federation, task: int) -> Own:
    persons = {}
    for part in PARTS:
        rows = federation.part(part)
        if rows.persons is not None:
            persons[part] = rows.persons[rows.offsets[task] : rows.offsets[task + 1]]
    parts = {part: federation.part(part).of(task) for part in PARTS}
    return Own(parts, persons or None, federation.preprocessing)


def silos_of(federation: Federation, terms: Terms, folder: Path, **settings) -> list[Silo]:
    made = []
    for task, name in enumerate(terms.silos):
        place = folder / f"silo-{task}"
        place.mkdir(parents=True, exist_ok=True)
        made.append(Silo(terms, name, own_of(federation, task), place, **settings))
    return made


class Direct:
    """Asks silos one after another; `meddle` may change what they are asked or answer."""

    def __init__(
        self,
        silos: list[Silo],
        *,
        asked: Callable[[int, Request], Request | None] = lambda task, request: request,
        answered: Callable[[int, Request, Reply], Reply | None] = lambda task, request, reply: (
            reply
        ),
    ) -> None:
        self.silos, self._asked, self._answered = silos, asked, answered
        self.requests: list[Request] = []

    def expect(self, numbers: int) -> None:
        self.expected = numbers

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        replies = {}
        for task, request in requests.items():
            self.requests.append(request)
            changed = self._asked(task, request)
            if changed is None:
                continue
            reply = self.silos[task].answer(Request.from_bytes(changed.to_bytes()))
            sent = self._answered(task, request, Reply.from_bytes(reply.to_bytes()))
            if sent is not None:
                replies[task] = sent
        return replies


def personal(silo: Silo) -> torch.Tensor:
    """The parameters this silo ended with, before it goes on with them by itself."""
    work = silo.latest()
    assert work is not None
    simulation = work.reopen()
    assert simulation is not None
    return simulation.personal(torch.tensor([silo.task]))[0][0]
