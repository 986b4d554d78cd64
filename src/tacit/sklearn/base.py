"""What all estimators share: rows by task, models by task, and who is predicted by which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from tacit.data.arrays import task_array
from tacit.data.common import in_original_units
from tacit.data.federation import Federation, Kind, Rows, TargetScale
from tacit.data.persons import Owners
from tacit.data.preprocess import Preprocessing
from tacit.engine import evaluate
from tacit.engine.blend import Blend
from tacit.errors import TacitError
from tacit.local.flat import FlatModel
from tacit.privacy import Guarantee


@dataclass(frozen=True)
class Combined:
    """What tasks combine with their shared models at the end, for rows as they are given."""

    blend: Blend
    columns: Preprocessing | None
    target: TargetScale | None

    def __call__(self, X: np.ndarray, out: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Predicted targets, or logits, from those of shared models; who was not there has only
        these."""
        there, task = codes >= 0, torch.from_numpy(codes[codes >= 0])
        x, said = torch.from_numpy(X[there]), torch.from_numpy(out[there])
        seen = x.float() if self.columns is None else self.columns.apply(x, task)
        scale, shift = said.new_ones(()), said.new_zeros(())
        if self.target is not None:
            scale, shift = self.target.scale[task].to(said), self.target.shift[task].to(said)
        found = out.copy()
        found[there] = (shift + scale * self.blend(seen, (said - shift) / scale, task)).numpy()
        return found


class MultiTask(BaseEstimator, ABC):
    """What all estimators share: rows by task, models by task, and who is predicted by which."""

    guarantee_: Guarantee
    tasks_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    billboard_coef_: np.ndarray
    billboard_intercept_: np.ndarray
    n_features_in_: int
    _network: tuple[nn.Module, Kind, Tensor, Tensor, np.ndarray, np.ndarray] | None
    _combined: Combined | None = None
    _limits: Preprocessing | None = None
    """Within which a linear model in the units of X holds."""
    _no_newcomers: str
    """Why a task that was not there cannot be predicted; empty if it can."""

    @abstractmethod
    def _encoded(self, y: np.ndarray) -> np.ndarray:
        """The checked target as models see it."""

    def _several_classes(self) -> bool:
        return False

    _for_several = 'use PrivateMultiTaskClassifier(method="pmtl")'
    """What to do where there are more classes than that."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def _forget(self) -> None:
        """What an earlier fit found: it may not stand beside a later one, even if that fails."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _rows(
        self,
        X: Any,
        y: Any,
        tasks: Any,
        owners: Callable[[np.ndarray, np.ndarray], Owners | None] = lambda x, y: None,
    ) -> Rows:
        """Checked rows in double precision, task after task; sets what is known of them.

        `owners` says whose they are, where that matters.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=is_regressor(self))
        target = self._encoded(y)
        self._named = tasks is not None
        if tasks is None:
            self.tasks_, codes = np.array([None], dtype=object), np.zeros(len(X), dtype=np.int64)
        else:
            labels = task_array(tasks)
            check_length("tasks", labels, X)
            self.tasks_, codes = _grouped(labels)
        order, found = np.argsort(codes, kind="stable"), owners(X, target)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))])
        x, target = np.ascontiguousarray(X[order]), target[order]
        persons = None if found is None else torch.from_numpy(found.at(order, codes[order]))
        x, y = torch.from_numpy(x), torch.from_numpy(target)
        return Rows(x, y, torch.from_numpy(offsets), persons)

    def _codes(self, tasks: Any, X: np.ndarray) -> np.ndarray:
        """The number of each row's task; −1 for one that was not there."""
        if not self._named:
            if tasks is not None:
                raise TacitError("fit was called without tasks: leave them out here as well")
            return np.zeros(len(X), dtype=np.int64)
        codes = np.full(len(X), -1)
        if tasks is not None:
            labels = task_array(tasks)
            check_length("tasks", labels, X)
            if _text(labels) != _text(self.tasks_):
                kinds = ("numbers", "text") if _text(self.tasks_) else ("text", "numbers")
                raise TacitError("tasks are {}, but were {} at fit: give the same".format(*kinds))
            known = {task: number for number, task in enumerate(self.tasks_.tolist())}
            codes = np.array([known.get(task, -1) for task in labels.tolist()], dtype=np.int64)
        if self._no_newcomers and (codes < 0).any():
            task = "no task is named" if tasks is None else "a task was not there at fit"
            raise TacitError(f"{task}, and {self._no_newcomers}")
        return codes

    def _keep_linear(self, w: np.ndarray, outputs: int, scale: np.ndarray, shift: np.ndarray):
        """Weights [tasks + 1, size], the billboard's last, in units of the target."""
        p = self.n_features_in_
        coef = w[:, : outputs * p].reshape(len(w), outputs, p) * scale[:, None, None]
        bias = w[:, outputs * p :] if w.shape[1] > outputs * p else np.zeros((len(w), outputs))
        intercept = bias * scale[:, None] + shift[:, None]
        if outputs == 1:
            coef, intercept = coef[:, 0], intercept[:, 0]
        self._network = None
        self.coef_, self.billboard_coef_ = coef[:-1], coef[-1]
        self.intercept_, self.billboard_intercept_ = intercept[:-1], intercept[-1]

    def _raw(self, X: Any, tasks: Any) -> np.ndarray:
        """Predicted targets, or logits, of each row by its own task's model."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        codes = self._codes(tasks, X)
        out = self._shared(X, codes)
        return out if self._combined is None else self._combined(X, out, codes)

    def _shared(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The same by the shared model that each task ended with."""
        if self._network is None:
            X = X if self._limits is None else self._limits.within(X, codes)
            coef = np.concatenate([self.coef_, self.billboard_coef_[None]])[codes]
            intercept = np.append(self.intercept_, self.billboard_intercept_[None], axis=0)[codes]
            return np.einsum("n...p,np->n...", coef, X) + intercept
        module, kind, w, buffers, scale, shift = self._network

        def own(k: Tensor) -> tuple[Tensor, Tensor]:
            return w[k], buffers[k]

        x = torch.from_numpy(X.astype(np.float32))
        out = evaluate.outputs_by_task(FlatModel(module, kind), own, x, codes).double().numpy()
        return out if kind != "regression" else out * scale[codes] + shift[codes]


class Regressor(RegressorMixin):
    def _encoded(self, y: np.ndarray) -> np.ndarray:
        return y.astype(np.float64)

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The target of each row, from its own task's model."""
        return self._raw(X, tasks)  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any, sample_weight: Any = None, tasks: Any = None) -> float:
        """R² over all rows together: not covered by the guarantee."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X, tasks), sample_weight=sample_weight))


class Classifier(ClassifierMixin):
    classes_: np.ndarray

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._several_classes()  # type: ignore[attr-defined]
        return tags

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise TacitError("y has one class only, but at least two classes are needed")
        if len(self.classes_) > 2 and not self._several_classes():  # type: ignore[attr-defined]
            raise TacitError(
                f"Only binary classification is supported by method={self.method!r}, but y has "  # type: ignore[attr-defined]
                f"{len(self.classes_)} classes: {self._for_several}"  # type: ignore[attr-defined]
            )
        return codes.astype(np.float64 if len(self.classes_) == 2 else np.int64)

    def decision_function(self, X: Any, tasks: Any = None) -> np.ndarray:
        """Logits: [rows] of the second class where there are two, else [rows, classes]."""
        return self._raw(X, tasks)  # type: ignore[attr-defined]

    def predict_proba(self, X: Any, tasks: Any = None) -> np.ndarray:
        """How likely each class is [rows, classes], from the row's own task's model."""
        from scipy.special import expit, softmax

        logits = self.decision_function(X, tasks)
        if logits.ndim == 2:
            return softmax(logits, axis=1)
        return np.stack([expit(-logits), expit(logits)], axis=1)

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The likeliest class of each row, from its own task's model."""
        logits = self.decision_function(X, tasks)
        return self.classes_[
            logits.argmax(axis=1) if logits.ndim == 2 else (logits > 0).astype(int)
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None, tasks: Any = None) -> float:
        """Accuracy over all rows together: not covered by the guarantee."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, tasks), sample_weight=sample_weight))


def whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def columns_of(estimator: Any, number: int) -> list[str]:
    """The names of so many columns."""
    return [*getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(number)])]


def check_flag(value: Any, name: str) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TacitError(f"{name}={value!r}: True or False is needed")


def check_length(name: str, labels: Any, X: np.ndarray) -> None:
    if len(labels) != len(X):
        raise TacitError(
            f"X has {len(X)} rows, but {name} has {len(labels)}: give one for each row"
        )


def _text(labels: np.ndarray) -> bool:
    return labels.dtype.kind == "U" or any(isinstance(label, str) for label in labels.flat)


def _grouped(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tasks in their order, and the number of each row's."""
    if labels.dtype.kind != "O":
        return np.unique(labels, return_inverse=True)
    found: dict[Any, int] = {}
    codes = np.array([found.setdefault(label, len(found)) for label in labels.tolist()])
    try:
        order = sorted(found)
    except TypeError:  # numbers beside text
        order = sorted(found, key=lambda label: (type(label).__name__, str(label)))
    tasks, rank = np.empty(len(order), dtype=object), np.empty(len(order), dtype=np.int64)
    tasks[:] = order
    rank[[found[label] for label in order]] = np.arange(len(order))
    return tasks, rank[codes]


def linear_in_original_units(federation: Federation, w: Tensor) -> np.ndarray:
    """Models [tasks + 1, size] for rows as they were given; each class has its own weights."""
    outputs, p = federation.outputs, w.shape[1] // federation.outputs - 1
    slopes, biases = w[:, : outputs * p].unflatten(1, (outputs, p)), w[:, outputs * p :]
    each = [
        in_original_units(federation, torch.cat([slopes[:, k], biases[:, k : k + 1]], dim=1))
        for k in range(outputs)
    ]
    sides = [one[:, :-1] for one in each], [one[:, -1:] for one in each]
    return torch.cat([*sides[0], *sides[1]], dim=1).numpy()
