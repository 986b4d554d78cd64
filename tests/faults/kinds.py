"""The kinds of runs that schedules are drawn for."""

from __future__ import annotations

from tests.faults.across import silos_trial
from tests.faults.shares import shares_trial
from tests.faults.trains import train_trial

KINDS = {"train": train_trial, "silos": silos_trial, "shares": shares_trial}
