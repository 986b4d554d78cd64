"""Who was the first cause, when several parties report that a job failed.

A party that fails ends its connections, so the parties that waited for it fail next and blame it,
and so on. Following the blame leads to a party that blames nobody else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tacit.secure.net.channel import ENDINGS
from tacit.secure.net.links import PartyError


@dataclass
class Reports:
    """What parties say about a failure, in the order in which it was heard."""

    servers: Collection[str]
    errors: dict[str, BaseException] = field(default_factory=dict)
    """By the party that reports it: its first word counts."""
    lost: list[str] = field(default_factory=list)
    """Servers whose process is gone, or silent."""

    def add(self, reporter: str, error: BaseException, *, lost: bool = False) -> None:
        self.errors.setdefault(reporter, error)
        if lost:
            self.lost.append(reporter)

    def cause(self) -> BaseException:
        """The error that names the first cause."""
        if self.lost:
            culprit = self.lost[0]
            # What a server was waiting for says more than that the connection is gone.
            for reporter, error in self.errors.items():
                if reporter != culprit and _blame(reporter, error) == culprit:
                    return error
            return self.errors[culprit]
        found = [self._follow(reporter) for reporter in self.errors]
        return next((error for error in found if not _echo(error)), found[0])

    def _follow(self, reporter: str) -> BaseException:
        """The best of what is said on the way from a report to the party that it leads to."""
        way = [reporter]
        while (culprit := _blame(way[-1], self.errors[way[-1]])) in self.errors:
            if culprit in way:  # two blame each other
                break
            way.append(culprit)
        said = [self.errors[name] for name in way if not _echo(self.errors[name])]
        said = said or [self.errors[name] for name in way if name in self.servers]
        return said[-1] if said else self.errors[way[-1]]


def _blame(reporter: str, error: BaseException) -> str:
    return error.party if isinstance(error, PartyError) else reporter


def _echo(error: BaseException) -> bool:
    """Whether it may be a mere consequence: a party hung up because of another failure."""
    return isinstance(error, PartyError) and any(ending in error.what for ending in ENDINGS)
