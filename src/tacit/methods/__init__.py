"""One file per algorithm; this table is what `tacit methods` and configuration files know."""

from tacit.methods.additive import SharedShapes
from tacit.methods.base import (
    BillboardMethod,
    Board,
    Method,
    OnBillboard,
    RelatedMethod,
    State,
    TrainedMethod,
)
from tacit.methods.cluster_priors import ClusterPriors
from tacit.methods.clusters import Clusters
from tacit.methods.ditto import Ditto
from tacit.methods.exchange import ExchangeMethod, MixingMethod
from tacit.methods.fedamp import FedAMP
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedfomo import FedFomo
from tacit.methods.fedmtl import FedMTL
from tacit.methods.fedprox import FedProx
from tacit.methods.fedrep import FedRep
from tacit.methods.local import Local
from tacit.methods.mixed import Mixed
from tacit.methods.mocha import MOCHA
from tacit.methods.mpmtl import MPMTL
from tacit.methods.naive import NaiveDP
from tacit.methods.pfedme import PFedMe
from tacit.methods.pmtl import PMTL
from tacit.methods.ppsgd import PPSGD
from tacit.methods.prior import SharedPrior
from tacit.methods.publishing import Publishing
from tacit.methods.related import RelatedPMTL

AUTO = "auto"
"""In the place of a method's name: public facts decide (`experiment.auto`)."""
METHODS: dict[str, type[Method]] = {
    "pmtl": PMTL,
    "related": RelatedPMTL,
    "clusters": Clusters,
    "cluster-priors": ClusterPriors,
    "ditto": Ditto,
    "pfedme": PFedMe,
    "ppsgd": PPSGD,
    "fedrep": FedRep,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "mixed": Mixed,
    "prior": SharedPrior,
    "additive": SharedShapes,
    "mpmtl": MPMTL,
    "fedmtl": FedMTL,
    "fedamp": FedAMP,
    "fedfomo": FedFomo,
    "mocha": MOCHA,
    "local": Local,
    "naive": NaiveDP,
}

__all__ = [
    "AUTO",
    "METHODS",
    "MOCHA",
    "MPMTL",
    "PMTL",
    "PPSGD",
    "BillboardMethod",
    "Board",
    "ClusterPriors",
    "Clusters",
    "Ditto",
    "ExchangeMethod",
    "FedAMP",
    "FedAvg",
    "FedFomo",
    "FedMTL",
    "FedProx",
    "FedRep",
    "Local",
    "Method",
    "Mixed",
    "MixingMethod",
    "NaiveDP",
    "OnBillboard",
    "PFedMe",
    "Publishing",
    "RelatedMethod",
    "RelatedPMTL",
    "SharedPrior",
    "SharedShapes",
    "State",
    "TrainedMethod",
]
