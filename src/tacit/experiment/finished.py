"""What a run shows of itself, whether it was just made or read back: all of it from result.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.checks import needing
from tacit.shown import as_html

if TYPE_CHECKING:
    import pandas as pd

    from tacit.report.notebook import Plots


class Finished:
    """A run with a `to_json`: its report, its figures, its page in a notebook."""

    def to_json(self) -> dict[str, Any]:
        """The content of result.json."""
        raise NotImplementedError

    @property
    def plot(self) -> Plots:
        """Figures of matplotlib: `run.plot.curve()`, `run.plot.gains()`, …"""
        return drawn().Plots(self.to_json())

    def report(self, path: str | Path) -> None:
        """A self-contained HTML page."""
        drawn().write_html(self.to_json(), Path(path))

    def summary_page(self, path: str | Path) -> None:
        """One page to print and sign: whether it helped, the promise, what the tasks got."""
        drawn().write_summary(self.to_json(), Path(path))

    def _repr_html_(self) -> str:
        return as_html("run", self.to_json())


class Scores(dict[str, Any]):
    """Scores per task and overall, as result.json has them: not covered by the guarantee."""

    def to_frame(self) -> pd.DataFrame:
        """A row for each task; columns are the scores of each model: `frame["personal"]`.

        The models that it is compared with have their names in `baselines`: `frame["local"]`.
        Also `frame.attrs["label"]` says that none of it is covered by the guarantee.
        """
        with needing("pandas", "to_frame", "data"):
            import pandas as pd
        models = {"personal": self, **self["baselines"]}
        each = {
            name: pd.DataFrame.from_dict(found["per_task"], orient="index")
            for name, found in models.items()
            if found.get("per_task")
        }
        frame = pd.concat(each, axis=1, names=["model", "score"])
        frame.index.name = "task"
        frame.attrs["label"] = self["label"]
        return frame

    def _repr_html_(self) -> str:
        return as_html("metrics", self)


def drawn() -> Any:
    """What draws runs."""
    from tacit.report import notebook  # slow to import, and not every run is drawn

    return notebook
