"""How good predictions are: for each task, and over all of them.

Per task, NaN where undefined (a part without rows, one class only, no variance):

| name       | kinds                  | meaning                                                  |
|------------|------------------------|----------------------------------------------------------|
| `loss`     | all                    | MSE, Poisson deviance, log loss, cross entropy            |
| `accuracy` | classes                | share of right rows (of right labels, or pixels)         |
| `auc`      | binary                 | area under the ROC curve, ties count half                |
| `nmse`     | regression             | MSE / variance of the task's targets                     |
| `deviance` | count                  | loss / that of the task's mean count                     |
| `f1`       | multilabel             | 2 TP / (2 TP + FP + FN) over all labels                  |
| `miou`     | segmentation           | TP / (TP + FP + FN) of a class, mean over classes         |
| `concordance`, `brier` | survival   | `tacit.survival` says how they are computed               |

Overall, None where undefined:

| name                                             | meaning                                      |
|--------------------------------------------------|----------------------------------------------|
| `loss`, `accuracy`, `f1`, `miou`, `auc_pooled`   | over all rows as if they were one task        |
| `concordance`, `brier`                           | all pairs inside tasks, or all rows, alike    |
| `majority`                                       | share of the commonest class (binary, multi…) |
| `nmse_pooled`                                    | MSE of all rows / variance of all targets     |
| `deviance_pooled`                                | loss of all rows / that of their mean count   |
| `…_per_task` of each score, `auc`                | mean over tasks                               |
| `worst_tenth`                                    | mean task score over the worst tenth of tasks |

Labels and pixels that are missing count nowhere. Where tasks work on different heads, `per_head`
and `per_label` say how well each is predicted, over all tasks that work on it.

All of it is computed over several tasks, so it is not covered by any guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import pixels, survival
from tacit.data.federation import NUMBERS, ONE_OUTPUT, Kind, Rows, TargetScale
from tacit.data.heads import Heads
from tacit.errors import TacitError
from tacit.families import expected_count

Array = np.ndarray | Tensor
RARE = 0.9
"""Where more rows than this are of one class, accuracy says little: always saying it looks good."""


@dataclass(frozen=True)
class Metrics:
    """Scores of one part of a federation; `per_task[name][k]` belongs to task k."""

    kind: Kind
    rows: np.ndarray
    per_task: dict[str, np.ndarray]
    overall: dict[str, float | None]
    per_label: np.ndarray | None = None
    """Accuracy of each label (class of pixels), where there are several."""
    per_head: np.ndarray | None = None
    """Accuracy of each head, where tasks work on different ones."""
    row_losses: np.ndarray | None = None
    """The loss of each row, for one task to judge by; NaN for a row without any label."""
    curves: list[survival.Curve] | None = None
    """Of the first few tasks, for an outcome over time."""

    def task(self, k: int) -> dict[str, float | None]:
        """The scores of one task."""
        return {name: _or_none(values[k]) for name, values in self.per_task.items()}

    def to_json(self) -> dict:
        """Plain lists and numbers; undefined and infinite values are None."""
        return {
            "kind": self.kind,
            "rows": self.rows.tolist(),
            "per_task": {
                name: [_finite_or_none(value) for value in values.tolist()]
                for name, values in self.per_task.items()
            },
            "overall": {
                name: None if value is None else _finite_or_none(value)
                for name, value in self.overall.items()
            },
            "per_label": _list(self.per_label),
            "per_head": _list(self.per_head),
        }


def main_score(
    kind: Kind, heads: Heads | None = None, majority: float | None = None
) -> tuple[str, bool]:
    """The overall score to compare runs by, and whether higher is better.

    Multilabel is compared by F1: with hundreds of rare labels, saying no to all is 99 % accurate.
    Where nearly all scored rows are of one class (their share `majority` is computed over tasks, as
    scores are), it is the area under the ROC curve, or log loss for more than two classes.
    Where tasks work on different heads, the mean over tasks counts, as in the literature.
    """
    if rare(kind, majority):
        return ("loss", False) if kind == "multiclass" or majority == 1 else ("auc_pooled", True)
    if heads is not None and kind == "multilabel":
        return "accuracy_per_task", True
    return {
        "regression": ("nmse_pooled", False),
        "count": ("deviance_pooled", False),
        "binary": ("accuracy", True),
        "multiclass": ("accuracy", True),
        "multilabel": ("f1", True),
        "segmentation": ("miou_per_task", True),
        "survival": ("concordance", True),
    }[kind]


def rare(kind: Kind, majority: float | None) -> bool:
    """Whether all classes but one are rare."""
    return kind in ("binary", "multiclass") and majority is not None and majority > RARE


def task_score(
    kind: Kind, heads: Heads | None = None, majority: float | None = None
) -> tuple[str, bool]:
    """The score of one task that goes with `main_score`.

    For numbers and counts it is `loss`; so it is where classes are rare, because many tasks have
    rows of one class only, and no ROC curve.
    """
    if rare(kind, majority):
        return "loss", False
    name, higher = main_score(kind, heads)
    return ("loss", False) if kind in NUMBERS else (name.removesuffix("_per_task"), higher)


def evaluate(
    kind: Kind, outputs: Array, targets: Array, offsets: Array, heads: Heads | None = None
) -> Metrics:
    """Scores from raw model outputs; task k owns rows `offsets[k]:offsets[k + 1]`.

    Outputs are predictions in the target's units [N] for regression, logarithms of them for count,
    logits [N] for binary, logits [N, C] for multiclass and multilabel, [N, C, height, width] for
    segmentation, logarithms of hazards [N, intervals] for survival. Rows whose output is NaN count
    as wrong, with an infinite loss, so that a model that broke down does not look undefined.
    """
    out, y = _numpy(outputs), _numpy(targets)
    if kind in ONE_OUTPUT and out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    starts = _numpy(offsets).astype(np.int64)
    counts = np.diff(starts)
    _check_shapes(kind, out, y, starts)
    task = np.repeat(np.arange(len(counts)), counts)
    broken = np.asarray(np.isnan(out).any(axis=tuple(range(1, out.ndim))))
    out = np.where(np.isnan(out), 0.0, out)
    cells = _cells(kind, out, y)

    # One pass over rows gives sums per task; the overall score is made from the same sums.
    known, curves = cells.known.sum(axis=1) if cells else np.ones(len(y)), None
    loss = np.where(broken, math.inf, cells.losses() if cells else _losses(kind, out, y))
    loss = np.where(known > 0, loss, 0.0)  # a row without any label has no loss
    per_task = {"loss": _ratio(_sum(loss, task, counts), _sum(known > 0, task, counts))}
    overall = {
        "loss": float(_ratio(loss.sum(), (known > 0).sum())),
        "loss_per_task": _mean_defined(per_task["loss"]),
    }
    if kind in NUMBERS:
        name, one = "nmse" if kind == "regression" else "deviance", np.zeros(len(y), dtype=np.int64)
        per_task[name] = _ratio(per_task["loss"], spread(kind, y, task, counts))
        whole = spread(kind, y, one, np.array([len(y)]))[0]
        overall[f"{name}_pooled"] = float(_ratio(overall["loss"], whole))
        overall[f"{name}_per_task"] = _mean_defined(per_task[name])
    elif kind == "survival":
        more, pooled, curves = survival.scores(out, y, starts, broken)
        per_task, overall = per_task | more, overall | pooled
    else:
        right = np.where(broken, 0.0, cells.right.sum(axis=1) if cells else _right(kind, out, y))
        per_task["accuracy"] = _ratio(_sum(right, task, counts), _sum(known, task, counts))
        overall["accuracy"] = float(_ratio(right.sum(), known.sum()))
        overall["accuracy_per_task"] = _mean_defined(per_task["accuracy"])
    if kind == "binary":
        per_task["auc"] = np.where(_sum(broken, task, counts) > 0, math.nan, auc(out, y, starts))
        overall["auc"] = _mean_defined(per_task["auc"])
        pooled = math.nan if broken.any() else auc(out, y, np.array([0, len(y)]))[0]
        overall["auc_pooled"] = float(pooled)
    if kind == "multilabel":
        hits, whole = _f1_parts(out, y, broken)
        per_task["f1"] = _ratio(_sum(hits, task, counts), _sum(whole, task, counts))
        overall["f1"] = float(_ratio(hits.sum(), whole.sum()))
        overall["f1_per_task"] = _mean_defined(per_task["f1"])
    if kind == "segmentation":
        per_task["miou"] = pixels.miou(out, y, task, len(counts), broken)
        overall["miou"] = float(pixels.miou(out, y, np.zeros_like(task), 1, broken)[0])
        overall["miou_per_task"] = _mean_defined(per_task["miou"])
    if kind in ("binary", "multiclass") and len(y):
        overall["majority"] = float(np.unique(y, return_counts=True)[1].max() / len(y))
    name, higher = task_score(kind, heads, overall.get("majority"))
    overall["worst_tenth"] = worst_tenth(per_task[name], higher)
    found = {name: _or_none(v) for name, v in overall.items()}
    each = np.where(known > 0, loss, math.nan)
    if cells is None:
        return Metrics(kind, counts, per_task, found, row_losses=each, curves=curves)
    right, known = np.where(broken[:, None], 0, cells.right), cells.known
    per_label = _ratio(right.sum(axis=0), known.sum(axis=0))
    per_head = None
    if heads is not None:
        head = np.repeat(np.arange(len(heads)), heads.outputs)
        sums = [np.bincount(head, weights=v.sum(axis=0)) for v in (right, known)]
        per_head = _ratio(*sums)
    return Metrics(kind, counts, per_task, found, per_label, per_head, each)


def evaluate_rows(
    kind: Kind,
    outputs: Array,
    rows: Rows,
    target_scale: TargetScale | None = None,
    heads: Heads | None = None,
) -> Metrics:
    """Scores of a model's outputs on rows as a Federation keeps them, in the target's units."""
    if target_scale is None:
        return evaluate(kind, outputs, rows.y, rows.offsets, heads)
    return evaluate(
        kind,
        original_units(outputs, rows.offsets, target_scale),
        original_units(rows.y, rows.offsets, target_scale),
        rows.offsets,
    )


def original_units(values: Array, offsets: Array, target_scale: TargetScale) -> np.ndarray:
    """Undo each task's scaling of its regression target."""
    counts = np.diff(_numpy(offsets).astype(np.int64))
    shift, scale = (
        np.repeat(_numpy(side), counts) for side in (target_scale.shift, target_scale.scale)
    )
    return shift + scale * _numpy(values).reshape(len(shift))


def auc(scores: np.ndarray, y: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Area under the ROC curve of each task; NaN where a task has one class only.

    From ranks (Mann-Whitney): tied scores share the mean of the ranks they cover.
    """
    counts = np.diff(offsets)
    task = np.repeat(np.arange(len(counts)), counts)
    if not len(scores):
        return np.full(len(counts), math.nan)
    order = np.lexsort((scores, task))
    s, t, positive = scores[order], task[order], y[order] > 0.5
    opens = np.ones(len(s), dtype=bool)
    opens[1:] = (s[1:] != s[:-1]) | (t[1:] != t[:-1])
    first = np.flatnonzero(opens)
    size = np.diff(np.append(first, len(s)))
    tie = np.cumsum(opens) - 1
    rank = (first + (size + 1) / 2.0)[tie] - offsets[t]
    ones = _sum(positive, t, counts)
    zeros = counts - ones
    above = _sum(np.where(positive, rank, 0.0), t, counts) - ones * (ones + 1) / 2.0
    return _ratio(above, ones * zeros)


def worst_tenth(scores: np.ndarray, higher_is_better: bool) -> float:
    """Mean over the worst tenth of the tasks that have a score, at least one."""
    defined = np.sort(scores[~np.isnan(scores)])
    if not len(defined):
        return math.nan
    count = math.ceil(len(defined) / 10)
    return float((defined[:count] if higher_is_better else defined[-count:]).mean())


def _losses(kind: Kind, out: np.ndarray, y: np.ndarray) -> np.ndarray:
    if kind == "regression":
        with np.errstate(over="ignore"):
            return (out - y) ** 2
    if kind == "count":
        return _deviance(out, expected_count(torch.from_numpy(out)).numpy(), y)
    if kind == "survival":
        return survival.row_losses(out, y)
    if kind == "multiclass":
        top = out.max(axis=1, initial=-math.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            spread = np.log(np.exp(out - top[:, None]).sum(axis=1))
            lost = spread - (out[np.arange(len(y)), y.astype(np.int64)] - top)
        return np.where(np.isnan(lost), math.inf, lost)
    return _log_loss(out, y)


def _log_loss(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    # log(1 + exp(-z)) for the right side of the logit: exact for large logits as well
    return np.logaddexp(0.0, np.where(y > 0.5, -out, out))


def _right(kind: Kind, out: np.ndarray, y: np.ndarray) -> np.ndarray:
    right = out.argmax(axis=1) == y if kind == "multiclass" else (out > 0) == (y > 0.5)
    return right.astype(np.float64)


def _cells(kind: Kind, out: np.ndarray, y: np.ndarray) -> pixels.Cells | None:
    """What is right and wrong in a row that has several targets, some of them perhaps missing."""
    if kind == "segmentation":
        return pixels.cells(out, y)
    if kind != "multilabel":
        return None
    known = ~np.isnan(y)
    lost = np.where(known, _log_loss(out, y), 0.0)
    return pixels.Cells(known, ((out > 0) == (y > 0.5)) & known, lost.sum(axis=1))


def _f1_parts(out: np.ndarray, y: np.ndarray, broken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2 TP, and 2 TP + FP + FN, of each row; broken rows predict nothing."""
    said, true = (out > 0) & ~broken[:, None] & ~np.isnan(y), y > 0.5
    hits = 2.0 * (said & true).sum(axis=1)
    return hits, (said.sum(axis=1) + true.sum(axis=1)).astype(np.float64)


def _deviance(scores: np.ndarray, mean: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Poisson's: twice what the likelihood lacks to that of the count itself.

    From the score, the mean's logarithm: that is known even where the mean is too small to write.
    """
    best = y * np.log(np.where(y > 0, y, 1.0)) - y
    return np.maximum(2 * (best - y * scores + mean), 0.0)


def spread(kind: Kind, y: np.ndarray, task: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The loss of each task's own mean; exactly 0 for equal targets, whatever rounding says."""
    if not len(y):
        return np.zeros(len(counts))
    starts = np.minimum(np.cumsum(counts) - counts, len(y) - 1)
    differs = _sum(y != y[starts][task], task, counts) > 0
    mean = _mean(y, task, counts)[task]
    if kind == "regression":
        lost = (y - mean) ** 2
    else:
        lost = _deviance(np.log(np.where(mean > 0, mean, 1.0)), mean, y)
    return np.where(differs, _mean(lost, task, counts), 0.0)


def _sum(values: np.ndarray, task: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.bincount(task, weights=values.astype(np.float64), minlength=len(counts))


def _mean(values: np.ndarray, task: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return _ratio(_sum(values, task, counts), counts)


def _ratio(part, whole) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(whole) > 0, np.divide(part, whole), math.nan)


def _average(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _mean_defined(values: np.ndarray) -> float:
    return _average(values[~np.isnan(values)])


def _numpy(values: Array) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return array.astype(np.float64)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _list(values: np.ndarray | None) -> list[float | None] | None:
    return None if values is None else [_finite_or_none(value) for value in values.tolist()]


def _check_shapes(kind: Kind, out: np.ndarray, y: np.ndarray, offsets: np.ndarray) -> None:
    several = dict.fromkeys(("multilabel", "survival"), (2, 2))
    axes = ({"multiclass": (2, 1), "segmentation": (4, 4)} | several).get(kind, (1, 1))
    good = (out.ndim, y.ndim) == axes and len(out) == len(y) == offsets[-1]
    if not good or (kind in several and out.shape != y.shape):
        raise TacitError(
            f"outputs have shape {out.shape}, targets {y.shape} and offsets end at {offsets[-1]}, "
            f"which does not fit {kind}; pass one row of outputs for each target"
        )
