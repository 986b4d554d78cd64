"""A private mixed model behind `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from tacit.data.federation import Rows
from tacit.data.targets import KIND
from tacit.errors import TacitError
from tacit.families import expected_count
from tacit.local.recipes import Personalise
from tacit.methods import Method, Mixed
from tacit.privacy.sampling import Neighbours, Unit
from tacit.sklearn.base import Classifier, Regressor, whole
from tacit.sklearn.private import (
    AS_GIVEN,
    PrivateMultiTaskClassifier,
    PrivateMultiTaskRegressor,
    _Private,
)

MixedKind = Literal["regression", "count", "binary", "multiclass"]
CLASSES = ("binary", "multiclass")
KINDS = ("regression", "count", *CLASSES)


def _has_classes(self: PrivateMixedModel) -> bool:
    if self._kind() in CLASSES:
        return True
    raise AttributeError(f"an outcome of kind {self._kind()!r} has no classes")


class PrivateMixedModel(_Private):
    """A mixed model y = x'β + z'b + e with a guarantee: shared β, and own effects b for every task.

    Counts, yes or no, and classes have such scores instead: of the logarithm of the expected count,
    of the log odds, and one for every class. Columns of any size will do: common units are found by
    booked releases. Each task is predicted by β and its own effects; a task that was not there by β
    alone.

    Parameters
    ----------
    epsilon, delta, neighbours, unit, n_persons, at_most, tasks_epsilon : what to promise, as for
        `PrivateMultiTaskRegressor`; epsilon=None asks for no privacy, and gives the REML estimate
    kind : "regression"; "count" for numbers, 0 or more; "binary" or "multiclass" for classes; None
        for binary where y has two values, multiclass where it is text, and regression otherwise
    slopes : numbers of the columns of X with an own slope; every task has an own intercept
    rounds : None for what is usual: 6 with privacy, two of them for units and one for lengths
    random_state, ledger : as for `PrivateMultiTaskRegressor`

    Attributes
    ----------
    kind_ : what y was taken to be
    classes_ : the classes, sorted, where there are some; which ones is taken to be public
    billboard_coef_, billboard_intercept_ : [features] and a number: β, in the units of X and y;
        with several classes [classes, features] and [classes]
    coef_, intercept_ : the same for each task, β and own effects together; each is its own task's,
        and not covered by the guarantee if it is handed to others
    guarantee_, spent_, tasks_, n_features_in_, feature_names_in_ : as for
        `PrivateMultiTaskRegressor`
    """

    method = "mixed"
    model = "linear"
    fit_intercept = True
    target_scale = "task"
    kind_: MixedKind
    classes_: np.ndarray
    _for_several = "pass kind='multiclass'"

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        kind: MixedKind | None = None,
        slopes: Sequence[int] = (),
        neighbours: Neighbours = "add-remove",
        unit: Unit = "task",
        n_persons: int | None = None,
        at_most: int = 1,
        tasks_epsilon: float | None = None,
        rounds: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.kind: MixedKind | None = kind
        self.slopes = slopes
        self.neighbours: Neighbours = neighbours
        self.unit: Unit = unit
        self.n_persons = n_persons
        self.at_most = at_most
        self.tasks_epsilon = tasks_epsilon
        self.rounds = rounds
        self.random_state = random_state
        self.ledger = ledger

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The expected number or count of each row, or its likeliest class, by its own task."""
        if self._kind() in CLASSES:
            return Classifier.predict(self, X, tasks)  # type: ignore[arg-type]
        raw = self._raw(X, tasks)
        return expected_count(torch.from_numpy(raw)).numpy() if self.kind_ == "count" else raw

    @available_if(_has_classes)
    def predict_proba(self, X: Any, tasks: Any = None) -> np.ndarray:
        """How likely each class is [rows, classes], from the row's own task's model."""
        return Classifier.predict_proba(self, X, tasks)  # type: ignore[arg-type]

    @available_if(_has_classes)
    def decision_function(self, X: Any, tasks: Any = None) -> np.ndarray:
        """Logits: [rows] of the second class where there are two, else [rows, classes]."""
        return Classifier.decision_function(self, X, tasks)  # type: ignore[arg-type]

    def score(self, X: Any, y: Any, sample_weight: Any = None, tasks: Any = None) -> float:
        """R², the explained part of the deviance of counts, or accuracy; not covered by ε."""
        if self._kind() in CLASSES:
            return Classifier.score(self, X, y, sample_weight, tasks)  # type: ignore[arg-type]
        if self._kind() != "count":
            return Regressor.score(self, X, y, sample_weight, tasks)  # type: ignore[arg-type]
        from sklearn.metrics import d2_tweedie_score

        found = self.predict(X, tasks).clip(min=1e-12)
        return float(d2_tweedie_score(y, found, sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self):
        tags, kind = super().__sklearn_tags__(), self._kind()
        if kind in CLASSES:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self._several_classes())
        elif kind is not None:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
            tags.target_tags.positive_only = kind == "count"
        return tags

    # --- parameters ---

    def _kind(self) -> MixedKind | None:
        """What y is, as far as that is known."""
        return getattr(self, "kind_", self.kind)

    def _several_classes(self) -> bool:
        return self.kind != "binary"

    def _method(self) -> Method:
        if self.kind is not None and self.kind not in KINDS:
            raise TacitError(f"kind={self.kind!r}: choose one of {', '.join(KINDS)}, or None")
        given = self.slopes
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not listed or not all(whole(column) and column >= 0 for column in given):
            raise TacitError(f"slopes={given!r}: numbers of columns are needed, like (0, 3)")
        return Mixed(slopes=",".join(str(int(each)) for each in given))

    # --- the target ---

    def _last_step(self, method: Method | str) -> Personalise:
        """Whoever fits a mixed model wants its own effects, and no trees beside them."""
        return "none"

    def _public_units(self) -> bool:
        return self.kind_ != "regression"

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        self.kind_ = self.kind or _kind_of(y)
        if self.kind_ in CLASSES:
            codes = Classifier._encoded(self, y)  # type: ignore[arg-type]
            self.kind_ = "binary" if len(self.classes_) == 2 else "multiclass"
            return codes
        if self.kind_ == "count" and (y < 0).any():
            raise TacitError(
                f"y has {y[np.argmax(y < 0)]:g}, but counts are 0 or more: pass kind='regression'"
            )
        return y.astype(np.float64)

    def _target(self, rows: Rows) -> tuple[Tensor, dict[str, Any]]:
        if self.kind_ == "regression":
            y, about = PrivateMultiTaskRegressor._target(self, rows)  # type: ignore[arg-type]
        elif self.kind_ == "count":
            y, about = rows.y.float(), {"kind": "count", "outputs": 1, "assumptions": (AS_GIVEN,)}
        else:
            y, about = PrivateMultiTaskClassifier._target(self, rows)  # type: ignore[arg-type]
        if self.kind is None:  # rows told it
            about["assumptions"] = (*about["assumptions"], KIND)
        return y, about


def _kind_of(y: np.ndarray) -> MixedKind:
    """As a formula would take it: numbers are numbers, however few there are."""
    two = len(np.unique(y)) == 2
    return "binary" if two else "regression" if y.dtype.kind in "iuf" else "multiclass"
