"""Where the servers of a curator run."""

from __future__ import annotations

from tacit.data.federation import Federation
from tacit.privacy.curator import Curator
from tacit.randomness import Randomness
from tacit.secure.jobs.curator import SecureSum
from tacit.secure.jobs.job import InProcess
from tacit.secure.net.remote import Remote
from tacit.secure.settings import Secure


def curator_of(federation: Federation, curator: Secure, randomness: Randomness) -> Curator:
    """Servers that sum for the billboard: processes at `peers`, or simulated."""
    if curator.peers:
        names = tuple(federation.names)
        return SecureSum(Remote.of(curator), curator.servers, names, randomness, simulated=False)
    # Here names only tell parties apart, and a task may be called like one of the others.
    names = tuple(f"task {name}" for name in federation.names)
    return SecureSum(InProcess(), curator.servers, names, randomness)
