"""Private estimators: tacit's methods behind `fit` and `predict`."""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tacit.data import preprocess
from tacit.data.common import own_units
from tacit.data.federation import Federation, Kind, Rows, TargetScale
from tacit.data.persons import Owners, Unscaled, owners_of
from tacit.data.preprocess import Preprocessing, assumed_of_target, fit_target, moments
from tacit.data.targets import CLASSES
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.auto import choose, mixes
from tacit.experiment.plan import Plan
from tacit.experiment.start import model_of
from tacit.experiment.train import train
from tacit.local.flat import FlatModel, ModelFactory
from tacit.methods import AUTO, Method, Mixed
from tacit.privacy import Everyone, Ledger, Privacy, guarantee, spent
from tacit.privacy.accounting import Spent
from tacit.privacy.sampling import Neighbours, Unit
from tacit.randomness import Randomness
from tacit.sklearn.alone import alone_model
from tacit.sklearn.base import (
    Classifier,
    Combined,
    Regressor,
    check_length,
    columns_of,
    linear_in_original_units,
    number,
)
from tacit.sklearn.settings import PrivateSettings

_ASTRAY = (
    "training diverged for {} of {} tasks (not covered by the guarantee; `diverged_` names them): "
    "they contributed nothing and keep the best that they find alone; use features of unit size"
)
AS_GIVEN = "features are taken as given: scaling them over all tasks beforehand is not covered"


class UnbookedTuningWarning(UserWarning):
    """The same rows are fitted with several settings: a choice among them is not covered by ε."""


_fitted: dict[bytes, set[str]] = {}
"""Settings that rows (a hash of them) were fitted with in this process. `GridSearchCV` fits clones,
so the estimator itself could not remember; and rows, unlike the call stack, also tell of a loop."""


class _Private(PrivateSettings):
    spent_: Spent

    def fit(self, X: Any, y: Any, tasks: Any = None, persons: Any = None):
        """Train a model for every task.

        Parameters
        ----------
        X : [rows, features] numbers, or a data frame
        y : [rows] targets
        tasks : [rows] the task of each row: text, numbers, categories; None for rows that all are
            one task's, which then trains alone
        persons : [rows] whose row each is, where unit="person": names mean the same at all tasks
        """
        # What can be refused is refused before any work.
        method, privacy, seed, model = self._method(), self._privacy(), self._seed(), self._layers()
        rounds = self._rounds()
        path = self._path(privacy)
        self._check_units()
        self._forget()
        rows = self._rows(X, y, tasks, partial(self._owners, persons))
        federation = self._federation(rows, method)
        if len(federation) > 1:
            self._compare(rows, privacy)
            # Nothing is published before `fit` returns, and nothing ever is if it fails: a ledger
            # in memory is sound. (`Prepaid` says to `train` that it need not survive.)
            given: Any = {"model": model, "privacy": privacy, "rounds": rounds, "seed": seed}
            given |= {"personalise": self._last_step(method), "baselines": False}
            run = train(federation, method, progress=silent, **given)
            flat, every = run.simulation.model, torch.arange(len(federation))
            models, public = run.models(every), run.simulation.newcomer(every[:1])
            promise, made, blend = run.guarantee, run.simulation.channel.ledger, run.blend
            federation = run.federation  # a run may go over to common units
            self.diverged_ = run.diverged
            if run.diverged:
                warnings.warn(
                    _ASTRAY.format(len(run.diverged), len(federation)),
                    stacklevel=2,
                    category=ConvergenceWarning,
                )
        else:
            flat = model_of(model, federation, Randomness.of(seed).key("model", 0))
            plan = Plan(
                method=method, privacy=privacy, model=model, rounds=rounds, personalise="none"
            )
            found, blend = choose(federation, plan), None
            models, self.diverged_ = alone_model(federation, found, flat, seed), []
            public, made = (flat.start[None], flat.buffers[None]), Ledger()
            promise = guarantee(
                {},
                channel="nothing",
                privacy=None,
                tasks=1,
                sampler=Everyone(),
                clip=math.inf,
                seeded=seed is not None,
                assumptions=federation.assumptions,
            )
        w, buffers = (torch.cat(pair) for pair in zip(models, public, strict=True))
        blank = bool((public[0] == flat.start).all())
        self._keep(federation, flat, w, buffers, blank)
        units = federation.preprocessing, federation.target_scale
        self._limits = federation.preprocessing
        self._combined = None if blend is None else Combined(blend, *units)
        if path is not None and privacy is not None:
            for round, entry in enumerate(made.releases().elements()):
                Ledger(path).book(round, entry, repeatable=False)
            total, delta = Ledger.at(path).releases(), privacy.delta_for(len(federation))
            self.spent_ = spent(total, delta, privacy.neighbours)
        self.guarantee_ = promise
        return self

    def _keep(
        self, federation: Federation, flat: FlatModel, w: Tensor, buffers: Tensor, blank: bool
    ) -> None:
        """The models [tasks + 1, size], the billboard's last, and the units that they speak in."""
        linear = isinstance(self.model, str) and self.model == "linear"
        if federation.preprocessing is not None and linear:
            self._keep_shared(
                linear_in_original_units(federation, w.double()), federation.outputs, blank
            )
            return
        scale, shift, own = np.ones(len(w)), np.zeros(len(w)), federation.target_scale
        self._no_newcomers = ""
        if own is not None:
            scale[:-1], shift[:-1] = own.scale.numpy(), own.shift.numpy()
            if self._public_units() or federation.train.persons is not None:
                scale[-1], shift[-1] = scale[0], shift[0]
            else:
                self._no_newcomers = (
                    "nothing public says in which units its target is: fit with "
                    "target_scale=(mean, standard deviation), public constants"
                )
        if blank:
            self._no_newcomers = (
                "nothing was published that would give it a model: fit at least two tasks with a "
                "method that shares a mean, like 'prior' or 'pmtl'"
            )
        if linear:
            self._keep_linear(w.double().numpy(), federation.outputs, scale, shift)
        else:
            module = flat.module(flat.start, flat.buffers)
            self._network = (module, federation.kind, w, buffers, scale, shift)

    def _keep_shared(self, found: np.ndarray, outputs: int, blank: bool) -> None:
        """Weights for rows as they were given: there is a shared model where there are units."""
        self._no_newcomers = "one task shares nothing: fit at least two" if blank else ""
        if not np.isfinite(found[-1]).all():
            self._no_newcomers = (
                "votes about units drowned in noise, so there is no shared model: fit more tasks, "
                "or raise epsilon"
            )
        self._keep_linear(found, outputs, np.ones(len(found)), np.zeros(len(found)))

    def _owners(self, persons: Any, x: np.ndarray, y: np.ndarray) -> Owners | None:
        """Whose each row is, where that matters: nothing leaves a task that is alone."""
        if (persons is not None) != (self.unit == "person"):
            raise TacitError(
                f"unit={self.unit!r}, but persons= says whose row each is for unit='person', and "
                "for nothing else: give both, or neither"
            )
        if persons is not None:
            check_length("persons", persons, x)
        found = owners_of(self.unit == "row" if persons is None else persons, x, y)
        return found if len(self.tasks_) > 1 else None

    def _check_units(self) -> None:
        """Refuse what cannot be done to the target."""

    def _public_units(self) -> bool:
        """Whether all tasks' targets are in the same units, which everybody knows."""
        return True

    @abstractmethod
    def _target(self, rows: Rows) -> tuple[Tensor, dict[str, Any]]:
        """The target as models see it, and what the federation says of it."""

    def _federation(self, rows: Rows, method: Method | str) -> Federation:
        if not rows.x.float().isfinite().all():
            raise TacitError("X holds numbers too large for single precision: scale it first")
        if rows.persons is not None:
            return self._of_persons(rows)
        if not self._votes(method):
            return self._make(rows)
        # Columns in each task's own units, from which a run goes over to common ones.
        x, offsets = rows.x.numpy(), rows.offsets.numpy()
        fitted = preprocess.fit(x, offsets, "task", columns_of(self, x.shape[1]))
        task = torch.arange(len(rows.counts)).repeat_interleave(rows.counts)
        made = self._make(replace(rows, x=fitted.preprocessing.apply(rows.x, task)))
        own = None if self._public_units() else made.target_scale
        assert fitted.own is not None
        spread = preprocess.moments(rows.y.double().numpy()[:, None], offsets)[1][:, 0]
        return replace(
            made,
            preprocessing=fitted.preprocessing,
            units=own_units(fitted, own, spread),
            own_columns=(*fitted.own[0].tolist(), *made.own_columns),
            assumptions=(*made.assumptions[1:], *fitted.assumptions),
        )

    def _of_persons(self, rows: Rows) -> Federation:
        """Columns as they are given, and a target without constants likewise: the run finds common
        units for what a linear model can speak in the units of X again."""
        made, columns = self._make(rows), self.n_features_in_
        linear = isinstance(self.model, str) and self.model == "linear" and self.fit_intercept
        unknown = (*range(columns if linear else 0), *(() if self._public_units() else (-1,)))
        if not self.fit_intercept and unknown:
            raise TacitError(
                "fit_intercept=False with persons as the unit: pass a target_scale around 0, like "
                "(0.0, 10.0)"
            )
        as_given = Preprocessing(torch.zeros(1, columns).double(), torch.ones(1, columns).double())
        return replace(
            made,
            preprocessing=as_given if unknown else None,
            unscaled=Unscaled(unknown) if unknown else None,
            assumptions=made.assumptions[1:] if linear else made.assumptions,
        )

    def _votes(self, method: Method | str) -> bool:
        """Whether a run will find common units for the columns."""
        linear = isinstance(self.model, str) and self.model == "linear" and self.fit_intercept
        classes = len(getattr(self, "classes_", ()))
        kind: Kind = "regression" if not classes else "binary" if classes == 2 else "multiclass"
        few = mixes(kind, self.n_features_in_, classes if classes > 2 else 1)
        return isinstance(method, Mixed) or (method == AUTO and linear and few)

    def _make(self, rows: Rows) -> Federation:
        x = rows.x.float()
        y, about = self._target(rows)
        nobody = None if rows.persons is None else rows.persons[:0]
        nothing = Rows(x[:0], y[:0], torch.zeros_like(rows.offsets), nobody)
        return Federation(
            names=[str(task) for task in self.tasks_],
            train=Rows(x, y, rows.offsets, rows.persons),
            validation=nothing,
            test=nothing,
            features=tuple(columns_of(self, x.shape[1])),
            **about,
        )

    def _compare(self, rows: Rows, privacy: Privacy | None) -> None:
        """Warn where the same rows were fitted with other settings: that is how choices are made.

        A seed is no setting. A fit with `epsilon=None` is remembered, because a choice can be made
        with its help, but it promises nothing that a choice could break.
        """
        digest = hashlib.sha256()
        for tensor in (rows.x, rows.y, rows.offsets):
            digest.update(tensor.numpy().data)
        given = self.get_params(deep=False)
        settings = repr({k: v for k, v in given.items() if k not in ("random_state", "ledger")})
        before = _fitted.setdefault(digest.digest(), set())
        before.add(settings)
        if len(before) > 1 and privacy is not None:
            warnings.warn(
                "these rows were fitted with other settings before: if settings are chosen by "
                "comparing such fits (as GridSearchCV does), guarantee_ does not cover the choice; "
                "tacit.tune chooses by booked runs",
                UnbookedTuningWarning,
                stacklevel=3,
            )


class PrivateMultiTaskRegressor(Regressor, _Private):
    """Private multi-task regression: a model for every task, and a guarantee.

    Parameters
    ----------
    method : "auto" chooses by public facts: "mixed" for linear models with an intercept, in common
        units that the fit pays for, so that X and y may have any; or a name in
        `tacit.methods.METHODS` ("prior", "mpmtl", "pmtl", "fedavg", "local" …); or a method with
        settings of its own, like `tacit.SharedPrior(mean=0)`; not those that need a relation
    epsilon, delta, neighbours : what to promise (`tacit.Privacy`); epsilon=None asks for no
        privacy, and `guarantee_` says so
    unit, n_persons, at_most : who is hidden: whole tasks, every "person" (`fit(..., persons=...)`)
        or every "row"; about how many of them there are in all, and at how many tasks one may be
    tasks_epsilon : where persons or rows are hidden, hide whole tasks as well, at this ε
    rounds : None for what is usual for the method: 8 with "mixed", 3 with "prior" (1 where its mean
        is 0, 5 where it is 1), 10 with "mpmtl", 100 with most others
    target_scale : "task" lets each task standardise its own targets ("mixed" then goes over to
        common units), which is free and suits any unit; but with other methods levels are not
        shared, and nothing can be predicted for a task that was not there. (mean, standard
        deviation) are public constants for all tasks, and lift both limits.
        On the School data (30 % of rows, ε=1, method "prior") the error as a
        share of the variance is 0.648 with "task", 0.651 with constants guessed from the range of
        scores, 0.646 with good ones, and 0.709 with (0, 1), which leaves targets as they are.
    model : "linear", "mlp", or a torch module for [rows, features]; linear methods need "linear"
    fit_intercept : False for a linear model through the origin, without the last step
    random_state : None takes noise from the operating system; a seed makes the fit reproducible,
        and therefore not private
    ledger : a file that the releases of every fit are added to, before `fit` returns

    Attributes
    ----------
    guarantee_ : `tacit.Guarantee` of this fit alone
    spent_ : ε of all fits in the ledger together, at this fit's δ (where `ledger` is given), for
        `unit` alone
    tasks_ : [tasks] the tasks, sorted; which ones there are is taken to be public
    coef_, intercept_ : [tasks, features] and [tasks], in the target's units, where model="linear":
        the shared part of what each task combines in its last step, so `predict` may say something
        else; each row is its own task's, and not covered by the guarantee if handed to others
    billboard_coef_, billboard_intercept_ : [features] and a number: the model of a task that never
        took part; with target_scale="task" in standardised units
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn
    """

    def __init__(
        self,
        method: str | Method = AUTO,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        neighbours: Neighbours = "add-remove",
        unit: Unit = "task",
        n_persons: int | None = None,
        at_most: int = 1,
        tasks_epsilon: float | None = None,
        rounds: int | None = None,
        target_scale: Literal["task"] | tuple[float, float] = "task",
        model: str | nn.Module | ModelFactory = "linear",
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        promise: Any = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours}
        promise |= {"unit": unit, "n_persons": n_persons, "at_most": at_most}
        promise |= {"tasks_epsilon": tasks_epsilon}
        fitted: Any = {"rounds": rounds, "model": model, "fit_intercept": fit_intercept}
        super().__init__(method, **promise, **fitted, random_state=random_state, ledger=ledger)
        self.target_scale: Literal["task"] | tuple[float, float] = target_scale

    def _public_units(self) -> bool:
        return not isinstance(self.target_scale, str)

    def _check_units(self) -> None:
        given = self.target_scale
        if isinstance(given, str) and given == "task":
            return
        pair = isinstance(given, tuple | list) and len(given) == 2 and all(map(number, given))
        if not pair or not (np.isfinite(given).all() and given[1] > 0):
            raise TacitError(
                f"target_scale={given!r}: 'task', or public constants (mean, standard deviation) "
                "are needed"
            )
        if not self.fit_intercept and given[0] != 0:
            raise TacitError("fit_intercept=False needs a target_scale around 0, like (0.0, 10.0)")

    def _target(self, rows: Rows) -> tuple[Tensor, dict[str, Any]]:
        given, y, offsets = self.target_scale, rows.y.numpy(), rows.offsets.numpy()
        if rows.persons is not None and given == "task":  # a task's own scale is made of them all
            return rows.y.float(), {"kind": "regression", "outputs": 1, "assumptions": (AS_GIVEN,)}
        if not self.fit_intercept and given == "task":  # a shift would be an intercept
            squares, _ = moments(y[:, None] ** 2, offsets)
            size = torch.from_numpy(np.sqrt(np.where(squares > 0, squares, 1.0))[:, 0]).float()
            scale = TargetScale(torch.zeros_like(size), size)
        else:
            mode = "task" if given == "task" else (float(given[0]), float(given[1]))
            scale, _ = fit_target(y, offsets, mode)
            assert scale is not None
        task = torch.arange(len(rows.counts)).repeat_interleave(rows.counts)
        seen = (rows.y - scale.shift[task].double()) / scale.scale[task].double()
        about: dict[str, Any] = {"kind": "regression", "outputs": 1, "target_scale": scale}
        about["assumptions"] = (AS_GIVEN, *assumed_of_target(given))
        about["own_columns"] = () if self._public_units() else (-1,)
        return seen.float(), about


class PrivateMultiTaskClassifier(Classifier, _Private):
    """Private multi-task classification: a model for every task, and a guarantee.

    "prior" and "mpmtl" know two classes; others, like "mixed" and "pmtl", any number.

    Parameters
    ----------
    method, epsilon, delta, neighbours, unit, n_persons, at_most, tasks_epsilon, rounds, model,
    fit_intercept, random_state, ledger : as for `PrivateMultiTaskRegressor`

    Attributes
    ----------
    classes_ : the classes, sorted; which ones there are is taken to be public
    coef_, intercept_ : [tasks, features] and [tasks] with two classes, else
        [tasks, classes, features] and [tasks, classes], where model="linear"
    billboard_coef_, billboard_intercept_ : the same for a task that never took part, without the
        first axis
    guarantee_, spent_, tasks_, n_features_in_, feature_names_in_ : as for
        `PrivateMultiTaskRegressor`
    """

    def _target(self, rows: Rows) -> tuple[Tensor, dict[str, Any]]:
        labels = tuple(str(label) for label in self.classes_)
        kind: Kind = "binary" if len(labels) == 2 else "multiclass"
        outputs = 1 if kind == "binary" else len(labels)
        about = {"kind": kind, "outputs": outputs, "labels": labels}
        about["assumptions"] = (AS_GIVEN, CLASSES)
        return rows.y.float() if kind == "binary" else rows.y, about
