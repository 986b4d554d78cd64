"""One file per algorithm; this table is what `tacit methods` and configuration files know."""

from tacit.methods.base import BillboardMethod, Board, Method, State
from tacit.methods.fedavg import FedAvg
from tacit.methods.local import Local
from tacit.methods.pmtl import PMTL

METHODS: dict[str, type[Method]] = {"pmtl": PMTL, "fedavg": FedAvg, "local": Local}

__all__ = ["METHODS", "PMTL", "BillboardMethod", "Board", "FedAvg", "Local", "Method", "State"]
