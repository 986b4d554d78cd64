"""A private mixed model behind `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.errors import TacitError
from tacit.methods import Method, Mixed
from tacit.privacy.sampling import Neighbours
from tacit.sklearn.base import whole
from tacit.sklearn.private import PrivateMultiTaskRegressor


class PrivateMixedModel(PrivateMultiTaskRegressor):
    """A mixed model y = x'β + z'b + e with a guarantee: shared β, and own effects b for every task.

    Numbers of any size will do: common units are found by booked releases. Each task is predicted
    by β and its own effects; a task that was not there by β alone.

    Parameters
    ----------
    epsilon, delta, neighbours : what to promise (`tacit.Privacy`), for whole tasks; epsilon=None
        asks for no privacy, and gives the REML estimate
    slopes : numbers of the columns of X with an own slope; every task has an own intercept
    rounds : None for what is usual: 6 with privacy, two of them for units and one for lengths
    random_state, ledger : as for `PrivateMultiTaskRegressor`

    Attributes
    ----------
    billboard_coef_, billboard_intercept_ : [features] and a number: β, in the units of X and y
    coef_, intercept_ : [tasks, features] and [tasks], β and own effects together; each row is its
        own task's, and not covered by the guarantee if it is handed to others
    guarantee_, spent_, tasks_, n_features_in_, feature_names_in_ : as for
        `PrivateMultiTaskRegressor`
    """

    method = "mixed"
    model = "linear"
    fit_intercept = True
    target_scale = "task"

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        slopes: Sequence[int] = (),
        neighbours: Neighbours = "add-remove",
        rounds: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.slopes = slopes
        self.neighbours: Neighbours = neighbours
        self.rounds = rounds
        self.random_state = random_state
        self.ledger = ledger

    def _method(self) -> Method:
        given = self.slopes
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not listed or not all(whole(column) and column >= 0 for column in given):
            raise TacitError(f"slopes={given!r}: numbers of columns are needed, like (0, 3)")
        return Mixed(slopes=",".join(str(int(each)) for each in given))
