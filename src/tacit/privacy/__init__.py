"""Bounded contributions, noise, the ledger, and the guarantee read off it."""

from tacit.privacy.accounting import Release, Spent, spent
from tacit.privacy.calibration import noise_for, theorem_1
from tacit.privacy.channel import BudgetSpent, Channel
from tacit.privacy.guarantee import NOT_COVERED, Guarantee, Privacy, guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Everyone, FixedSize, Poisson, Sampler, sampler_for

__all__ = [
    "NOT_COVERED",
    "BudgetSpent",
    "Channel",
    "Everyone",
    "FixedSize",
    "Guarantee",
    "Ledger",
    "Poisson",
    "Privacy",
    "Release",
    "Sampler",
    "Spent",
    "guarantee",
    "noise_for",
    "sampler_for",
    "spent",
    "theorem_1",
]
