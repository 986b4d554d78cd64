"""The kinds of runs that schedules are drawn for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.faults.across import silos_trial
from tests.faults.shares import shares_trial
from tests.faults.trains import train_trial
from tests.faults.trial import Trial

TRIALS: dict[str, Callable[[str, Path, Path], Trial]] = {
    "train": train_trial,
    "silos": silos_trial,
    "shares": shares_trial,
}
"""From a seed, a folder for the trial, and one in which undisturbed runs are kept."""
