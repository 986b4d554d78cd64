"""tacit: many parties learn from each other without telling each other anything.

What is named here is imported when it is first used, so that a server that only adds up shares does
not wait for PyTorch.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit import data, loggers, models
    from tacit.attacks.audit import audit
    from tacit.data.federation import Federation
    from tacit.engine.attendance import Attendance
    from tacit.experiment.between import between_tasks
    from tacit.experiment.forecast import forecast
    from tacit.experiment.load import load
    from tacit.experiment.mixed import mixed
    from tacit.experiment.models import SavedModels
    from tacit.experiment.run import Run
    from tacit.experiment.train import train
    from tacit.experiment.tune import tune
    from tacit.methods import *  # noqa: F403
    from tacit.methods import Publishing
    from tacit.privacy import Guarantee, Privacy
    from tacit.secure.settings import Secure

# Intel's BLAS may round the same product differently where its operands lie otherwise in memory. A
# task's place in memory depends on who else is there, so it is asked not to (`local.chunks`). It
# listens before its first product only.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.2.0"

__all__ = [
    "Attendance",
    "Federation",
    "Guarantee",
    "Privacy",
    "Publishing",
    "Run",
    "SavedModels",
    "Secure",
    "TacitError",
    "audit",
    "between_tasks",
    "data",
    "forecast",
    "load",
    "loggers",
    "mixed",
    "models",
    "train",
    "tune",
]

_ELSEWHERE = {
    "Attendance": "tacit.engine.attendance",
    "Federation": "tacit.data.federation",
    "Guarantee": "tacit.privacy",
    "Privacy": "tacit.privacy",
    "Publishing": "tacit.methods",
    "Run": "tacit.experiment.run",
    "SavedModels": "tacit.experiment.models",
    "Secure": "tacit.secure.settings",
    "audit": "tacit.attacks.audit",
    "between_tasks": "tacit.experiment.between",
    "forecast": "tacit.experiment.forecast",
    "load": "tacit.experiment.load",
    "mixed": "tacit.experiment.mixed",
    "train": "tacit.experiment.train",
    "tune": "tacit.experiment.tune",
}
"""Where a name is; names of methods are in their own table."""
_RENAMED = {"Server": "Publishing"}
"""Old names, which work for one more version."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        now = f"tacit.{name} is called tacit.{_RENAMED[name]} now"
        words = f"{now}, and by that name only from the next version on"
        warnings.warn(words, FutureWarning, stacklevel=2)
        name = _RENAMED[name]
    if name in ("data", "loggers", "models"):
        return importlib.import_module(f"tacit.{name}")
    if name in _ELSEWHERE:
        found = getattr(importlib.import_module(_ELSEWHERE[name]), name)
    elif name[:1].isupper() and name in (known := _methods()):
        found = known[name]
    else:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    globals()[name] = found
    return found


def _methods() -> dict[str, Any]:
    """Methods by the names of their classes: whatever is in the table of `tacit.methods`."""
    table = importlib.import_module("tacit.methods").METHODS
    return {kind.__name__: kind for kind in table.values()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_methods()})
