"""Bounded contributions, noise, the ledger, and the guarantee read off it.

The accounting is arithmetic. Only the channel needs PyTorch: it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.privacy.accounting import Booked, Release, Spent, spent
from tacit.privacy.asked import Prepaid, Privacy
from tacit.privacy.calibration import noise_for
from tacit.privacy.guarantee import NOT_COVERED, Guarantee, guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Everyone, InTurn, Poisson, Sampler, sampler_for
from tacit.privacy.selection import Repeated

if TYPE_CHECKING:
    from tacit.privacy.channel import BudgetSpent, Channel

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
]


def __getattr__(name: str) -> Any:
    if name not in ("BudgetSpent", "Channel"):
        raise AttributeError(f"module 'tacit.privacy' has no attribute {name!r}")
    from tacit.privacy import channel

    return getattr(channel, name)
