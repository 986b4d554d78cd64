"""Reading the scores of a result: the main score, and each task with and without the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.lacking import in_words
from tacit.report.words import MINUS, NARROW, NOTHING

SHORT = {
    "accuracy": "accuracy",
    "accuracy_per_task": "accuracy, mean over tasks",
    "auc": "area under the ROC curve, mean over tasks",
    "auc_pooled": "area under the ROC curve",
    "majority": "rows of the commonest class",
    "f1": "F1 score",
    "f1_per_task": "F1 score, mean over tasks",
    "miou": "mean intersection over union",
    "miou_per_task": "mean intersection over union, mean over tasks",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "nmse": "relative squared error",
    "nmse_pooled": "relative squared error",
    "nmse_per_task": "relative squared error, mean over tasks",
    "loss_per_task": "loss, mean over tasks",
    "deviance": "relative deviance",
    "deviance_pooled": "relative deviance",
    "deviance_per_task": "relative deviance, mean over tasks",
    "concordance": "concordance",
    "concordance_per_task": "concordance, mean over tasks",
    "brier": "Brier score",
    "brier_per_task": "Brier score, mean over tasks",
    "worst_tenth": "worst tenth of tasks",
}
LOSSES = {"regression": "mean squared error", "count": "mean Poisson deviance"}
_UNION = (
    "Intersection over union of a class: pixels that are rightly given it, as a share of all that "
    "are given it or should be; the mean over classes is shown, and 1 is perfect."
)
EXPLAINED = {
    "accuracy_per_task": (
        "Accuracy of a task: the share of right answers; labels of heads that it does not hold "
        "count nowhere. Every task counts the same, however many rows it has."
    ),
    "miou": _UNION,
    "miou_per_task": f"{_UNION} Every task counts the same, however many rows it has.",
    "nmse_pooled": (
        "Relative squared error (NMSE): mean squared error divided by the variance of all targets; "
        "0 is perfect, 1 is as good as always predicting the mean."
    ),
    "deviance_pooled": (
        "Relative deviance: the Poisson deviance divided by that of one rate for all rows; 0 is "
        "perfect, 1 is as good as always predicting the mean count."
    ),
    "auc_pooled": (
        "Area under the ROC curve: of a row of each class, how often the right one gets the higher "
        "prediction; 1 is perfect, 0.5 is chance."
    ),
    "concordance": (
        "Concordance (Harrell's): of two rows of one task, how often the one whose event came "
        "first got the higher risk; 1 is perfect, 0.5 is chance."
    ),
    "f1": "F1 score: the balance of precision and recall over all labels; 1 is perfect.",
}
BASELINES = {
    "constant": "own mean",
    "local": "best alone",
    "global": "one model for all",
    "open": "not private",
}
"""What a run is compared with, as it is called wherever it is shown, and in this order."""
SAME = 1e-9
"""Relative difference below which two scores differ by rounding only."""


@dataclass(frozen=True)
class Score:
    """One kind of score: its name in words, which way is better, how it is written."""

    name: str
    words: str
    higher: bool

    @property
    def percent(self) -> bool:
        return self.name.startswith(("accuracy", "majority"))

    @property
    def factor(self) -> float:
        return 100.0 if self.percent else 1.0

    @property
    def axis(self) -> str:
        return f"{self.words} (%)" if self.percent else self.words

    @property
    def better(self) -> str:
        return "higher is better" if self.higher else "lower is better"

    def decimals(self, values: Iterable[float | None]) -> int:
        """Digits after the point so that a typical value of this column shows three digits."""
        finite = [abs(v) for v in map(number, values) if math.isfinite(v) and v != 0]
        if self.percent or not finite:
            return 1 if self.percent else 3
        return int(np.clip(2 - math.floor(math.log10(float(np.median(finite)))), 0, 8))

    def text(self, value: float | None, decimals: int | None = None, *, sign: bool = False) -> str:
        """The value as it is shown; `sign` for differences, which come in points for per cents."""
        x = number(value)
        if not math.isfinite(x):
            return NOTHING
        digits = self.decimals([x]) if decimals is None else decimals
        shown = f"{x * self.factor:{'+' if sign else ''},.{digits}f}"
        shown = shown.replace(",", NARROW).replace("-", MINUS)
        return f"{shown} %" if self.percent and not sign else shown


@dataclass(frozen=True)
class Comparison:
    """Each task with the others' help (`personal`) and without (`alone`).

    `gain` is positive where help helped, whichever way the score runs. A model that broke down has
    no score (null in result.json); it counts as an infinite loss, so that it is not overlooked.
    """

    names: tuple[str, ...]
    rows: np.ndarray
    alone: np.ndarray
    personal: np.ndarray
    gain: np.ndarray
    left_out: int

    def __len__(self) -> int:
        return len(self.names)

    @property
    def gaining(self) -> int:
        return int((self.gain > 0).sum())

    @property
    def losing(self) -> int:
        return int((self.gain < 0).sum())

    @property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.gain)

    def losers(self, most: int) -> list[int]:
        """Positions of the tasks that lose, the greatest loss first."""
        order = np.argsort(self.gain, kind="stable")
        return [int(k) for k in order[: min(most, self.losing)]]


Entry = tuple[str, Mapping[str, Any], Comparison | None]
"""A line of a table of scores: who, its scores, and its tasks against each alone."""


def number(value: Any) -> float:
    """A finite or infinite float; NaN where result.json has null."""
    return math.nan if value is None else float(value)


def overall_score(result: Mapping[str, Any]) -> Score:
    main = result["metrics"]["main"]
    return score(result, main["name"], main["higher_is_better"])


def task_score(result: Mapping[str, Any]) -> Score:
    """The score of one task that goes with the main score."""
    metrics = result["metrics"]
    main = metrics["main"]
    first: Mapping[str, Any] = next(iter(metrics["per_task"].values()), {})
    wanted = (main.get("per_task"), main["name"], "mse", "loss")
    name = next((n for n in wanted if n is not None and n in first), main["name"])
    higher = main["higher_is_better"] if name not in ("mse", "loss") else False
    return score(result, name, higher)


def score(result: Mapping[str, Any], name: str, higher: bool) -> Score:
    words = SHORT.get(name, name.replace("_", " "))
    if name == "loss":
        kind = result.get("federation", {}).get("kind")
        words = LOSSES.get(kind, "log loss")
    return Score(name, words, bool(higher))


def about_scores(result: Mapping[str, Any]) -> list[str]:
    """What must be said beside the headline, a sentence each."""
    metrics, main = result["metrics"], overall_score(result)
    overall, federation, said = metrics["overall"], result["federation"], []
    if metrics.get("part_label"):
        said.append(f"{metrics['part_label'][:1].upper()}{metrics['part_label'][1:]}.")
    if overall.get("majority") is not None and not main.name.startswith("accuracy"):
        shown = {name: score(result, name, True) for name in ("accuracy", "majority", "loss")}
        text = {name: kind.text(overall.get(name)) for name, kind in shown.items()}
        said.append(
            f"Accuracy is {text['accuracy']}, but always saying the commonest class would have "
            f"{text['majority']}; log loss is {text['loss']}."
        )
    judged = (result.get("verdict") or {}).get("relative") is not None
    if judged and task_score(result).percent and against_alone(result) is not None:
        said.append(
            "Tasks are counted by accuracy here. The verdict counts them by log loss, which also "
            "changes when a model gives the same answer with more or less confidence."
        )
    if federation.get("lacking"):
        words = in_words(federation["lacking"], federation["tasks"])
        said.append(f"{words[:1].upper()}{words[1:]}.")
    return said


def baseline(result: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """A baseline that has scores, or None."""
    found = (result["metrics"].get("baselines") or {}).get(name)
    return found if found and found.get("overall") else None


def against_alone(
    result: Mapping[str, Any], per_task: Mapping[str, Any] | None = None
) -> Comparison | None:
    """The run's personal models (or other `per_task` scores) against each task alone."""
    alone = (baseline(result, "local") or {}).get("per_task")
    mine = result["metrics"]["per_task"] if per_task is None else per_task
    if not alone or not mine:
        return None
    kind = task_score(result)
    names = [name for name in mine if name in alone]
    before = np.array([number(alone[name].get(kind.name)) for name in names])
    after = np.array([number(mine[name].get(kind.name)) for name in names])
    # An infinite loss and a null are the same thing: a model without a usable score.
    before[~np.isfinite(before)] = math.nan
    after[~np.isfinite(after)] = math.nan
    gain = (after - before) if kind.higher else (before - after)
    gain[np.abs(gain) <= SAME * np.maximum(np.abs(before), np.abs(after))] = 0.0
    gain[np.isnan(after)] = -math.inf
    gain[np.isnan(before)] = math.inf
    keep = ~(np.isnan(before) & np.isnan(after))
    rows = np.array([mine[name].get("rows") or 0 for name in names], dtype=np.int64)
    return Comparison(
        tuple(name for name, kept in zip(names, keep, strict=True) if kept),
        rows[keep],
        before[keep],
        after[keep],
        gain[keep],
        len(mine) - int(keep.sum()),
    )


def entries(result: Mapping[str, Any], personal: str) -> list[Entry]:
    """The personal models, and every baseline with scores under its name."""
    found: list[Entry] = [(personal, result["metrics"]["overall"], against_alone(result))]
    for name in {**BASELINES, **(result["metrics"].get("baselines") or {})}:
        if known := baseline(result, name):
            other = None if name == "local" else against_alone(result, known.get("per_task") or {})
            found.append((BASELINES.get(name, name), known["overall"], other))
    return found
