"""Which curators a run can have, checked before it starts; and where their servers run."""

from __future__ import annotations

from pathlib import Path

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.methods import ExchangeMethod, FedMTL, Method, OnBillboard
from tacit.privacy import Privacy
from tacit.privacy.curator import Curator
from tacit.randomness import Randomness
from tacit.secure.settings import Secure

ON_SHARES = ("similar", "everyone", "own")
"""What FedMTL may mix by where the curator is servers."""


def check_curator(
    federation: Federation,
    method: Method,
    curator: Secure | None,
    privacy: Privacy | None,
    seed: int | None,
) -> None:
    """Refuse what a curator of servers cannot do for this method."""
    if curator is None:
        return
    if not isinstance(curator, Secure):
        raise TacitError(f"curator={curator!r}: pass tacit.Secure(...), or leave it out")
    name = type(method).__name__
    if isinstance(method, ExchangeMethod):
        _check_exchange(federation, method, curator)
        return
    if not isinstance(method, OnBillboard):
        raise TacitError(f"nothing leaves the tasks of {name}, so nobody curates: leave it out")
    if curator.trust is not None:
        raise TacitError(
            f"trust={curator.trust!r}: a sum needs no products, and additive shares already hide "
            "contributions from all servers but one together; leave trust out"
        )
    if curator.bits is not None:
        raise TacitError(f"bits={curator.bits}: sums choose their own ring; leave bits out")
    if curator.slots is not None:
        raise TacitError("slots are for task layers on the exchange: leave slots out")
    if curator.dealer is not None:
        raise TacitError("a sum needs no dealer: leave dealer out")
    if privacy is None or privacy.noise == 0:
        raise TacitError(
            "servers open sums with noise only: give privacy=... with noise (--epsilon), or leave "
            "curator out"
        )
    curator.require()
    if curator.peers and seed is not None:
        raise TacitError(
            "server processes draw their own noise, which no seed can decide: leave seed out, or "
            "peers to simulate them"
        )
    _check_peers(federation, curator)


def _check_exchange(federation: Federation, method: ExchangeMethod, curator: Secure) -> None:
    name = type(method).__name__
    if not isinstance(method, FedMTL):
        raise TacitError(
            f"the curator of {name} does not run on shares: use FedMTL or a method on the "
            "billboard (tacit methods), or leave curator out"
        )
    for choice in (method.shared, method.heads):
        if choice not in ON_SHARES:
            raise TacitError(
                f"{choice!r} is not computed on shares: choose {', '.join(ON_SHARES)}, or leave "
                "curator out"
            )
    if curator.trust is None:
        raise TacitError(
            "products on shares need trust: 'dealer' (all servers but one may collude, and one "
            "dealer beside them with none), or 'replicated' (three servers, no two collude)"
        )
    if curator.trust == "replicated" and curator.servers != 3:
        raise TacitError(f"servers={curator.servers}: replicated shares are for exactly 3")
    if curator.peers and (curator.trust == "dealer") != (curator.dealer is not None):
        raise TacitError("trust='dealer' needs the dealer's address (dealer=...), and only that")
    curator.require()
    _check_peers(federation, curator)


def _check_peers(federation: Federation, curator: Secure) -> None:
    if not curator.peers:
        return
    from tacit.secure.net.certificates import check_name

    if not Path(curator.certificates or "").is_dir():
        raise TacitError(f"there is no folder of certificates {curator.certificates!r}")
    for name in federation.names:
        check_name(name)


def curator_of(federation: Federation, curator: Secure, randomness: Randomness) -> Curator:
    """Servers that sum for the billboard: processes at `peers`, or simulated."""
    from tacit.secure.jobs.curator import SecureSum
    from tacit.secure.jobs.job import InProcess

    if curator.peers:
        names = tuple(federation.names)
        return SecureSum(curator.remote(), curator.servers, names, randomness, simulated=False)
    # Here names only tell parties apart, and a task may be called like one of the others.
    names = tuple(f"task {name}" for name in federation.names)
    return SecureSum(InProcess(), curator.servers, names, randomness)
