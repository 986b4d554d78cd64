"""One file per algorithm; this table is what `tacit methods` and configuration files know."""

from tacit.methods.base import BillboardMethod, Board, Method, State
from tacit.methods.ditto import Ditto
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedprox import FedProx
from tacit.methods.local import Local
from tacit.methods.pfedme import PFedMe
from tacit.methods.pmtl import PMTL
from tacit.methods.ppsgd import PPSGD

METHODS: dict[str, type[Method]] = {
    "pmtl": PMTL,
    "ditto": Ditto,
    "pfedme": PFedMe,
    "ppsgd": PPSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "local": Local,
}

__all__ = [
    "METHODS",
    "PMTL",
    "PPSGD",
    "BillboardMethod",
    "Board",
    "Ditto",
    "FedAvg",
    "FedProx",
    "Local",
    "Method",
    "PFedMe",
    "State",
]
