"""A private mixed model behind `fit` and `predict`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data import preprocess
from tacit.data.common import in_original_units, own_units
from tacit.errors import TacitError
from tacit.federation import Federation, Rows
from tacit.local.flat import FlatModel
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
        # How many columns there are and whether there is noise is known to a run only; how many
        # rounds are usual depends on it already. (The target is a column too.)
        clip = math.inf if self.epsilon is None else 1.0
        return Mixed(slopes=",".join(str(int(each)) for each in given), columns=1, clip=clip)

    def _federation(self, rows: Rows) -> Federation:
        """Columns in each task's own units, from which a run goes over to common ones."""
        x, offsets = rows.x.numpy(), rows.offsets.numpy()
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(x.shape[1])])
        fitted = preprocess.fit(x, offsets, "task", names)
        task = torch.arange(len(rows.counts)).repeat_interleave(rows.counts)
        made = super()._federation(replace(rows, x=fitted.preprocessing.apply(rows.x, task)))
        spread = preprocess.moments(rows.y.numpy()[:, None], offsets)[1][:, 0]
        return replace(
            made,
            preprocessing=fitted.preprocessing,
            units=own_units(fitted, made.target_scale, spread),
            assumptions=(*made.assumptions, *fitted.assumptions),
        )

    def _keep(
        self, federation: Federation, flat: FlatModel, w: Tensor, buffers: Tensor, blank: bool
    ) -> None:
        found = in_original_units(federation, w.double()).numpy()
        self._no_newcomers = "one task shares nothing: fit at least two" if blank else ""
        if not np.isfinite(found[-1]).all():
            self._no_newcomers = (
                "votes about units drowned in noise, so there is no shared model: fit more tasks, "
                "or raise epsilon"
            )
        self._keep_linear(found, 1, np.ones(len(w)), np.zeros(len(w)))
