"""Where servers and the dealer listen."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import TacitError
from tacit.secure.job import DEALER, server_name


@dataclass(frozen=True)
class Addresses:
    """`host:port` of each server in their order, and of the dealer if there is one."""

    servers: tuple[str, ...]
    dealer: str | None = None

    def __post_init__(self) -> None:
        for address in self._by_name().values():
            split(address)

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


def split(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, or of `[host]:port` for IPv6."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise TacitError(f"{address!r} is no address: write host:port, such as localhost:7000")
    return host, int(port)
