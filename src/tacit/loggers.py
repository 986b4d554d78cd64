"""What other tools are told of a run: TensorBoard, MLflow, Weights & Biases, or one of your own.

`tacit.train(…, loggers=[tacit.loggers.TensorBoard("logs")])`. A logger gets events and computes
nothing: what a run measured anyway, and nothing of single rows or tasks. ε is called `epsilon`, and
`not_private/epsilon` where it promises nothing, as with noise from a seed. Everything that no ε
covers has `not_covered/` before its name. So no plot can hide either.

Whoever sends events to a server sends these scores along. `scores=False` leaves them out, and then
only what is covered by the guarantee is logged.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from tacit.engine.progress import OnRound, Progress
from tacit.errors import TacitError
from tacit.privacy.guarantee import NOT_COVERED
from tacit.words import shortened

UNCOVERED = "not_covered/"
"""Before the name of every figure that was computed over tasks without noise."""
VOID = "not_private/"
"""Before the name of an ε that promises nothing."""
FINAL = "final/"
LABEL = f"figures under {UNCOVERED} are {NOT_COVERED}"


class Logger(Protocol):
    """Something that is told of a run."""

    scores: bool
    """Whether it is told what no ε covers."""

    def start(self, settings: Mapping[str, str]) -> None:
        """A run begins with these settings."""

    def log(self, figures: Mapping[str, float], round: int) -> None:
        """So it stood after so many rounds."""

    def end(self, words: Mapping[str, str]) -> None:
        """It is over; `words` has its `guarantee`, and is empty where the run failed."""


class TensorBoard:
    """Files for TensorBoard in `folder`. It needs `tacit[tensorboard]`."""

    def __init__(self, folder: str, *, scores: bool = True) -> None:
        self.folder, self.scores = folder, scores
        _require("tensorboard")
        self._tool = importlib.import_module("torch.utils.tensorboard")

    def start(self, settings: Mapping[str, str]) -> None:
        self._writer = self._tool.SummaryWriter(self.folder)
        lines = (f"    {name} = {value}" for name, value in settings.items())
        self._writer.add_text("settings", "\n".join(lines))
        self._writer.add_text("label", LABEL)

    def log(self, figures: Mapping[str, float], round: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)

    def end(self, words: Mapping[str, str]) -> None:
        for name, text in words.items():
            self._writer.add_text(name, text)
        self._writer.close()


class MLflow:
    """A run of MLflow in `experiment`, where `tracking_uri` says. It needs `tacit[mlflow]`."""

    def __init__(
        self, experiment: str = "tacit", tracking_uri: str | None = None, *, scores: bool = True
    ) -> None:
        self.experiment, self.tracking_uri, self.scores = experiment, tracking_uri, scores
        self._tool = _require("mlflow")

    def start(self, settings: Mapping[str, str]) -> None:
        client = self._client = self._tool.MlflowClient(tracking_uri=self.tracking_uri)
        found = client.get_experiment_by_name(self.experiment)
        place = client.create_experiment(self.experiment) if found is None else found.experiment_id
        self._run = client.create_run(place, tags={"label": LABEL}).info.run_id
        for name, value in settings.items():
            client.log_param(self._run, name, value)

    def log(self, figures: Mapping[str, float], round: int) -> None:
        for name, value in figures.items():
            self._client.log_metric(self._run, name, value, step=round)

    def end(self, words: Mapping[str, str]) -> None:
        for name, text in words.items():
            self._client.set_tag(self._run, name, text)
        self._client.set_terminated(self._run, "FINISHED" if words else "FAILED")


class WandB:
    """A run of Weights & Biases in `project`. It needs `wandb`, and sends events to its server."""

    def __init__(self, project: str = "tacit", *, scores: bool = True) -> None:
        self.project, self.scores = project, scores
        self._tool = _require("wandb")

    def start(self, settings: Mapping[str, str]) -> None:
        self._run = self._tool.init(project=self.project, config=dict(settings), notes=LABEL)

    def log(self, figures: Mapping[str, float], round: int) -> None:
        self._run.log(dict(figures), step=round)

    def end(self, words: Mapping[str, str]) -> None:
        self._run.summary.update(dict(words))
        self._run.finish(exit_code=0 if words else 1)


class Announced:
    """A run that tells loggers; while it lasts they are told of rounds as `progress` is."""

    def __init__(
        self, progress: Progress, loggers: Sequence[Logger], *, void: bool = False
    ) -> None:
        """`void` says that the run's ε promises nothing."""
        self._progress, self._loggers = progress, loggers
        self._epsilon = f"{VOID}epsilon" if void else "epsilon"
        self.say = progress.say

    @contextlib.contextmanager
    def during(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Loggers are told of the begin, and of the end too if anything goes wrong."""
        told = {name: value for name, value in settings.items() if name != "data"}  # where it lies
        plain = {name: shortened(str(value)) for name, value in told.items() if value is not None}
        started: list[Logger] = []
        try:
            for logger in self._loggers:
                logger.start(plain)
                started.append(logger)
            yield
        except BaseException:
            for logger in started:
                logger.end({})
            raise

    @contextlib.contextmanager
    def rounds(self, title: str, total: int) -> Iterator[OnRound]:
        with self._progress.rounds(title, total) as shown:

            def on_round(round: int, point: dict[str, Any]) -> None:
                shown(round, point)
                if point.get("round") == round:  # something was measured
                    scores = {n: v for n, v in point.items() if n not in ("round", "epsilon")}
                    self._log({self._epsilon: point.get("epsilon")}, scores, round)

            yield on_round

    def end(self, result: Mapping[str, Any]) -> None:
        """A finished run, by the content of its result.json."""
        promise, scores = result["guarantee"], dict(result["metrics"]["overall"])
        for name, other in (result["metrics"].get("baselines") or {}).items():
            scores |= {f"{name}/{score}": value for score, value in other["overall"].items()}
        rounds = int(result["curve"][-1]["round"]) if result["curve"] else 0
        final = {f"{FINAL}{name}": value for name, value in scores.items()}
        self._log({self._epsilon: promise["epsilon"]}, final, rounds)
        for logger in self._loggers:
            logger.end({"guarantee": str(promise["in_words"])})

    def _log(self, covered: Mapping[str, Any], scores: Mapping[str, Any], round: int) -> None:
        marked = {f"{UNCOVERED}{name}": value for name, value in scores.items()}
        for logger in self._loggers:
            figures = {**covered, **(marked if logger.scores else {})}
            logger.log({n: float(v) for n, v in figures.items() if v is not None}, round)


def _require(package: str) -> Any:
    """The tool itself; without it, a sentence before anything runs."""
    try:
        return importlib.import_module(package)
    except ImportError:
        named = package if package == "wandb" else f"'tacit[{package}]'"
        raise TacitError(f"this logger needs {package}: pip install {named}") from None
