"""`tacit.load`: a finished run, read back from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacit.data.federation import Federation
from tacit.engine.blend import Blend
from tacit.errors import TacitError
from tacit.experiment.finished import Finished, Scores
from tacit.experiment.models import SavedModels
from tacit.experiment.newcomers import Newcomers
from tacit.experiment.predicts import Predicts
from tacit.files import read_json
from tacit.privacy.guarantee import Promise

FIELDS = {"guarantee": dict, "metrics": dict, "config": dict, "federation": dict, "curve": list}
"""What a result.json holds, at least."""
LOST = {
    "simulation": "rows and the state of training are not kept with a run",
    "measured": "scores come back in run.metrics",
    "baselines": "scores come back in run.metrics['baselines']",
    "personalised": "what tasks ended with comes back in run.metrics['personal_models']",
    "delivered": "models come back through run.personal and run.predict",
    "effects": "a task's own effects need its rows, which are not kept with a run",
    "part": "it comes back as run.metrics['part']",
    "timing": "it comes back in run.to_json()['timing']",
    "save": "it is saved already",
    "of": "it is finished",
    "summary": "what it says comes back in run.to_json()['summary']",
}


class NotKeptError(TacitError, AttributeError):
    """Something that a run had while it was in memory."""


class SavedRun(Finished, Predicts):
    """A run as its folder tells it: what it promised, its scores, its models; no rows."""

    def __init__(self, folder: str | Path, model: nn.Module | None = None) -> None:
        self.folder, self._model = Path(folder), model
        path = self.folder / "result.json"
        if not path.is_file():
            raise TacitError(
                f"{folder} holds no finished run: give the folder that `out` named, or finish the "
                "run with resume=True (--resume)"
            )
        self._result = read_json(path, FIELDS, "put it back from a backup, or train again")
        self.guarantee = Promise(self._result["guarantee"])
        self.metrics = Scores(self._result["metrics"])
        self.config: dict[str, Any] = self._result["config"]
        self.curve: list[dict[str, Any]] = self._result["curve"]
        """The learning curve on validation rows: not covered by the guarantee."""

    @cached_property
    def saved(self) -> SavedModels:
        """The models; read when something is asked of them."""
        return SavedModels.load(self.folder, self._model)

    @property
    def federation(self) -> Federation:
        """The tasks, and how rows are read and scaled; without rows."""
        return self.saved.federation

    @property
    def verdict(self) -> Mapping[str, Any]:
        """As result.json has it: not covered by the guarantee."""
        return self._result["verdict"]

    @property
    def diverged(self) -> list[str]:
        """Tasks whose own training diverged, so that they trained alone: not covered by ε."""
        return self.metrics["diverged"]

    @property
    def public(self) -> dict[str, Any] | None:
        """As `Run.public`."""
        return self._result["public"]

    @property
    def exchange(self) -> dict[str, Any] | None:
        """As `Run.exchange`."""
        return self._result["exchange"]

    @property
    def newcomers(self) -> Newcomers:
        """As `Run.newcomers`."""
        return self.saved.newcomers

    @property
    def blend(self) -> Blend | None:
        """As `Run.blend`."""
        return self.saved.blend

    def models(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """As `Run.models`."""
        return self.saved.models(tasks)

    def shapes(self) -> dict[str, Any]:
        """As `Run.shapes`."""
        if "shapes" not in self._result:
            raise TacitError(f"{self.config['method']} has no shapes: only runs of additive have")
        return self._result["shapes"]

    def to_json(self) -> dict[str, Any]:
        """The content of result.json."""
        return self._result

    def __getattr__(self, name: str) -> Any:
        if name in LOST:
            raise NotKeptError(f"run.{name} does not come back from a folder: {LOST[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        source = self._result["federation"].get("source")
        return f"SavedRun({self.config.get('method')} on {source}: {self.guarantee})"


def load(folder: str | Path, model: nn.Module | None = None) -> SavedRun:
    """The run in this folder; `model` is needed (with any parameters) for a module of your own.

    Rows are not kept with a run. What needs them says so when it is asked for.
    """
    return SavedRun(folder, model)
