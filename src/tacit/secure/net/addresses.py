"""Where servers and the dealer listen."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.checks import host_and_port
from tacit.errors import TacitError
from tacit.secure.jobs.job import DEALER, server_name


@dataclass(frozen=True)
class Addresses:
    """`host:port` of each server in their order, and of the dealer if there is one."""

    servers: tuple[str, ...]
    dealer: str | None = None

    def __post_init__(self) -> None:
        for address in self._by_name().values():
            host_and_port(address)

    @property
    def names(self) -> list[str]:
        return list(self._by_name())

    def of(self, name: str) -> str:
        known = self._by_name()
        if name not in known:
            raise TacitError(
                f"{name} has no address: there are {', '.join(known)}; "
                "servers are given by --peers, a dealer by --dealer"
            )
        return known[name]

    def _by_name(self) -> dict[str, str]:
        found = {server_name(index): address for index, address in enumerate(self.servers)}
        return found if self.dealer is None else found | {DEALER: self.dealer}
