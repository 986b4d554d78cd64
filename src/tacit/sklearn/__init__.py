"""Estimators in scikit-learn's shape: `fit(X, y, tasks=site)`, `predict(X, tasks=site)`.

`tasks` names the task of each row. Every task ends with a model of its own, and `guarantee_` says
what the others could learn about it. A row of a task that was not there at `fit` (or of nobody in
particular: `tasks=None`) is predicted from the billboard, which is what is public.

* Features are taken as they are. Scale them by public constants, or inside each task: a scaler
  fitted on the rows of all tasks (`StandardScaler` in a `Pipeline`, say) tells every task about the
  others without noise, and no guarantee covers it. Methods that take gradient steps (`pmtl`,
  `mpmtl` and most others) need features of about unit size.
  `PrivateMixedModel` takes numbers of any size: it finds common units by booked releases.
* With `unit="person"`, `fit(X, y, tasks=site, persons=patient)` hides every person of a task in the
  place of whole tasks, and with `unit="row"` every row; `n_persons` is about how many there are.
* Without `tasks`, `fit` takes all rows to be one task's. Then nothing is shared and nothing leaves
  the task, and `guarantee_` says so.
* `Pipeline`, `cross_val_score` and `GridSearchCV` hand `tasks` on when told to:
  `sklearn.set_config(enable_metadata_routing=True)`, then `.set_fit_request(tasks=True)` and
  `.set_score_request(tasks=True)`; `persons` likewise. Choosing settings by comparing fits costs
  privacy that nobody booked: the second setting tried on the same rows in a process raises
  `UnbookedTuningWarning`. `tacit.tune` chooses by booked runs instead.
* All of scikit-learn's estimator checks pass, none left out; they fit without `tasks`.
* Scores are computed from private rows without noise: not covered by the guarantee.
"""

from tacit.sklearn.classical import MultiTaskClassifier, MultiTaskRegressor
from tacit.sklearn.mixed import PrivateMixedModel
from tacit.sklearn.private import (
    PrivateMultiTaskClassifier,
    PrivateMultiTaskRegressor,
    UnbookedTuningWarning,
)

__all__ = [
    "MultiTaskClassifier",
    "MultiTaskRegressor",
    "PrivateMixedModel",
    "PrivateMultiTaskClassifier",
    "PrivateMultiTaskRegressor",
    "UnbookedTuningWarning",
]
