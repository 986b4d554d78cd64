"""tacit: many parties learn from each other without telling each other anything."""

from tacit import data, models
from tacit.errors import TacitError
from tacit.federation import Federation
from tacit.methods import (
    MOCHA,
    MPMTL,
    PMTL,
    PPSGD,
    Ditto,
    FedAMP,
    FedAvg,
    FedFomo,
    FedMTL,
    FedProx,
    FedRep,
    Local,
    NaiveDP,
    PFedMe,
    RelatedPMTL,
    Server,
    SharedPrior,
)
from tacit.privacy import Guarantee, Privacy
from tacit.runtime.attendance import Attendance
from tacit.runtime.between import between_tasks
from tacit.runtime.models import SavedModels
from tacit.runtime.run import Run
from tacit.runtime.train import train
from tacit.runtime.tune import tune
from tacit.secure.settings import Secure

__version__ = "0.1.0"

__all__ = [
    "MOCHA",
    "MPMTL",
    "PMTL",
    "PPSGD",
    "Attendance",
    "Ditto",
    "FedAMP",
    "FedAvg",
    "FedFomo",
    "FedMTL",
    "FedProx",
    "FedRep",
    "Federation",
    "Guarantee",
    "Local",
    "NaiveDP",
    "PFedMe",
    "Privacy",
    "RelatedPMTL",
    "Run",
    "SavedModels",
    "Secure",
    "Server",
    "SharedPrior",
    "TacitError",
    "between_tasks",
    "data",
    "models",
    "train",
    "tune",
]
