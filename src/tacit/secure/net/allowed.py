"""What a consortium lets its servers do, whatever the coordinator asks for.

A server that has the consortium's file holds these itself (`tacit server --consortium`), and
refuses all other jobs before anybody hands in anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import TacitError
from tacit.secure.jobs.job import Job

SLACK = 1e-6
"""Relative: noise is computed at every party, and the last digits may differ."""


@dataclass(frozen=True)
class Allowed:
    """Jobs that all parties agreed on; each server has a copy."""

    agreement: str
    """Names what was agreed; another agreement has a count of its own."""
    kind: str
    clients: frozenset[str]
    jobs: int
    """How many in all; a job that is repeated counts once."""
    noise: float = 0.0
    """Of a sum: the least noise multiplier."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the exchange: fields of the job that have to be exactly so."""

    def check(self, job: Job) -> None:
        """Refuse a job that was not agreed."""
        if job.kind != self.kind:
            raise TacitError(f"a job of kind {job.kind!r} was asked for, agreed was {self.kind!r}")
        strangers = sorted(set(job.clients) - self.clients)
        if strangers or len(set(job.clients)) < len(job.clients):
            named = ", ".join(strangers[:3]) or "one client twice"
            raise TacitError(f"a job with {named} was asked for, which was not agreed")
        asked = job.to_json()
        if self.noise:
            noise = asked["noise"] / asked["bound"]
            if not noise >= self.noise * (1 - SLACK):
                raise TacitError(f"noise {noise:.3g} was asked for, agreed was {self.noise:.3g}")
        for name, value in self.settings.items():
            if asked[name] != value:
                raise TacitError(
                    f"a job with {name}={asked[name]} was asked for, agreed was {value}"
                )

    def check_count(self, begun: int) -> None:
        """Refuse a job when as many as were agreed have begun."""
        if begun >= self.jobs:
            raise TacitError(
                f"{self.jobs} jobs were agreed, and all of them were begun: a further run needs "
                "its own agreement (--runs)"
            )
