"""`tacit.Secure`: a curator made of servers. Needs no extra package until it is used."""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from typing import Any, Literal

from tacit.checks import host_and_port
from tacit.errors import TacitError

Trust = Literal["dealer", "replicated"]
NEEDED = ("cryptography",)
"""Without numba, products are slower and just as exact (`kernels`)."""


@dataclass(frozen=True, kw_only=True)
class Secure:
    """Servers that together do what a trusted curator does, and separately know nothing.

    Parameters
    ----------
    servers : how many; the sums of the billboard need at least 2, of which all but one may collude
    trust : on the exchange, who hands out what products on shares need: a "dealer" beside the
        servers, or nobody, with "replicated" shares among three servers; sums need no products
    bits : on the exchange, the ring of the shares (64); 32 is faster, for models whose parameters
        move by less than 1 from the start; sums choose their own
    slots : on the exchange, how many task layers each client uploads, the rest of them fakes; None
        for as many as there are heads, so that nobody learns how many a client has
    peers : addresses (host:port) of server processes, one for each server; empty: all servers run
        inside this process, which is then a simulation of them
    dealer : address of the dealer's process
    certificates : folder with the certificates of all parties
    """

    servers: int = 3
    trust: Trust | None = None
    bits: Literal[32, 64] | None = None
    slots: int | None = None
    peers: tuple[str, ...] = ()
    dealer: str | None = None
    certificates: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.servers, int) or self.servers < 2:
            raise TacitError(f"servers={self.servers!r}: at least 2 are needed to share a secret")
        if self.trust not in (None, "dealer", "replicated"):
            raise TacitError(f"trust={self.trust!r}: choose dealer or replicated")
        if self.bits not in (None, 32, 64):
            raise TacitError(f"bits={self.bits!r}: choose 32 or 64")
        if self.slots is not None and self.slots < 1:
            raise TacitError(f"slots={self.slots!r}: at least 1 is needed")
        if isinstance(self.peers, str):
            raise TacitError(f"peers={self.peers!r}: give a tuple of addresses, host:port")
        object.__setattr__(self, "peers", tuple(self.peers))
        for address in (*self.peers, *([self.dealer] if self.dealer is not None else [])):
            host_and_port(address)
        if self.peers and len(self.peers) != self.servers:
            raise TacitError(
                f"there are {len(self.peers)} peers for {self.servers} servers: give each server "
                "an address, or leave peers out"
            )
        if self.peers and self.certificates is None:
            raise TacitError("peers know each other by certificates: give certificates=DIR")
        if not self.peers and (self.dealer is not None or self.certificates is not None):
            raise TacitError("dealer and certificates are for server processes: give peers too")

    @property
    def simulated(self) -> Secure:
        """The same servers inside one process."""
        return dataclasses.replace(self, peers=(), dealer=None, certificates=None)

    def require(self) -> None:
        """Refuse to start without the packages that servers need."""
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise TacitError(
                f"a secure curator needs {' and '.join(missing)}: pip install 'tacit[secure]'"
            )

    def to_json(self) -> dict[str, Any]:
        return {"kind": "secure", **dataclasses.asdict(self), "peers": list(self.peers)}
