"""Private estimators: tacit's methods behind `fit` and `predict`."""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tacit.data import preprocess
from tacit.data.common import in_original_units, own_units
from tacit.data.federation import Federation, Kind, Rows, TargetScale
from tacit.data.preprocess import assumed_of_target, fit_target, moments
from tacit.data.targets import CLASSES
from tacit.engine.progress import silent
from tacit.errors import TacitError
from tacit.experiment.auto import choose, mixes
from tacit.experiment.plan import Plan
from tacit.experiment.start import model_of
from tacit.experiment.train import train
from tacit.local.flat import FlatModel, ModelFactory
from tacit.methods import (
    AUTO,
    METHODS,
    Method,
    Mixed,
    RelatedMethod,
)
from tacit.methods.linear import LinearMethod
from tacit.models import MODELS
from tacit.privacy import Everyone, Ledger, Prepaid, Privacy, guarantee, spent
from tacit.privacy.accounting import Spent
from tacit.privacy.sampling import Neighbours
from tacit.randomness import Randomness
from tacit.sklearn.alone import alone_model
from tacit.sklearn.base import Classifier, MultiTask, Regressor, check_flag, number, whole

LAYERS = ("linear", "mlp")
_ASTRAY = (
    "training diverged for {} of {} tasks (not covered by the guarantee; `diverged_` names them): "
    "each of them contributed nothing and keeps the best model that it finds alone; scale its "
    "features to about unit size, or pass a method with a smaller lr"
)
"""Models by name that read rows of numbers."""
AS_GIVEN = "features are taken as given: scaling them over all tasks beforehand is not covered"


class UnbookedTuningWarning(UserWarning):
    """The same rows are fitted with several settings: a choice among them is not covered by ε."""


_fitted: dict[bytes, set[str]] = {}
"""Settings that rows (a hash of them) were fitted with in this process. `GridSearchCV` fits clones,
so the estimator itself could not remember; and rows, unlike the call stack, also tell of a loop."""


class _Private(MultiTask):
    spent_: Spent

    def __init__(
        self,
        method: str | Method = AUTO,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        neighbours: Neighbours = "add-remove",
        rounds: int | None = None,
        model: str | nn.Module | ModelFactory = "linear",
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.neighbours: Neighbours = neighbours
        self.rounds = rounds
        self.model = model
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.ledger = ledger

    def fit(self, X: Any, y: Any, tasks: Any = None):
        """Train a model for every task.

        Parameters
        ----------
        X : [rows, features] numbers, or a data frame
        y : [rows] targets
        tasks : [rows] the task of each row: text, numbers, categories; None for rows that all are
            one task's, which then trains alone
        """
        # What can be refused is refused before any work.
        method, privacy, seed, model = self._method(), self._privacy(), self._seed(), self._layers()
        rounds = self._rounds()
        path = self._path(privacy)
        self._check_units()
        self._forget()
        rows = self._rows(X, y, tasks)
        federation = self._federation(rows, method)
        if len(federation) > 1:
            self._compare(rows, privacy)
            # Nothing is published before `fit` returns, and nothing ever is if it fails: a ledger
            # in memory is sound. (`Prepaid` says to `train` that it need not survive.)
            given: Any = {"model": model, "privacy": privacy, "rounds": rounds, "seed": seed}
            given |= {"personalise": "none", "baselines": False, "progress": silent}
            run = train(federation, method, **given)
            flat, every = run.simulation.model, torch.arange(len(federation))
            models, public = run.simulation.personal(every), run.simulation.newcomer(every[:1])
            promise, made = run.guarantee, run.simulation.channel.ledger
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
            found = choose(federation, plan)
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
        if federation.preprocessing is not None:
            self._keep_shared(_in_original_units(federation, w.double()), federation.outputs, blank)
            return
        scale, shift, own = np.ones(len(w)), np.zeros(len(w)), federation.target_scale
        self._no_newcomers = ""
        if own is not None:
            scale[:-1], shift[:-1] = own.scale.numpy(), own.shift.numpy()
            if self._public_units():
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
        if isinstance(self.model, str) and self.model == "linear":
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

    # --- parameters ---

    def _several_classes(self) -> bool:
        if isinstance(self.method, str) and self.method == AUTO:
            return True
        kind = METHODS.get(self.method) if isinstance(self.method, str) else type(self.method)
        if kind is None or not issubclass(kind, LinearMethod):
            return True
        return "multiclass" in kind.kinds

    def _method(self) -> Method | str:
        if isinstance(self.method, str) and self.method == AUTO:
            return AUTO
        known = [AUTO] + [n for n, kind in METHODS.items() if not issubclass(kind, RelatedMethod)]
        if isinstance(self.method, Method) and not isinstance(self.method, RelatedMethod):
            return self.method
        if not isinstance(self.method, str) or self.method not in known:
            raise TacitError(
                f"method={self.method!r}: choose one of {', '.join(known)}, or pass such a method "
                "with settings of your own, like tacit.SharedPrior(mean=0)"
            )
        return METHODS[self.method]()

    def _rounds(self) -> int | None:
        if self.rounds is None:
            return None
        if not whole(self.rounds) or self.rounds < 1:
            raise TacitError(f"rounds={self.rounds!r}: a whole number, 1 or more, is needed")
        return int(self.rounds)

    def _privacy(self) -> Privacy | None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if value is not None and not number(value):
                raise TacitError(f"{name}={value!r}: a number or None is needed")
        if self.epsilon is not None:
            delta = None if self.delta is None else float(self.delta)
            return Prepaid(epsilon=float(self.epsilon), delta=delta, neighbours=self.neighbours)
        if self.delta is not None or self.neighbours != "add-remove":
            raise TacitError(
                "epsilon=None asks for no privacy, so delta and neighbours say nothing: leave them "
                "out, or pass epsilon"
            )
        return None

    def _seed(self) -> int | None:
        state = self.random_state
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if state is None:
            return None
        if not whole(state) or state < 0:
            raise TacitError(
                f"random_state={state!r}: None (private), a whole number or a RandomState is needed"
            )
        return int(state)

    def _layers(self) -> nn.Module | ModelFactory:
        check_flag(self.fit_intercept, "fit_intercept")
        model = self.model
        if isinstance(model, str) and model in LAYERS:
            model = MODELS[model]
        if isinstance(model, str) or not callable(model):
            raise TacitError(
                f"model={self.model!r}: choose one of {', '.join(LAYERS)}, or pass a torch module"
            )
        if self.fit_intercept:
            return model
        if self.model != "linear":
            raise TacitError("fit_intercept=False is for model='linear' only: leave it out")
        return MODELS["linear-no-intercept"]

    def _path(self, privacy: Privacy | None) -> Path | None:
        if self.ledger is None:
            return None
        if not isinstance(self.ledger, str | Path) or not Path(self.ledger).parent.is_dir():
            raise TacitError(f"ledger={self.ledger!r}: a file in a folder that exists is needed")
        epsilon = None if privacy is None else privacy.epsilon
        if epsilon is None:
            raise TacitError(
                "ledger= adds up what noisy releases cost, but epsilon=None adds no noise: leave "
                "one of them out"
            )
        Ledger.at(Path(self.ledger))  # says so if it is damaged
        return Path(self.ledger)

    # --- rows ---

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
        if not self._votes(method):
            return self._make(rows)
        # Columns in each task's own units, from which a run goes over to common ones.
        x, offsets = rows.x.numpy(), rows.offsets.numpy()
        fitted = preprocess.fit(x, offsets, "task", self._columns(x.shape[1]))
        task = torch.arange(len(rows.counts)).repeat_interleave(rows.counts)
        made = self._make(replace(rows, x=fitted.preprocessing.apply(rows.x, task)))
        own = None if self._public_units() else made.target_scale
        spread = preprocess.moments(rows.y.double().numpy()[:, None], offsets)[1][:, 0]
        return replace(
            made,
            preprocessing=fitted.preprocessing,
            units=own_units(fitted, own, spread),
            assumptions=(*made.assumptions[1:], *fitted.assumptions),
        )

    def _votes(self, method: Method | str) -> bool:
        """Whether a run will find common units for the columns."""
        linear = isinstance(self.model, str) and self.model == "linear" and self.fit_intercept
        classes = len(getattr(self, "classes_", ()))
        kind: Kind = "regression" if not classes else "binary" if classes == 2 else "multiclass"
        few = mixes(kind, self.n_features_in_, classes if classes > 2 else 1)
        return isinstance(method, Mixed) or (method == AUTO and linear and few)

    def _columns(self, number: int) -> list[str]:
        return [*getattr(self, "feature_names_in_", [f"x{i}" for i in range(number)])]

    def _make(self, rows: Rows) -> Federation:
        x = rows.x.float()
        y, about = self._target(rows)
        nothing = Rows(x[:0], y[:0], torch.zeros_like(rows.offsets))
        return Federation(
            names=[str(task) for task in self.tasks_],
            train=Rows(x, y, rows.offsets),
            validation=nothing,
            test=nothing,
            features=tuple(self._columns(x.shape[1])),
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


def _in_original_units(federation: Federation, w: Tensor) -> np.ndarray:
    """Models [tasks + 1, size] for rows as they were given; each class has its own weights."""
    outputs, p = federation.outputs, w.shape[1] // federation.outputs - 1
    slopes, biases = w[:, : outputs * p].unflatten(1, (outputs, p)), w[:, outputs * p :]
    each = [
        in_original_units(federation, torch.cat([slopes[:, k], biases[:, k : k + 1]], dim=1))
        for k in range(outputs)
    ]
    sides = [one[:, :-1] for one in each], [one[:, -1:] for one in each]
    return torch.cat([*sides[0], *sides[1]], dim=1).numpy()


class PrivateMultiTaskRegressor(Regressor, _Private):
    """Private multi-task regression: a model for every task, and a guarantee.

    Parameters
    ----------
    method : "auto" chooses by public facts: "mixed" for linear models with an intercept, in common
        units that the fit pays for, so that X and y may have any; or a name in
        `tacit.methods.METHODS` ("prior", "mpmtl", "pmtl", "fedavg", "local" …); or a method with
        settings of its own, like `tacit.SharedPrior(mean=0)`; not those that need a relation
    epsilon, delta, neighbours : what to promise (`tacit.Privacy`), for whole tasks; epsilon=None
        asks for no privacy, and `guarantee_` says so
    rounds : None for what is usual for the method: 6 with "mixed", 3 with "prior" (1 where its mean
        is 0, 5 where it is 1), 10 with "mpmtl", 100 with most others
    target_scale : "task" lets each task standardise its own targets ("mixed" then goes over to
        common units), which is free and suits any unit; but with other methods levels are not
        shared, and nothing can be predicted for a task that was not there. (mean, standard
        deviation) are public constants for all tasks, and lift both limits.
        On the School data (30 % of rows, ε=1, method "prior") the error as a
        share of the variance is 0.648 with "task", 0.651 with constants guessed from the range of
        scores, 0.646 with good ones, and 0.709 with (0, 1), which leaves targets as they are.
    model : "linear", "mlp", or a torch module for [rows, features]; linear methods need "linear"
    fit_intercept : False for a linear model through the origin
    random_state : None takes noise from the operating system; a seed makes the fit reproducible,
        and therefore not private
    ledger : a file that the releases of every fit are added to, before `fit` returns

    Attributes
    ----------
    guarantee_ : `tacit.Guarantee` of this fit alone
    spent_ : ε of all fits in the ledger together, at this fit's δ (where `ledger` is given)
    tasks_ : [tasks] the tasks, sorted; which ones there are is taken to be public
    coef_, intercept_ : [tasks, features] and [tasks], in the target's units, where model="linear";
        each row is its own task's, and not covered by the guarantee if it is handed to others
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
        rounds: int | None = None,
        target_scale: Literal["task"] | tuple[float, float] = "task",
        model: str | nn.Module | ModelFactory = "linear",
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        promise: Any = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours}
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
        return seen.float(), about


class PrivateMultiTaskClassifier(Classifier, _Private):
    """Private multi-task classification: a model for every task, and a guarantee.

    "prior" and "mpmtl" know two classes; others, like "mixed" and "pmtl", any number.

    Parameters
    ----------
    method, epsilon, delta, neighbours, rounds, model, fit_intercept, random_state, ledger : as for
        `PrivateMultiTaskRegressor`

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
        about = {
            "kind": kind,
            "outputs": 1 if kind == "binary" else len(labels),
            "labels": labels,
            "assumptions": (AS_GIVEN, CLASSES),
        }
        return rows.y.float() if kind == "binary" else rows.y, about
