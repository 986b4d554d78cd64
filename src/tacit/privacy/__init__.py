"""Bounded contributions, noise, the ledger, and the guarantee read off it."""

from tacit.privacy.accounting import Booked, Release, Spent, spent
from tacit.privacy.calibration import noise_for, theorem_1
from tacit.privacy.channel import BudgetSpent, Channel
from tacit.privacy.guarantee import NOT_COVERED, Guarantee, Prepaid, Privacy, guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Everyone, InTurn, Poisson, Sampler, sampler_for
from tacit.privacy.selection import Repeated

__all__ = [
    "NOT_COVERED",
    "Booked",
    "BudgetSpent",
    "Channel",
    "Everyone",
    "Guarantee",
    "InTurn",
    "Ledger",
    "Poisson",
    "Prepaid",
    "Privacy",
    "Release",
    "Repeated",
    "Sampler",
    "Spent",
    "guarantee",
    "noise_for",
    "sampler_for",
    "spent",
    "theorem_1",
]
